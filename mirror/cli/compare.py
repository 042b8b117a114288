"""`mirror compare`: where two clusters differ, and what explains it.

It asks the clusters themselves and changes nothing; `metadata.comparing` has the rules.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from mirror.cli.options import ConfigFile, know_clusters, read_config
from mirror.cli.output import (
    EXIT_FAILED,
    NOTHING,
    Form,
    Output,
    complain,
    document,
    table,
)
from mirror.clusters.reach import Reach
from mirror.errors import ConfigError
from mirror.topics import comparing
from mirror.topics.sides import Live

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mirror.config.schema import FlowConfig, MirrorConfig
    from mirror.topics.comparing import Difference

FORMAT_VERSION = 1


def compare(
    a: Annotated[str, typer.Argument(metavar="A", help="Alias of a cluster.")],
    b: Annotated[str, typer.Argument(metavar="B", help="Alias of another one.")],
    config: ConfigFile,
    *,
    show_all: Annotated[
        bool,
        typer.Option("--all", help="Also differences that the configuration explains."),
    ] = False,
    output: Output = Form.TABLE,
) -> None:
    """Compare two clusters: topics, configs, ACLs, groups, quotas, SCRAM users, and
    the schemas that a flow between them copies.

    Topics belong together as the flows between the two clusters say; others if they
    have the same name. Shows what no setting explains; such a difference would surprise
    applications that move from one cluster to the other. Of the two flows of a pair the
    one out of the active cluster counts. What mirror may not see is
    listed, and not compared. Changes nothing. Exit status 1 if a difference is not
    expected.

    \b
    Examples:
      mirror compare A B -c mirror.yaml
      mirror compare A B -c mirror.yaml --all
      mirror compare A B -c mirror.yaml -o json | jq '.differences[] | .name'
    """
    chosen = read_config(config)
    know_clusters(chosen, a, b)
    if a == b:
        raise ConfigError([f"{a} and {b} are one cluster; name two"])
    from mirror.pairs.flow_roles import flow_roles

    with Reach(chosen.clusters, client_id="mirror.compare") as reach:
        roles = flow_roles(chosen, reach)
        complain(*roles.notes)
        flows = roles.applying
        one, other = (
            comparing.take_portrait(reach(a)),
            comparing.take_portrait(reach(b)),
        )
        found = comparing.compare(
            comparing.complete_portrait(
                one, reach(a), comparing.partners(other, a, flows)
            ),
            comparing.complete_portrait(
                other, reach(b), comparing.partners(one, b, flows)
            ),
            flows,
            lambda alias: Live(reach(alias)),
            resting=roles.resting,
        )
        going = [flow for flow in flows if flow.name not in roles.resting]
        found += _of_schemas(chosen, going, (a, b), reach)
    shown = [each for each in found if show_all or not each.expected]
    if output is Form.JSON:
        document(
            {
                "format_version": FORMAT_VERSION,
                "a": a,
                "b": b,
                "differences": [asdict(each) for each in shown],
            }
        )
    else:
        table(("WHAT", "NAME", a, b, "EXPECTED"), map(_row, shown))
        if explained := len(found) - len(shown):
            complain(
                f"{explained} differences are explained by the configuration; "
                "--all shows them"
            )
    if any(each.expected is False for each in found):
        raise typer.Exit(EXIT_FAILED)


def _of_schemas(
    chosen: MirrorConfig,
    flows: Sequence[FlowConfig],
    ends: tuple[str, str],
    reach: Reach,
) -> Iterator[Difference]:
    """Of these flows, those between the two clusters that copy schemas."""
    from mirror.checks.schema_writes import planned_schemas
    from mirror.topics.comparing import of_schemas

    for flow in flows:
        if {flow.source, flow.target} == set(ends) and flow.schemas != "off":
            found = of_schemas(planned_schemas(chosen, flow, flows, reach))
            yield from (
                each if flow.source == ends[0] else each.turned for each in found
            )


def _row(each: Difference) -> tuple[str, ...]:
    word = {True: "yes", False: "no", None: "not seen"}[each.expected]
    why = f": {each.reason}" if each.reason else ""
    return each.what, each.name, each.a or NOTHING, each.b or NOTHING, word + why
