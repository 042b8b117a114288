"""`mirror repair append`: append records that copies do not have.

It proves the copies, shows what can be done about each finding, asks, and lets
`proving.appending` write. It needs both clusters but no running service; one that is
running is fenced for a moment, and goes on by itself.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Annotated

import typer

from mirror.cli.flows import require_selected
from mirror.cli.options import (
    ConfigFile,
    DryRun,
    FlowName,
    TopicPattern,
    Yes,
    agreed,
    flow_of,
    read_config,
)
from mirror.cli.output import EXIT_FAILED, Form, Output, complain, document, table
from mirror.cli.rebuild import rebuild
from mirror.cli.verify import proof_of, proof_runner, record_at
from mirror.clusters.admin import topic_admin
from mirror.errors import FencedError
from mirror.proving.repairs import appending
from mirror.proving.repairs.remedies import Remedy, remedies
from mirror.proving.scope import Scope
from mirror.status.wording import some

if TYPE_CHECKING:
    from mirror.proving.repairs.appending import Repairing
    from mirror.proving.repairs.remedies import Advice

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Repair copies of a flow."
)
app.command("rebuild", short_help="Delete a copy, and copy it again.")(rebuild)

FORMAT_VERSION = 1
COLUMNS = ("KIND", "SOURCE", "TARGET", "COUNT", "REPAIR", "WHY")
_ATTEMPTS = 3
_MOST_SHOWN = 1_000


@app.callback()
def _group() -> None: ...


@app.command("append", short_help="Append records that copies lack.")
def append(
    flow: FlowName,
    *,
    config: ConfigFile,
    topic: TopicPattern = ".*",
    although_order: Annotated[
        bool,
        typer.Option(
            "--although-order",
            help="Also append records whose keys have later records in the copy.",
        ),
    ] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    output: Output = Form.TABLE,
) -> None:
    """Prove copies from their first record on, and append what is MISSING.

    The table says for each finding what is done about it, and why not. A record is
    appended at the end of its partition, so applications read it after records that
    follow it on the source. If the copy has a later record of its key, it is left out,
    since its old value would seem to be the newest; records without a key count as
    records of one key. --although-order appends them, too.

    All of it is one transaction: killed at any time and run again, each record is there
    once. A running service is fenced, restarts the flow by itself and goes on. The flow
    must be exactly_once, and no other flow may write the same copies. The exit code is
    1 if findings are left.

    \b
    Examples:
      mirror repair append A/B -c mirror.yaml --dry-run
      mirror repair append A/B --topic orders -c mirror.yaml
    """
    chosen = read_config(config)
    repaired = flow_of(chosen, flow)
    require_selected(chosen, repaired)
    if dry_run:
        appending.refuse(chosen, repaired, ())
    else:
        appending.begin(chosen, repaired)
    with proof_runner(chosen) as runner:
        whole = Scope(
            pattern=topic, since=topic_admin.EARLIEST, keys=False, remembered=False
        )
        proven = proof_of(chosen, repaired, runner, whole)
    with contextlib.closing(
        appending.prepare(chosen, repaired, proven, although_order=although_order)
    ) as repairing:
        advice = tuple(remedies(proven.findings, repairing.obstacles))
        if output is Form.TABLE:
            _show(advice)
        planned = sum(repairing.counts.values())
        if (
            planned
            and not dry_run
            and agreed(
                f"Append {some(planned, 'record')} to copies of {repaired.name}?",
                yes=yes,
            )
        ):
            _append(repairing)
            advice = tuple(remedies(proven.findings, repairing.obstacles))
        done = {} if dry_run else repairing.counts
    if output is Form.JSON:
        document(
            {
                "format_version": FORMAT_VERSION,
                "flow": repaired.name,
                "dry_run": dry_run,
                "appended": done,
                "findings": [_fields(each) for each in advice],
            }
        )
    for name, count in done.items():
        complain(f"appended {some(count, 'record')} to the copy of {name}")
    if not proven.findings:
        complain(f"{repaired.name}: nothing to repair")
    if any(each.remedy is not Remedy.APPEND for each in advice) or (dry_run and advice):
        raise typer.Exit(EXIT_FAILED)


def _append(repairing: Repairing) -> None:
    for attempt in range(_ATTEMPTS):
        try:
            appending.append(repairing)
        except FencedError:
            # The fenced service came back before we were done.
            if attempt == _ATTEMPTS - 1:
                raise
        else:
            return


def _show(advice: tuple[Advice, ...]) -> None:
    if not advice:
        return
    table(
        COLUMNS,
        (
            (
                each.finding.kind.value,
                record_at(
                    each.finding.topic, each.finding.partition, each.finding.source
                ),
                record_at(
                    each.finding.target_topic,
                    each.finding.partition,
                    each.finding.target,
                ),
                each.finding.count,
                each.remedy.value,
                each.why,
            )
            for each in advice[:_MOST_SHOWN]
        ),
    )
    if more := len(advice[_MOST_SHOWN:]):
        complain(f"{more:,} more findings; -o json has all")


def _fields(advice: Advice) -> dict[str, object]:
    return advice.finding.document() | {
        "repair": advice.remedy.value,
        "why": advice.why,
    }
