"""Settings of a flow about the copies' configs and ACLs.

Main type: `TopicSync`, a part of `FlowConfig`. `metadata` applies them.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from mirror.config.mm2 import readers
from mirror.config.section import Number, Patterns, Section
from mirror.config.traits import Differs, Effect, Where, keys, setting

CONFIG_PROPERTIES_EXCLUDE = (
    r"follower\.replication\.throttled\.replicas",
    r"leader\.replication\.throttled\.replicas",
    r"message\.timestamp\.difference\.max\.ms",
    r"log\.message\.timestamp\.before\.max\.ms",
    r"log\.message\.timestamp\.after\.max\.ms",
    r"message\.timestamp\.before\.max\.ms",
    r"message\.timestamp\.after\.max\.ms",
    r"message\.timestamp\.type",
    r"unclean\.leader\.election\.enable",
    r"min\.insync\.replicas",
)
"""MirrorMaker 2's list in Kafka 4.3, which calls two configs by their broker names; the
topic names are here as well. A limit on timestamps would refuse records that are copied
long after they were written."""


class TopicSync(Section):
    """How copies follow their topics."""

    on_change: ClassVar[Effect] = Effect.JOBS

    sync_topic_configs: bool = setting(
        default=True,
        mm2=keys("sync.topic.configs.enabled"),
        description="Whether to keep the copies' configs the same as their topics'. "
        "Off: copies get them when they are created; later differences are only shown.",
    )
    sync_topic_configs_seconds: Number = setting(
        default=60.0,
        gt=0,
        mm2=keys("sync.topic.configs.interval.seconds")
        + keys("sync.topic.configs.interval", read=readers.duration),
        mm2_default=Differs("600", "60"),
        description="How often to compare the configs of topics and copies; zero is "
        "refused, use sync_topic_configs to turn it off.",
    )
    config_properties_exclude: Patterns = setting(
        default=CONFIG_PROPERTIES_EXCLUDE,
        mm2=keys("config.properties.exclude", "config.properties.blacklist"),
        description="Regular expressions that must match a config's whole name: these "
        "configs are neither copied nor compared. Empty: none is left out.",
    )
    use_defaults_from: Literal["target", "source"] = setting(
        default="target",
        mm2=keys("use.defaults.from", where=Where.ONE_FLOW),
        description="Where configs that a topic does not set come from. target: the "
        "defaults of the target's brokers; source: those of the source's brokers.",
    )
    config_strategy: Literal["first", "intersection", "target"] = setting(
        default="first",
        mm2=keys("sync.topic.configs.strategy", read=readers.lower),
        description="For a copy that several flows write. first: as the first of these "
        "flows has it; intersection: only what all sources agree on; target: as it is "
        "on the target. The setting of the first of these flows applies.",
    )
    sync_topic_acls: bool = setting(
        default=True,
        mm2=keys("sync.topic.acls.enabled", "sync.acls.enabled"),
        description="Whether to give the ACLs of topics to their copies: principals "
        "that may read a topic may read its copy; write access is not copied. Off: no "
        "ACLs are copied.",
    )
    sync_topic_acls_seconds: Number = setting(
        default=60.0,
        gt=0,
        mm2=keys("sync.topic.acls.interval.seconds")
        + keys("sync.topic.acls.interval", read=readers.duration),
        mm2_default=Differs("600", "60"),
        description="How often to compare ACLs; zero is refused, use sync_topic_acls "
        "to turn it off.",
    )
    sync_prefixed_acls: bool = setting(
        default=False,
        description="Whether to copy ACLs for all topics with a common prefix "
        "(PREFIXED) as well. Off: they are left out, as in MirrorMaker 2.",
    )
