"""`mirror schema`: the schemas of both registries, read from the registries themselves.

It works without a service. `list` and `trace` change nothing; `sync` copies what
is missing; `close` and `open` are the registries' side of a switch.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mirror.checks.schema_writes import planned_schemas
from mirror.cli.options import (
    Change,
    ConfigFile,
    Flows,
    chosen_flows,
    family,
    noted,
    read_config,
)
from mirror.cli.output import NOTHING, Form, Output, complain, document, end, table
from mirror.cli.spread import spread
from mirror.clusters.reach import Reach
from mirror.config import schema_settings
from mirror.config.values import near
from mirror.errors import ConfigError, MirrorError
from mirror.schemas import modes
from mirror.schemas.claims import SchemaClaims
from mirror.schemas.comparing import RegistryPair, copies_deletes
from mirror.schemas.ids import trace
from mirror.schemas.registry.registry import Registry, RequestPace, open_registries
from mirror.schemas.registry.values import Subject
from mirror.schemas.sync import sync

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from mirror.config.schema import FlowConfig, MirrorConfig
    from mirror.pairs.flow_roles import FlowRoles
    from mirror.schemas.ids import SchemaPlace
    from mirror.schemas.modes import ModeChange
    from mirror.schemas.rules import SchemasResult, SubjectPlan

# ---- `mirror schema sync`: copies what the target's registry is missing, once ----


CHANGE_COLUMNS = ("FLOW", "CHANGE", "SUBJECT", "VERSION", "ID", "NOTE")
_EXISTS = "the subject exists: force puts it into mode IMPORT"


@spread
def sync_schemas(
    config: ConfigFile,
    *,
    subjects: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[SUBJECT]...",
            help="Only these subjects, as `list` shows them, and what they refer to.",
        ),
    ] = None,
    flow: Flows = None,
    change: Change,
) -> None:
    """Copy what the target's registry is missing, once.

    The service does this at intervals where schemas is on. Shows what would be written,
    in this order, and asks. Each version keeps its text; with schemas_ids: keep also
    its id and number, and for that its subject is put into mode IMPORT, which leaves it
    readable and keeps others from registering there. Exit status 1 if a subject could
    not be copied.

    \b
    Examples:
      mirror schema sync -c mirror.yaml --dry-run
      mirror schema sync orders-value -c mirror.yaml --flow A/B --yes
    """
    chosen, flows = copying(config, flow)
    found, failures = looked(chosen, flows)
    only = _known(subjects or [], found)
    to_write = {name: result.narrowed(only) for name, result in found.items()}
    rows = [row for name, result in to_write.items() for row in _changes(name, result)]
    if change.output is Form.JSON:
        names = [each.lower() for each in CHANGE_COLUMNS]
        changes = [dict(zip(names, row, strict=True)) for row in rows]
        document({"changes": changes, "failures": failures})
    elif rows:
        table(CHANGE_COLUMNS, rows)
    problems = {name: result.problems for name, result in to_write.items()}
    if rows and change.agreed("Write these?"):
        to_do = [each for each in flows if any(row[0] == each.name for row in rows)]
        with Reach(chosen.clusters, client_id=CLIENT) as reach:
            standing = roles(chosen, reach)
            for each in to_do:
                if why := standing.resting.get(each.name):
                    failures.append(f"flow {why}")
                    continue
                with noted(failures, each, MirrorError):
                    registries = RegistryPair.open(
                        each,
                        chosen.clusters,
                        reach(each.target),
                        deletes=copies_deletes(each, order(standing)),
                    )
                    with closing(registries):
                        done = sync(registries, only=only)
                    complain(*(_done(each.name, done)))
                    problems[each.name] = done.narrowed(only).problems
    failures += [f"flow {name}: {text}" for name, some in problems.items()
                 for text in some]  # fmt: skip
    end(failures)


def _known(names: Sequence[str], found: dict[str, SchemasResult]) -> set[Subject]:
    known = {str(each.subject) for result in found.values() for each in result.subjects}
    if found and (unknown := [name for name in names if name not in known]):
        raise ConfigError(
            [
                f'no flow copies a subject "{name}"{near(name, known)}'
                for name in unknown
            ]
        )
    return {Subject.parse(name) for name in names}


def _changes(flow: str, result: SchemasResult) -> Iterator[tuple[object, ...]]:
    for each in result.writes:
        version = each.version
        what = "delete" if each.delete else "register"
        note = _EXISTS if each.force and not each.delete else ""
        yield (
            *(flow, what, str(version.full_subject)),
            *(version.version, version.id, note),
        )
    for level in result.levels:
        note = f"{level.then or 'remove'} (now {level.now or 'not set'})"
        yield flow, "set level", str(level.subject) or NOTHING, NOTHING, NOTHING, note


def _done(flow: str, result: SchemasResult) -> Iterator[str]:
    for each in result.writes:
        version = each.version
        what = "deleted" if each.delete else "registered"
        yield (
            f"flow {flow}: {what} {version.full_subject} version {version.version}, id "
            f"{each.shown_id}"
        )
    for level in result.levels:
        yield f"flow {flow}: set the level of {level.subject or 'the registry'}"


LIST_COLUMNS = ("FLOW", "SUBJECT", "VERSIONS", "IDS", "STATE", "REASON")
TRACE_COLUMNS = ("CLUSTER", "CONTEXT", "SUBJECT", "VERSION", "DELETED", "ROLE")


def _context(text: str) -> str:
    try:
        return schema_settings.context(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


app = family("Show the schemas of both registries; copy what is missing.")


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
        told = [
            {"name": name, "subjects": list(map(_subject, result.subjects))}
            for name, result in found.items()
        ]
        document({"flows": told, "failures": failures})
    elif found:
        table(
            LIST_COLUMNS,
            (
                (
                    *(name, each.subject, f"{each.there}/{each.versions}"),
                    *(_ids(each), each.state, each.reason),
                )
                for name, result in found.items()
                for each in result.subjects
            ),
        )
    wrong = any(result.problems for result in found.values())
    end(failures, well=not wrong)


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
    traced = {}
    failures: list[str] = []
    with Reach(chosen.clusters, client_id=CLIENT) as reach:
        for each in flows:
            ends = chosen.clusters[each.source], chosen.clusters[each.target]
            with (
                noted(failures, each, MirrorError),
                open_registries(each, *ends) as both,
            ):
                traced[each.name] = trace(both, each, context, number, reach=reach)
    if output is Form.JSON:
        told = [{"name": name, **found.document()} for name, found in traced.items()]
        document({"id": number, "flows": told, "failures": failures})
    else:
        for name, found in traced.items():
            table(TRACE_COLUMNS, map(_place, found.places))
            complain(f"flow {name}: {found.summary}")
            for alias, text in found.texts.items():
                typer.echo(f"\n{alias}:\n{text}")
    end(failures, well=all(found.same for found in traced.values()))


app.command("sync")(sync_schemas)


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
    version = each.version
    deleted = "yes" if version.deleted else "no"
    return (
        *(each.cluster, version.context, version.subject, str(version.version)),
        *(deleted, each.role),
    )


# ---- the flows that copy schemas, for the commands of `mirror schema` ----


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


def order(standing: FlowRoles) -> list[FlowConfig]:
    """The flows that copy now, by precedence."""
    return [each for each in standing.flows if each.name not in standing.resting]


def roles(chosen: MirrorConfig, reach: Reach) -> FlowRoles:
    """Which flows rest, and in which order the others come."""
    from mirror.pairs.flow_roles import flow_roles

    return flow_roles(chosen, reach)


def looked(
    chosen: MirrorConfig, flows: Sequence[FlowConfig]
) -> tuple[dict[str, SchemasResult], list[str]]:
    """What each flow would do, and what failed; without those that rest."""
    found: dict[str, SchemasResult] = {}
    failures: list[str] = []
    with Reach(chosen.clusters, client_id=CLIENT) as reach:
        standing = roles(chosen, reach)
        complain(*standing.notes)
        for each in flows:
            if why := standing.resting.get(each.name):
                complain(f"flow {why}")
                continue
            with noted(failures, each, MirrorError):
                found[each.name] = planned_schemas(chosen, each, order(standing), reach)
    return found, failures


# ---- `close` and `open`: the registries' side of a switch ----


COLUMNS = ("CLUSTER", "SUBJECT", "NOW", "THEN")

ClusterAlias = Annotated[
    str, typer.Argument(metavar="CLUSTER", help="The alias of the registry's cluster.")
]


@app.command("close")
@spread
def close_cluster(cluster: ClusterAlias, *, config: ConfigFile, change: Change) -> None:
    """Keep applications from registering in a cluster's registry.

    The subjects that flows copy from there become READONLY. Where a flow copies every
    subject, their contexts do, which also keeps new subjects out. Everything stays
    readable. What the modes were is noted in mirror-schemas.<other cluster>.internal on
    the cluster, and `mirror schema open` gives them back. A switch does this by itself.
    Exit status 1 if the registry does not answer, has no modes, or refuses one.

    \b
    Examples:
      mirror schema close A -c mirror.yaml --dry-run
      mirror schema close A -c mirror.yaml --yes
    """
    _change(cluster, config, change, opens=False)


@app.command("open")
@spread
def open_cluster(cluster: ClusterAlias, *, config: ConfigFile, change: Change) -> None:
    """Let applications register in a cluster's registry again.

    Gives every subject and context the mode that it had before a flow put it into
    IMPORT, or before `mirror schema close`; also where mirror died in between. A mode
    that someone has changed since stays. It needs only this cluster and its registry,
    so it works while the other one is gone. A flow that still copies into the cluster
    puts a subject back into IMPORT when it writes to it. A switch and a failover do
    this by themselves. Exit status 1 if the registry does not answer or refuses.

    \b
    Examples:
      mirror schema open B -c mirror.yaml --dry-run
      mirror schema open B -c mirror.yaml --yes -o json
    """
    _change(cluster, config, change, opens=True)


def _change(alias: str, file: Path, change: Change, *, opens: bool) -> None:
    config = read_config(file)
    others = _others(config, alias, opens=opens)
    slowest = min(flow.schemas_requests_per_second for flow in others.values())
    refused: list[str] = []
    shown: list[ModeChange] = []
    with (
        Reach(config.clusters, client_id="mirror.schema") as reach,
        Registry(config.clusters[alias], pace=RequestPace(slowest)) as registry,
    ):
        planned = []
        for other, flow in others.items():
            claims = SchemaClaims(
                reach(alias), other, replication_factor=flow.replication_factor
            )
            claims.refresh()
            changes = (
                modes.to_open(registry, claims)
                if opens
                else modes.to_close(registry, *modes.selected(registry, flow))
            )
            new = [each for each in changes if opens or each not in shown]
            planned.append((claims, new))
            shown += [each for each in new if each.now is not each.then]
        rows = [_row(alias, each) for each in shown]
        if change.output is Form.JSON:
            names = [each.lower() for each in COLUMNS]
            document({"changes": [dict(zip(names, row, strict=True)) for row in rows]})
        elif rows:
            table(COLUMNS, rows)
        if rows and change.agreed("Set these modes?"):
            for claims, changes in planned:
                refused += modes.apply(registry, claims, changes, opens=opens)
            word = "open" if opens else "closed"
            complain(f"{alias}: {len(rows) - len(refused)} of {len(rows)} {word} now")
    end(refused)


def _others(config: MirrorConfig, alias: str, *, opens: bool) -> dict[str, FlowConfig]:
    """The clusters at the other ends of flows that copy schemas, each with one."""
    if alias not in config.clusters:
        hint = near(alias, config.clusters)
        raise ConfigError([f'there is no cluster "{alias}" in the configuration{hint}'])
    found: dict[str, FlowConfig] = {}
    for flow in config.enabled_flows:
        if flow.schemas != "off" and alias == flow.source:
            found[flow.target] = flow
        elif flow.schemas != "off" and alias == flow.target and opens:
            found[flow.source] = flow
    if not found:
        where = "from or to" if opens else "from"
        raise ConfigError(
            [f"no enabled flow copies schemas {where} {alias}; set schemas: copy"]
        )
    return found


def _row(alias: str, change: ModeChange) -> tuple[str, ...]:
    return (
        alias,
        str(change.subject) or "(all)",
        *(mode or NOTHING for mode in (change.now, change.then)),
    )
