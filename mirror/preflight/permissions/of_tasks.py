"""The rights of the user that a flow's tasks log in as.

Main name: `ROWS`. Without `source_login` and `target_login` it is the cluster's own
user, who needs these beside the others. Some stand in `of_service` as well: the driver
ends what tasks left open. Commands read records as the own user.
"""

from __future__ import annotations

from mirror.offsets import progress, runs
from mirror.preflight.permissions import names
from mirror.preflight.permissions.extent import beginning, named
from mirror.preflight.permissions.need import (
    FlowSide,
    Login,
    Need,
    Operation,
    ResourceKind,
    Who,
)
from mirror.recovery import losses

_READ, _WRITE = Operation.READ, Operation.WRITE

ROWS: tuple[Need, ...] = (
    Need(
        feature="records",
        side=FlowSide.SOURCE,
        kind=ResourceKind.TOPIC,
        operations=(_READ,),
        names=names.copied,
        called="mirrored topics",
        login=Login.TASKS,
    ),
    Need(
        feature="exactly once",
        side=FlowSide.TARGET,
        kind=ResourceKind.TRANSACTIONAL_ID,
        operations=(_WRITE,),
        names=lambda flow, _: (beginning(names.transactional_ids(flow)),),
        called="`mirror.<source>-><target>.` as a prefix",
        when=lambda flow, _: flow.exactly_once,
        setting="`exactly_once`",
        login=Login.TASKS,
    ),
    Need(
        feature="transactions that brokers left open",
        side=FlowSide.TARGET,
        kind=ResourceKind.TOPIC,
        operations=(_READ,),
        names=names.copies,
        called="the copies",
        when=lambda flow, _: flow.exactly_once,
        setting="`exactly_once`",
        login=Login.TASKS,
    ),
    *(
        Need(
            feature=feature,
            side=FlowSide.TARGET,
            kind=ResourceKind.TOPIC,
            operations=operations,
            names=which,
            called=called,
            login=Login.TASKS,
        )
        for feature, operations, which, called in (
            (
                "records, limits of copies",
                (_WRITE, Operation.DESCRIBE_CONFIGS),
                names.copies,
                "the copies",
            ),
            (
                "progress",
                (_READ, _WRITE),
                lambda flow, _: named(progress.topic_name(flow.source)),
                f"`{progress.topic_name('<source>')}`",
            ),
            (
                "offset map",
                (_READ, _WRITE),
                lambda flow, _: named(runs.topic_name(flow.source, flow.separator)),
                f"`{runs.topic_name('<source>', '.')}`",
            ),
            (
                "loss ledger",
                (_WRITE,),
                lambda flow, _: named(losses.topic_name(flow.source)),
                f"`{losses.topic_name('<source>')}`",
            ),
        )
    ),
    Need(
        feature="dead letters",
        side=FlowSide.TARGET,
        kind=ResourceKind.TOPIC,
        operations=(_WRITE,),
        names=lambda flow, _: named(flow.dead_letter_topic or ""),
        called="`dead_letter_topic`",
        when=lambda flow, _: flow.dead_letter_topic is not None,
        setting="`dead_letter_topic`",
        login=Login.TASKS,
    ),
    Need(
        feature="proofs in the service",
        side=FlowSide.TARGET,
        kind=ResourceKind.TOPIC,
        operations=(_READ,),
        names=names.copies,
        called="the copies",
        when=lambda flow, _: flow.verify != "off",
        setting="`verify`",
        login=Login.TASKS,
    ),
    Need(
        feature="mirror verify",
        side=FlowSide.TARGET,
        kind=ResourceKind.TOPIC,
        operations=(_READ,),
        names=names.copies,
        called="the copies",
        who=Who.COMMANDS,
        login=Login.TASKS,
    ),
    *(
        Need(
            feature=feature,
            side=FlowSide.SOURCE,
            kind=ResourceKind.TOPIC,
            operations=(_READ,),
            names=names.copied,
            called="mirrored topics",
            when=lambda flow, _: flow.source_login is not None,
            setting="`source_login`",
            who=who,
        )
        for who, feature in (
            (Who.COMMANDS, "mirror trace, repair, conflicts"),
            (Who.RECOVERY, "mirror tail, failback"),
        )
    ),
)
