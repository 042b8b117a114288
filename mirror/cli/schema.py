"""`mirror schema`: the schemas of both registries, read from the registries themselves.

It works without a service. `list` and `trace`, which are here, change nothing;
`schema_sync` has `sync`, and `schema_modes` has `open` and `close`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from mirror.cli import schema_modes, schema_sync
from mirror.cli.flows import Flows
from mirror.cli.options import ConfigFile
from mirror.cli.output import (
    EXIT_FAILED,
    EXIT_OK,
    NOTHING,
    Form,
    Output,
    complain,
    document,
    table,
)
from mirror.cli.schema_flows import CLIENT, copying, looked
from mirror.clusters.reach import Reach
from mirror.config import schema_sync as settings
from mirror.errors import MirrorError
from mirror.metadata import schema_trace
from mirror.preflight.schema_writes import registries

if TYPE_CHECKING:
    from mirror.metadata.schema_rules import SubjectPlan
    from mirror.metadata.schema_trace import SchemaPlace

FORMAT_VERSION = 1
LIST_COLUMNS = ("FLOW", "SUBJECT", "VERSIONS", "IDS", "STATE", "REASON")
TRACE_COLUMNS = ("CLUSTER", "CONTEXT", "SUBJECT", "VERSION", "DELETED", "ROLE")


def _context(text: str) -> str:
    try:
        return settings.context(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Show the schemas of both registries; copy what is missing.",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 88},
)
app.command("close")(schema_modes.close_cluster)
app.command("open")(schema_modes.open_cluster)


@app.command("list")
def list_schemas(
    config: ConfigFile, *, flow: Flows = None, output: Output = Form.TABLE
) -> None:
    """Show every subject that a flow copies, and how far its copy is.

    VERSIONS are those that the target's registry has, of those that it should have.
    STATE is SYNCED, PENDING (something is to be written), CONFLICT (something of others
    is in the way), UNSUPPORTED (the target's registry cannot take it) or REFUSED. Ways
    out of a CONFLICT: put the copies into a context of their own with schemas_context,
    leave the subject out with schemas_exclude, remove what is in the way, or take the
    target's ids with schemas_ids: translate. IDS are the source's. Changes nothing.
    Exit status 1 if a subject is in one of the last three states, or a registry does
    not answer.

    \b
    Examples:
      mirror schema list -c mirror.yaml
      mirror schema list -c mirror.yaml --flow A/B -o json | jq '.flows[].subjects[]'
    """
    chosen, flows = copying(config, flow)
    found, failures = looked(chosen, flows)
    if output is Form.JSON:
        document(
            {
                "format_version": FORMAT_VERSION,
                "flows": [
                    {
                        "name": name,
                        "subjects": [_subject(each) for each in result.subjects],
                    }
                    for name, result in found.items()
                ],
                "failures": failures,
            }
        )
    elif found:
        table(
            LIST_COLUMNS,
            (
                (
                    *(name, each.subject, f"{each.there}/{each.versions}"),
                    *(_ids(each), each.state, each.reason or NOTHING),
                )
                for name, result in found.items()
                for each in result.subjects
            ),
        )
    wrong = any(result.problems for result in found.values())
    complain(*failures)
    raise typer.Exit(EXIT_FAILED if failures or wrong else EXIT_OK)


@app.command("trace")
def trace_schema(
    config: ConfigFile,
    *,
    number: Annotated[
        int, typer.Option("--id", min=0, help="The id, as records carry it.")
    ],
    context: Annotated[
        str,
        typer.Option(
            callback=_context,
            help="The context on the source; the default one if left out.",
        ),
    ] = "",
    flow: Flows = None,
    output: Output = Form.TABLE,
) -> None:
    """Show what an id means on both sides of a flow.

    Lists the subjects and versions that have the id in each registry, what refers to
    them, and the topics whose records carry it if subjects are named after topics
    (TOPIC-key, TOPIC-value); then both texts. Changes nothing. Exit status 1 if the
    texts differ, the target does not have the id, or a registry does not answer.

    \b
    Examples:
      mirror schema trace -c mirror.yaml --flow A/B --id 41
      mirror schema trace -c mirror.yaml --id 41 -o json | jq '.flows[].same'
    """
    chosen, flows = copying(config, flow)
    traced, failures = {}, []
    with Reach(chosen.clusters, client_id=CLIENT) as reach:
        for each in flows:
            try:
                with registries(chosen, each) as both:
                    traced[each.name] = schema_trace.trace(
                        both, each, context, number, reach=reach
                    )
            except MirrorError as error:
                failures.append(f"flow {each.name}: {error}")
    if output is Form.JSON:
        flows_shown = [
            {"name": name, **schema_trace.to_json(found)}
            for name, found in traced.items()
        ]
        document(
            {
                "format_version": FORMAT_VERSION,
                "id": number,
                "flows": flows_shown,
                "failures": failures,
            }
        )
    else:
        for name, found in traced.items():
            table(TRACE_COLUMNS, map(_place, found.places))
            complain(f"flow {name}: {found.said}")
            for alias, text in found.texts.items():
                typer.echo(f"\n{alias}:\n{text}")
    complain(*failures)
    differs = any(not found.same for found in traced.values())
    raise typer.Exit(EXIT_FAILED if failures or differs else EXIT_OK)


app.command("sync")(schema_sync.sync_schemas)


def _ids(each: SubjectPlan) -> str:
    if each.first_id == each.last_id:
        return str(each.first_id)
    return f"{each.first_id}..{each.last_id}"


def _subject(each: SubjectPlan) -> dict[str, Any]:
    return {
        "context": each.subject.context,
        "subject": each.subject.name,
        "versions": each.versions,
        "there": each.there,
        "first_id": each.first_id,
        "last_id": each.last_id,
        "state": each.state,
        "reason": each.reason,
    }


def _place(each: SchemaPlace) -> tuple[str, ...]:
    return (
        each.cluster,
        each.subject.context or NOTHING,
        each.subject.name,
        str(each.version),
        "yes" if each.deleted else "no",
        each.role,
    )
