"""The flows that copy schemas, for the commands of `mirror schema`.

`copying` chooses them, `roles` and `order` tell which copy now, and `looked` compares
both sides of each, without changing anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror.cli.flows import chosen_flows
from mirror.cli.output import complain
from mirror.clusters.reach import Reach
from mirror.errors import ConfigError, MirrorError
from mirror.preflight.schema_writes import look

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from mirror.config.schema import FlowConfig, MirrorConfig
    from mirror.metadata.schemas import SchemasResult
    from mirror.recovery.precedence import RolesStanding

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


def order(standing: RolesStanding) -> list[FlowConfig]:
    """The flows that copy now, by precedence."""
    return [each for each in standing.flows if each.name not in standing.resting]


def roles(chosen: MirrorConfig, reach: Reach) -> RolesStanding:
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
                found[each.name] = look(chosen, each, order(standing), reach)
            except MirrorError as error:
                failures.append(f"flow {each.name}: {error}")
    return found, failures
