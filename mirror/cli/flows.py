"""Selects flows of a configuration on the command line, the same for all commands.

`Flows` is the option, `chosen_flows` reads the configuration and applies it;
`require_selected` refuses a configuration that selects less than the service does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from mirror.cli.options import read_config
from mirror.cli.output import complain
from mirror.config.section_names import flow_ends
from mirror.config.values import near
from mirror.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from mirror.config.schema import FlowConfig, MirrorConfig

Flows = Annotated[
    list[str] | None,
    typer.Option(
        "--flow",
        "-f",
        metavar="A->B",
        help="Only this flow, A->B or A/B. Repeatable.",
    ),
]


def chosen_flows(
    path: Path, wanted: Sequence[str] | None
) -> tuple[MirrorConfig, list[FlowConfig]]:
    """The configuration, and the enabled flows selected by `--flow`."""
    chosen = read_config(path)
    flows = [flow for flow in chosen.flows.values() if flow.enabled]
    if not wanted:
        return chosen, flows
    known = {flow.name: flow for flow in flows}
    names = ["->".join(flow_ends(each) or (each,)) for each in wanted]
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ConfigError(
            [
                f'--flow: there is no enabled flow "{name}"{near(name, known)}'
                for name in unknown
            ]
        )
    return chosen, [flow for flow in flows if flow.name in names]


def require_selected(config: MirrorConfig, *flows: FlowConfig) -> None:
    """Compare these flows with what their services have noted.

    Raises:
        MirrorError: one selects less, or a cluster does not answer.
    """
    from mirror.clusters.reach import Reach
    from mirror.pairs import selection

    with Reach(config.clusters, client_id="mirror.selection") as reach:
        for each in flows:
            ends = (reach(each.source), reach(each.target))
            complain(*selection.require(config, each.name, None, ends))
