"""Settings of a flow about consumer groups: offsets, checkpoints, heartbeats.

Main type: `GroupSettings`, a part of `FlowConfig`. `offsets` and `service.groups` apply
them.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, model_validator

from mirror.config import values
from mirror.config.mm2 import readers
from mirror.config.section import Differs, Effect, Number, Section, Whole, keys, setting

GroupPatterns = Annotated[tuple[str, ...], BeforeValidator(values.group_patterns)]

GROUPS_EXCLUDE = (r"console-consumer-.*", r"connect-.*", r"__.*")
"""MirrorMaker 2's default."""


def _replicas(of: str, *names: str) -> Any:
    return setting(
        default=None,
        ge=-1,
        le=32767,
        mm2=keys(*names),
        mm2_default=Differs("3", "as replication_factor"),
        description=f"Replicas of {of}. Null: as replication_factor; -1: the brokers' "
        "default; 0 is refused.",
    )


class GroupSettings(Section):
    """Which groups' offsets are translated, and what is written for them."""

    on_change: ClassVar[Effect] = Effect.JOBS

    groups: GroupPatterns = setting(
        default=(".*",),
        mm2=keys("groups", "groups.whitelist"),
        description="Consumer groups whose offsets are translated: regular expressions "
        "that must match a group's whole name; a list, or one text with commas. Empty: "
        "no group.",
    )
    groups_exclude: GroupPatterns = setting(
        default=GROUPS_EXCLUDE,
        mm2=keys("groups.exclude", "groups.blacklist"),
        description="Groups to leave out although `groups` matches them. Empty: none.",
    )
    emit_checkpoints: bool = setting(
        default=True,
        mm2=keys("emit.checkpoints.enabled"),
        description="Whether to write the groups' positions on both sides to "
        "<source>.checkpoints.internal on the target. Off: applications cannot look "
        "them up on the target alone.",
    )
    emit_checkpoints_seconds: Number = setting(
        default=10.0,
        gt=0,
        mm2=keys("emit.checkpoints.interval.seconds")
        + keys("emit.checkpoints.interval", read=readers.duration),
        mm2_default=Differs("60", "10"),
        description="Time between two looks at the groups; zero is refused.",
    )
    follow_commits: Annotated[
        Literal["auto", "on", "off"], BeforeValidator(values.switch)
    ] = setting(
        default="auto",
        description="Whether to read commits from the source's __consumer_offsets, so "
        "that checkpoints follow within a second instead of with the next look at the "
        "groups. auto: if mirror has READ on that topic; on: the flow has a problem if "
        "it has not. Only with emit_checkpoints.",
    )
    sync_group_offsets: bool = setting(
        default=False,
        mm2=keys("sync.group.offsets.enabled"),
        description="Whether to set the groups' offsets on the target as well: only "
        "forward, and only for groups without members there. Requires "
        "emit_checkpoints.",
    )
    sync_group_offsets_seconds: Number | None = setting(
        default=None,
        gt=0,
        mm2=keys("sync.group.offsets.interval.seconds")
        + keys("sync.group.offsets.interval", read=readers.duration),
        mm2_default=Differs("60", "with every look at the groups"),
        description="How often, at most. Null: with every look at the groups; zero is "
        "refused.",
    )
    emit_heartbeats: bool = setting(
        default=True,
        mm2=keys("emit.heartbeats.enabled", "emit.heartbeats"),
        description="Whether to write records to the target's topic `heartbeats` at "
        "regular intervals.",
    )
    emit_heartbeats_seconds: Number = setting(
        default=1.0,
        gt=0,
        mm2=keys("emit.heartbeats.interval.seconds")
        + keys("emit.heartbeats.interval", read=readers.duration),
        description="How often; zero is refused.",
    )
    heartbeats_on_source: bool = setting(
        default=False,
        description="Whether to write heartbeats to the source as well, so that their "
        "copies on the target show that copying works, and from which cluster. "
        "Requires the right to write there. Off: the source is only read; a flow in "
        "the other direction writes heartbeats there too.",
    )
    heartbeats_replication: bool = setting(
        default=True,
        mm2=keys("heartbeats.replication.enabled"),
        description="Whether the source's heartbeats are copied, whatever `topics` and "
        "`topics_exclude` say: the topic `heartbeats`, and its copies that begin with "
        "aliases of this file's `clusters`. Off: only if `topics` lists the name "
        "literally.",
    )
    emit_offset_syncs: bool = setting(
        default=False,
        mm2=keys("emit.offset-syncs.enabled"),
        mm2_default=Differs("true", "mirror itself does not need them"),
        description="Whether to write offset syncs in MirrorMaker 2's format, for "
        "going back to it; mirror itself does not need them.",
    )
    offset_syncs_location: Literal["source", "target"] = setting(
        default="source",
        mm2=keys("offset-syncs.topic.location"),
        description="The cluster in which MirrorMaker 2 will look for them.",
    )
    checkpoints_replication_factor: Whole | None = _replicas(
        "the checkpoints topic", "checkpoints.topic.replication.factor"
    )
    heartbeats_replication_factor: Whole | None = _replicas(
        "the topic `heartbeats`", "heartbeats.topic.replication.factor"
    )
    offset_syncs_replication_factor: Whole | None = _replicas(
        "the offset syncs topic",
        "offset-syncs.topic.replication.factor",
        "offsets.topic.replication.factor",
    )

    @model_validator(mode="after")
    def _groups_fit(self) -> Self:
        if self.sync_group_offsets and not self.emit_checkpoints:
            raise values.refusal(
                "sync_group_offsets",
                "it follows the checkpoints, and emit_checkpoints is off",
                "turn emit_checkpoints on",
            )
        for name in ("checkpoints", "heartbeats", "offset_syncs"):
            if getattr(self, field := f"{name}_replication_factor") == 0:
                raise values.refusal(
                    field,
                    "0 replicas are not possible",
                    "use 3, -1 for the brokers' default, or null",
                )
        return self
