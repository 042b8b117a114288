"""`mirror repair`: append records that copies do not have, or copy all again.

`append` proves the copies, shows what can be done about each finding, asks, and lets
`proofs.repair_appending` write. It needs both clusters but no running service; one that
is running is fenced for a moment, and goes on by itself.
"""

from __future__ import annotations

from dataclasses import asdict
import re
from typing import TYPE_CHECKING, Annotated

from rich.console import Console
from rich.progress import TextColumn
import typer

from mirror.cli.options import (
    Change,
    ConfigFile,
    FlowName,
    TopicPattern,
    despite_fencing,
    family,
    flow_of,
    read_config,
    require_selected,
)
from mirror.cli.output import Form, complain, document, end, moment, table
from mirror.cli.proof import found_where, progress, proof_of, proof_runner
from mirror.cli.spread import spread
from mirror.clusters.admin import topic_admin
from mirror.pairs.control import RebuildStep
from mirror.proofs import repair_appending, repair_rebuilding
from mirror.proofs.account import Scope
from mirror.proofs.repair_appending import Remedy, remedies
from mirror.proofs.repair_rebuilding import rebuilding
from mirror.status.wording import some

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirror.config.schema import FlowConfig, MirrorConfig
    from mirror.pairs.control import KeptGroup, Rebuild
    from mirror.proofs.repair_appending import Advice
    from mirror.proofs.repair_rebuilding import (
        Irreplaceable,
        Rebuilding,
        RebuildPreview,
    )
    from mirror.proofs.verification import Proven

app = family("Repair copies of a flow.")

COLUMNS = ("KIND", "SOURCE", "TARGET", "COUNT", "REPAIR", "WHY")
_MOST_SHOWN = 1_000


@app.command("append", short_help="Append records that copies lack.")
@spread
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
    change: Change,
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
    if change.dry_run:
        repair_appending.refuse(chosen, repaired, ())
    else:
        repair_appending.begin(chosen, repaired)
    with proof_runner(chosen) as runner:
        whole = Scope(
            pattern=topic, since=topic_admin.EARLIEST, keys=False, remembered=False
        )
        proven = proof_of(chosen, repaired, runner, whole)
    with repair_appending.prepare(
        chosen, repaired, proven, although_order=although_order
    ) as repairing:
        advice = tuple(remedies(proven.findings, repairing.obstacles))
        if change.output is Form.TABLE:
            _show(advice)
        planned = sum(repairing.counts.values())
        if planned and change.agreed(
            f"Append {some(planned, 'record')} to copies of {repaired.name}?"
        ):
            despite_fencing(repairing.append)
            advice = tuple(remedies(proven.findings, repairing.obstacles))
        done = {} if change.dry_run else repairing.counts
    if change.output is Form.JSON:
        document(
            {
                "flow": repaired.name,
                "dry_run": change.dry_run,
                "appended": done,
                "findings": [_fields(each) for each in advice],
            }
        )
    for name, count in done.items():
        complain(f"appended {some(count, 'record')} to the copy of {name}")
    if not proven.findings:
        complain(f"{repaired.name}: nothing to repair")
    left = any(each.remedy is not Remedy.APPEND for each in advice)
    end(well=not left and not (change.dry_run and advice))


def _show(advice: tuple[Advice, ...]) -> None:
    shown = [
        (*found_where(each.finding), each.finding.count, each.remedy.value, each.why)
        for each in advice[:_MOST_SHOWN]
    ]
    if shown:
        table(COLUMNS, shown)
    if more := len(advice[_MOST_SHOWN:]):
        complain(f"{more:,} more findings; -o json has all")


def _fields(advice: Advice) -> dict[str, object]:
    told = {"repair": advice.remedy.value, "why": advice.why}
    return advice.finding.document() | told


# ---- `rebuild`: delete a copy, and let the flow copy it again ----


LOST_COLUMNS = ("PARTITION", "FIRST", "LAST", "COUNT", "WHY")
GROUP_COLUMNS = ("GROUP", "PARTITION", "SOURCE-OFFSET")
_LEFT = {
    RebuildStep.DELETING: "the copy is to be deleted, copied, and groups to be moved",
    RebuildStep.COPYING: "the flow copies it, and then groups are to be moved",
}


@app.command("rebuild", short_help="Delete a copy, and copy it again.")
@spread
def rebuild(
    flow: FlowName,
    topic: Annotated[
        str, typer.Argument(metavar="TOPIC", help="The topic's name on the source.")
    ],
    *,
    config: ConfigFile,
    change: Change,
) -> None:
    """Delete the copy of a topic, and copy it again from the first record.

    First it proves the copy. If that has anything that the source does not have, it
    shows the offsets and the reasons, and changes nothing: records of others, or what
    the source has deleted or compacted away. Groups that read the copy must have no
    members. They are translated to the source, and back to the new copy, where each
    goes on with the same record. The new copy has the partitions and configs of the old
    one; its ACLs stay.

    The topic is paused until the new copy is there; then a running service copies it,
    and the command waits for that. Killed at any time, run it again, here or elsewhere,
    with the same configuration: it goes on where it was. The exit code is 1 if it is
    refused, or a group is not moved yet.

    \b
    Examples:
      mirror repair rebuild A/B orders -c mirror.yaml --dry-run
      mirror repair rebuild A/B orders -c mirror.yaml
    """
    chosen = read_config(config)
    steered = flow_of(chosen, flow)
    require_selected(chosen, steered)
    told: dict[str, object] = {}
    with rebuilding(chosen, steered, topic, dry_run=change.dry_run) as work:
        note = work.unfinished(withdraw=not change.dry_run)
        if note is None or note.step is RebuildStep.PAUSED:
            note = _begin(work, chosen, steered, told, change)
        else:
            complain(
                f"{work.copy}: a rebuild that began at {moment(note.at)} is not done: "
                f"{_LEFT[note.step]}"
            )
            if not change.agreed(f"Go on with the rebuild of {topic}?"):
                note = None
        left = {}
        if note is not None:
            if not Console(stderr=True).is_terminal:
                complain(f"{work.copy}: waiting until the flow has copied it again")
            counts = TextColumn("{task.completed:,}/{task.total:,} offsets")
            with progress(f"copying {work.copy}", counts, total=0) as show:
                left = work.finish(note, show=show)
    done = note is not None and not left
    if change.output is Form.JSON:
        document(
            {
                "flow": steered.name,
                "topic": topic,
                "dry_run": change.dry_run,
                "rebuilt": done,
                **told,
                "groups_left": left,
            }
        )
    complain(*(f"group {name} is not moved: {why}" for name, why in left.items()))
    if left:
        complain("run the same command again: it moves the groups that are left")
    elif done:
        complain(f"rebuilt {work.copy}, the copy of {topic}")
    end(well=not (left or told.get("irreplaceable")))


def _begin(
    work: Rebuilding,
    config: MirrorConfig,
    flow: FlowConfig,
    told: dict[str, object],
    change: Change,
) -> Rebuild | None:
    """Prove, show and ask. `told`: receives what a document says about it."""
    pattern = re.escape(work.topic.topic)
    whole = Scope(
        pattern=pattern, since=topic_admin.EARLIEST, keys=False, remembered=False
    )
    if repair_rebuilding.may_hide_groups(work.target):
        complain(
            "warning: without DESCRIBE on the cluster, groups that we may not see lose "
            "their positions in the copy"
        )

    def agree(preview: RebuildPreview) -> bool:
        told["records"] = preview.records
        told["irreplaceable"] = [asdict(each) for each in preview.irreplaceable]
        told["groups"] = [_group_fields(each) for each in preview.groups]
        if preview.irreplaceable:
            complain(
                f"refused: {work.copy} has what {flow.source} does not have, and would "
                "lose it"
            )
            if change.output is Form.TABLE:
                _show_lost(preview.irreplaceable)
            return False
        if change.output is Form.TABLE and preview.groups:
            _show_groups(preview.groups)
        what = f"{work.copy} ({some(preview.records, 'record')} to copy again"
        what += f", {some(len(preview.groups), 'group')})"
        if change.dry_run:
            complain(f"would delete and rebuild {what}")
        return change.agreed(f"Delete and rebuild {what}?")

    with proof_runner(config) as runner:

        def prove(after: Proven | None) -> Proven:
            rest = Scope(pattern=pattern, keys=False, remembered=False)
            scope = whole if after is None else rest
            return proof_of(config, flow, runner, scope, after=after)

        return work.begin(prove, agree)


def _show_lost(lost: Sequence[Irreplaceable]) -> None:
    table(
        LOST_COLUMNS,
        (
            (each.partition, each.first, each.last, each.count or None, each.why)
            for each in lost[:_MOST_SHOWN]
        ),
    )
    if more := len(lost[_MOST_SHOWN:]):
        complain(f"{more:,} more rows; -o json has all")


def _show_groups(groups: Sequence[KeptGroup]) -> None:
    table(
        GROUP_COLUMNS,
        (
            (each.group, number, "first" if offset < 0 else offset)
            for each in groups
            for number, (offset, _) in sorted(each.offsets.items())
        ),
    )


def _group_fields(group: KeptGroup) -> dict[str, object]:
    return {
        "group": group.group,
        "partitions": [
            {"partition": number, "source_offset": offset}
            for number, (offset, _) in sorted(group.offsets.items())
        ],
    }
