"""Settings of a flow about what surrounds its records: configs and ACLs of copies.

Main type: `TopicSync`, a part of `FlowConfig`. What the settings do is `metadata`'s
duty.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from mirror.config.section import Number, Patterns, Section

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
"""The list of MirrorMaker 2 in Kafka 4.3, which gives two settings the names that they
have on brokers; here their names on topics stand as well. A limit on timestamps would
refuse records that wait long before they are copied."""


class TopicSync(Section):
    """How copies are kept as their topics are."""

    sync_topic_configs: bool = Field(
        default=True,
        description="Whether configs of copies are kept as those of their topics. Off: "
        "copies get them when they are created; later differences are only shown.",
    )
    sync_topic_configs_seconds: Number = Field(
        default=60.0,
        gt=0,
        description="How often to compare configs of topics and copies; zero is "
        "refused, sync_topic_configs turns it off.",
    )
    config_properties_exclude: Patterns = Field(
        default=CONFIG_PROPERTIES_EXCLUDE,
        description="Regular expressions that must match a config's whole name: these "
        "configs are neither copied nor compared. Empty: none is left out.",
    )
    use_defaults_from: Literal["target", "source"] = Field(
        default="target",
        description="target: what is not set on a topic itself is as the target's "
        "brokers have it; source: as the source's brokers have it.",
    )
    config_strategy: Literal["first", "intersection", "target"] = Field(
        default="first",
        description="For a copy that several flows write: first: as the first of these "
        "flows has it; intersection: only what all sources agree on; target: as it is "
        "on the target. The setting of the first of these flows counts.",
    )
    sync_topic_acls: bool = Field(
        default=True,
        description="Whether ACLs of topics are given to their copies: who may read "
        "the topic may read the copy, nobody may write. Off: none are.",
    )
    sync_topic_acls_seconds: Number = Field(
        default=60.0,
        gt=0,
        description="How often to compare ACLs; zero is refused, sync_topic_acls "
        "turns it off.",
    )
    sync_prefixed_acls: bool = Field(
        default=False,
        description="Whether ACLs of all topics that begin alike (PREFIXED) are kept, "
        "too. Off: as MirrorMaker 2, which leaves them out.",
    )
