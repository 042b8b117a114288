"""The flows that copy schemas, for the commands of `mirror schema`.

`copying` chooses them; `registries` and `ends` open what a flow is between; `looked`
compares both sides of each, without changing anything.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from mirror.cli.flows import chosen_flows
from mirror.cli.output import complain
from mirror.clusters.reach import Reach
from mirror.clusters.registry.pace import Pace
from mirror.clusters.registry.registry import Registry
from mirror.errors import ConfigError, MirrorError
from mirror.metadata import schemas
from mirror.metadata.schema_claims import SchemaClaims
from mirror.metadata.schema_ends import Ends

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from mirror.config.schema import FlowConfig, MirrorConfig
    from mirror.metadata.schemas import SchemasResult
    from mirror.recovery.precedence import Standing

CLIENT = "mirror.schema"


def copying(
    config: Path, wanted: Sequence[str] | None
) -> tuple[MirrorConfig, list[FlowConfig]]:
    """Those that `--flow` names, or all.

    Raises:
        ConfigError: one copies no schemas, or none does.
    """
    chosen, flows = chosen_flows(config, wanted)
    found = [each for each in flows if each.schemas != "off"]
    without = [each.name for each in flows if each.schemas == "off"]
    if wanted and without:
        raise ConfigError(
            [f"--flow: {name} copies no schemas; set schemas: copy" for name in without]
        )
    if not found:
        raise ConfigError(["no enabled flow copies schemas; set schemas: copy"])
    return chosen, found


@contextlib.contextmanager
def registries(
    chosen: MirrorConfig, flow: FlowConfig
) -> Iterator[tuple[Registry, Registry]]:
    """The source's and the target's."""
    rate = flow.schemas_requests_per_second
    with (
        Registry(chosen.clusters[flow.source], pace=Pace(rate)) as source,
        Registry(chosen.clusters[flow.target], pace=Pace(rate)) as target,
    ):
        yield source, target


@contextlib.contextmanager
def ends(
    chosen: MirrorConfig, flow: FlowConfig, reach: Reach, standing: Standing
) -> Iterator[Ends]:
    """What one flow is copied between."""
    order = [each for each in standing.flows if each.name not in standing.resting]
    with registries(chosen, flow) as (source, target):
        yield Ends(
            flow=flow,
            source=source,
            target=target,
            claims=SchemaClaims(
                reach(flow.target),
                flow.source,
                replication_factor=flow.replication_factor,
            ),
            deletes=schemas.copies_deletes(flow, order),
        )


def roles(chosen: MirrorConfig, reach: Reach) -> Standing:
    """Which flows rest, and in which order the others come."""
    from mirror.recovery import precedence

    return precedence.standing(chosen, reach)


def looked(
    chosen: MirrorConfig, flows: Sequence[FlowConfig]
) -> tuple[dict[str, SchemasResult], list[str]]:
    """What each flow would do, and what failed; without those that rest."""
    found: dict[str, SchemasResult] = {}
    failures = []
    with Reach(chosen.clusters, client_id=CLIENT) as reach:
        standing = roles(chosen, reach)
        complain(*standing.notes)
        for each in flows:
            if why := standing.resting.get(each.name):
                complain(f"flow {why}")
                continue
            try:
                with ends(chosen, each, reach, standing) as between:
                    found[each.name] = schemas.look(between)
            except MirrorError as error:
                failures.append(f"flow {each.name}: {error}")
    return found, failures
