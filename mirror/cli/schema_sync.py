"""`mirror schema sync`: copies what the target's registry is missing, once.

It shows what would be written, in order, and asks; the service does the same at
intervals. `metadata.schemas` compares and writes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from mirror.cli.flows import Flows
from mirror.cli.options import ConfigFile, DryRun, Yes, agreed
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
from mirror.cli.schema_flows import CLIENT, copying, looked, order, roles
from mirror.clusters.reach import Reach
from mirror.clusters.registry.values import Subject
from mirror.config.values import near
from mirror.errors import ConfigError, MirrorError
from mirror.metadata import schemas
from mirror.preflight.schema_writes import ends

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mirror.metadata.schemas import SchemasResult

FORMAT_VERSION = 1
CHANGE_COLUMNS = ("FLOW", "CHANGE", "SUBJECT", "VERSION", "ID", "NOTE")
_EXISTS = "the subject exists: force puts it into mode IMPORT"


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
    dry_run: DryRun = False,
    yes: Yes = False,
    output: Output = Form.TABLE,
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
    planned = {name: schemas.narrowed(result, only) for name, result in found.items()}
    rows = [row for name, result in planned.items() for row in _changes(name, result)]
    if output is Form.JSON:
        document(
            {
                "format_version": FORMAT_VERSION,
                "changes": [
                    dict(zip(map(str.lower, CHANGE_COLUMNS), row, strict=True))
                    for row in rows
                ],
                "failures": failures,
            }
        )
    elif rows:
        table(CHANGE_COLUMNS, rows)
    problems = {name: result.problems for name, result in planned.items()}
    if rows and not dry_run and agreed("Write these?", yes=yes):
        to_do = [each for each in flows if any(row[0] == each.name for row in rows)]
        with Reach(chosen.clusters, client_id=CLIENT) as reach:
            standing = roles(chosen, reach)
            for each in to_do:
                if why := standing.resting.get(each.name):
                    failures.append(f"flow {why}")
                    continue
                try:
                    with ends(chosen, each, order(standing), reach) as between:
                        done = schemas.sync(between, only=only)
                except MirrorError as error:
                    failures.append(f"flow {each.name}: {error}")
                    continue
                complain(*(_done(each.name, done)))
                problems[each.name] = schemas.narrowed(done, only).problems
    failures += [f"flow {name}: {text}" for name, some in problems.items()
                 for text in some]  # fmt: skip
    complain(*failures)
    raise typer.Exit(EXIT_FAILED if failures else EXIT_OK)


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
