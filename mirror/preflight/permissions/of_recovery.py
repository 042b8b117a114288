"""The rights that a switch or failover needs beside the service's, step by step.

Main name: `ROWS`. Each cluster of a pair is the source of one flow and the target of
the other, so both get all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror.metadata import acl_notes
from mirror.preflight.permissions import names
from mirror.preflight.permissions.extent import named
from mirror.preflight.permissions.need import (
    FlowSide,
    Need,
    Operation,
    ResourceKind,
    Who,
)
from mirror.recovery import journal, pauses

if TYPE_CHECKING:
    from mirror.config.schema import FlowConfig, MirrorConfig
    from mirror.preflight.permissions.need import Condition, Names

_READ, _WRITE, _CREATE = Operation.READ, Operation.WRITE, Operation.CREATE
_BY_ACLS = "`fence: acl`"


def _both(
    feature: str,
    kind: ResourceKind,
    operations: tuple[Operation, ...],
    which: Names,
    called: str,
    *,
    when: Condition = names.is_paired,
    setting: str = "`recovery`",
) -> tuple[Need, ...]:
    """A row for either side."""
    return tuple(
        Need(
            feature=feature,
            side=side,
            kind=kind,
            operations=operations,
            names=which,
            called=called,
            when=when,
            setting=setting,
            who=Who.RECOVERY,
        )
        for side in FlowSide
    )


def _restores(flow: FlowConfig, config: MirrorConfig) -> bool:
    keeps_names = flow.replication_policy.target_topic("topic") == "topic"
    return names.is_paired(flow, config) and keeps_names


ROWS: tuple[Need, ...] = (
    *_both(
        "every step: the journal",
        ResourceKind.TRANSACTIONAL_ID,
        (_WRITE,),
        names.pairs,
        "`mirror.pair.<a>.<b>`",
    ),
    *_both(
        "every step: the journal",
        ResourceKind.TOPIC,
        (_CREATE, _READ, _WRITE),
        lambda *_: named(journal.TOPIC),
        f"`{journal.TOPIC}`",
    ),
    *_both(
        "steps 3 and 7: fences and rights",
        ResourceKind.CLUSTER,
        (Operation.ALTER,),
        names.cluster,
        "",
        when=names.is_fenced,
        setting=_BY_ACLS,
    ),
    *_both(
        "steps 3 and 7: fences and rights",
        ResourceKind.TOPIC,
        (_CREATE, _READ, _WRITE),
        lambda *_: named(acl_notes.TOPIC),
        f"`{acl_notes.TOPIC}`",
        when=names.is_fenced,
        setting=_BY_ACLS,
    ),
    *(
        Need(
            feature="steps 1 and 6: positions of groups",
            side=FlowSide.TARGET,
            kind=kind,
            operations=(_READ,),
            names=which,
            called=called,
            when=names.is_paired,
            setting="`recovery`",
            who=Who.RECOVERY,
        )
        for kind, which, called in (
            (ResourceKind.GROUP, names.groups, "mirrored groups"),
            (ResourceKind.TOPIC, names.copies, "the copies"),
        )
    ),
    *(
        Need(
            feature="`mirror failback --restore`",
            side=FlowSide.TARGET,
            kind=ResourceKind.TOPIC,
            operations=operations,
            names=which,
            called=called,
            when=_restores,
            setting="`recovery` with `policy: identity`",
            who=Who.RECOVERY,
        )
        for operations, which, called in (
            ((Operation.DELETE,), names.copies, "the copies"),
            (
                (_CREATE, _WRITE),
                lambda flow, _: named(pauses.topic_name(flow.source)),
                f"`{pauses.topic_name('<source>')}`",
            ),
        )
    ),
)
