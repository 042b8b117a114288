"""The rights on topics that flows with schemas need; the registries have their own.

Main name: `ROWS`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror.metadata import schema_claims
from mirror.preflight.permissions.extent import beginning, named
from mirror.preflight.permissions.names import is_paired
from mirror.preflight.permissions.need import (
    FlowSide,
    Login,
    Need,
    Operation,
    ResourceKind,
    Who,
)

if TYPE_CHECKING:
    from mirror.config.schema import FlowConfig, MirrorConfig
    from mirror.preflight.permissions.extent import Extent

_ALL = schema_claims.topic_name("").partition(".")[0] + "."


def _copies_schemas(flow: FlowConfig, _config: MirrorConfig) -> bool:
    return flow.schemas != "off"


def _moves_registries(flow: FlowConfig, config: MirrorConfig) -> bool:
    return _copies_schemas(flow, config) and is_paired(flow, config)


def _every_source(_flow: FlowConfig, _config: MirrorConfig) -> tuple[Extent, ...]:
    return (beginning(_ALL),)


ROWS: tuple[Need, ...] = (
    Need(
        feature="schemas",
        side=FlowSide.TARGET,
        kind=ResourceKind.TOPIC,
        operations=(Operation.CREATE, Operation.WRITE),
        names=lambda flow, _: named(schema_claims.topic_name(flow.source)),
        called=f"`{schema_claims.topic_name('<source>')}`",
        when=_copies_schemas,
        setting="`schemas`",
    ),
    Need(
        feature="schemas",
        side=FlowSide.TARGET,
        kind=ResourceKind.TOPIC,
        operations=(Operation.READ,),
        names=_every_source,
        called=f"`{_ALL}` as a prefix",
        when=_copies_schemas,
        setting="`schemas`",
    ),
    *(
        Need(
            feature="schemas that records wait for",
            side=FlowSide.TARGET,
            kind=ResourceKind.TOPIC,
            operations=operations,
            names=which,
            called=called,
            when=lambda flow, _: flow.requires_schemas,
            setting="`schemas: require`",
            login=Login.TASKS,
        )
        for operations, which, called in (
            (
                (Operation.CREATE, Operation.WRITE),
                lambda flow, _: named(schema_claims.topic_name(flow.source)),
                f"`{schema_claims.topic_name('<source>')}`",
            ),
            ((Operation.READ,), _every_source, f"`{_ALL}` as a prefix"),
        )
    ),
    *(
        Need(
            feature="step 2 and `mirror schema close`: former modes",
            side=FlowSide.SOURCE,
            kind=ResourceKind.TOPIC,
            operations=operations,
            names=which,
            called=called,
            when=_moves_registries,
            setting="`schemas`",
            who=Who.RECOVERY,
        )
        for operations, which, called in (
            (
                (Operation.CREATE, Operation.WRITE),
                lambda flow, _: named(schema_claims.topic_name(flow.target)),
                f"`{schema_claims.topic_name('<target>')}`",
            ),
            ((Operation.READ,), _every_source, f"`{_ALL}` as a prefix"),
        )
    ),
)
