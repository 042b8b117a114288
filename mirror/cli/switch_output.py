"""What `mirror switch` and `mirror failover` print: steps, plans, and what it cost."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, replace
import json
import shlex
import sys
from typing import TYPE_CHECKING, Any

from rich.filesize import decimal

from mirror.cli.output import NOTHING, Form, blank_line, complain, duration, table
from mirror.pairs.journal import Kind
from mirror.status.wording import some

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from mirror.recovery.runner import Operator
    from mirror.recovery.stage import Done, Finding, Stage

LOST_COLUMNS = ("TOPIC", "PARTITION", "NOT-COPIED", "BYTES", "SECONDS", "REASON")
STANDING_COLUMNS = ("GROUP", "POSITION-AGE", "READS-AGAIN-AT-MOST", "UNKNOWN")
STEP_COLUMNS = ("STEP", "SECONDS")
CHANGE_COLUMNS = ("STEP", "CLUSTER", "CHANGE")
_MOST_SHOWN = 20
PLACE_COLUMNS = ("GROUP", "READ", "GOES-ON-IN", "FROM", "TO", "EXACTNESS", "AGAIN")


@dataclass(slots=True)
class StepLines:
    """Prints a line for each step."""

    form: Form
    waiting: str = ""
    last: Done | None = None

    def tell(self, step: str, text: str) -> None:
        if self.form is Form.TABLE and text != self.waiting:
            self.waiting = text
            complain(f"   {step}: waiting: {text}")

    def show(self, found: Sequence[Finding], unseen: Sequence[str]) -> None:
        """What step 1 finds, also where it refuses."""
        if self.form is Form.JSON:
            told = {
                "step": "checks",
                "findings": [asdict(each) for each in found],
                "unseen": list(unseen),
            }
            sys.stdout.write(json.dumps(told, ensure_ascii=False) + "\n")
            sys.stdout.flush()
        else:
            warn(found, unseen)

    def did(self, step: str, done: Done, seconds: float) -> None:
        self.last = done
        if self.form is Form.JSON:
            told = {
                "step": step,
                "state": "DONE",
                "text": done.text,
                "seconds": round(seconds, 3),
                "warnings": list(done.warnings),
                "notes": dict(done.notes),
            }
            sys.stdout.write(json.dumps(told, ensure_ascii=False) + "\n")
            sys.stdout.flush()
            return
        line = f"{_number(step):2} {step:10} {done.text:78} {seconds:6.1f} s"
        sys.stdout.write(line.rstrip() + "\n")
        sys.stdout.flush()
        complain(*(f"   warning: {each}" for each in done.warnings))


def _number(step: str) -> int:
    from mirror.pairs import roles

    return roles.STEPS.index(step) + 1


def show_undo(steps: Sequence[str], output: Form) -> None:
    """What --abort would undo, in its order; changes nothing."""
    for step in steps:
        if output is Form.JSON:
            sys.stdout.write(json.dumps({"step": step, "state": "PLANNED UNDO"}) + "\n")
        else:
            sys.stdout.write(f"{_number(step):2} {step:10} would be undone\n")


def warn(found: Sequence[Finding], unseen: Sequence[str]) -> None:
    """Of many findings the most serious ones."""
    complain(*(f"{each.level}: {each}" for each in found[:_MOST_SHOWN]))
    if (more := len(found) - _MOST_SHOWN) > 0:
        complain(f"and {some(more, 'finding')} more: `-o json` prints all")
    complain(*(f"not looked at: {each}" for each in unseen))


def show_plan(stage: Stage, output: Form) -> None:
    """What each step of a switch would change; changes nothing.

    Raises:
        MirrorError: it cannot be made now.
    """
    from mirror.recovery.stage import StepError, verdict
    from mirror.recovery.steps.assess import assessed, left_open
    from mirror.recovery.steps.changes import changes

    if opened := [*left_open(stage)]:
        stage.show(opened, ())
        raise StepError(str(opened[0]))
    level = ""

    def show(found: Sequence[Finding], unseen: Sequence[str]) -> None:
        nonlocal level
        level = verdict(found)
        stage.show(found, unseen)

    done, places = assessed(replace(stage, show=show), waits=False)
    planned = changes(stage, places)
    if output is Form.JSON:
        for step, each in planned.items():
            told: dict[str, Any] = {
                "step": step,
                "state": "PLANNED",
                "warnings": list(each.warnings),
                "changes": list(each.changes),
            }
            if step == "assess":
                told |= {"text": done.text, "notes": dict(done.notes)}
            sys.stdout.write(json.dumps(told, ensure_ascii=False) + "\n")
        return
    sys.stdout.write(f"{level}: {done.text}\n")
    rows = []
    for number, (step, each) in enumerate(planned.items(), 1):
        complain(*(f"warning: step {number} {step}: {text}" for text in each.warnings))
        rows += [(f"{number} {step}", *row) for row in _change_rows(each.changes)]
    blank_line()
    table(CHANGE_COLUMNS, rows)
    if offsets := [_place_row(each) for each in planned["positions"].changes]:
        blank_line()
        table(PLACE_COLUMNS, offsets)


def _change_rows(changes: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """The cluster, and what changes there; offsets are summed up."""
    starts = [each for each in changes if each["change"] == "flow_start"]
    offsets = [each for each in changes if each["change"] == "group_offset"]
    for each in changes:
        if each["change"] == "acl":
            kind = each["kind"].lower().replace("_", " ")
            star = "*" if each["pattern"] == "PREFIXED" else ""
            host = "" if each["host"] == "*" else f" from {each['host']}"
            who = f"{each['permission']} {each['principal']} {each['operation']}{host}"
            what = f"{kind} {each['name']}{star}"
            yield each["cluster"], f"{each['action']} ACL: {who} on {what}"
        elif each["change"] == "hook":
            what = each.get("url") or shlex.join(each["command"])
            yield NOTHING, f"call {each['hook']}: {what}"
        elif each["change"] == "state":
            yield NOTHING, each["text"]
        elif starts and each is starts[0]:
            yield NOTHING, _starts(starts)
        elif offsets and each is offsets[0]:
            moved = [each for each in offsets if each["from"] != each["to"]]
            groups = {each["group"] for each in moved}
            what = f"{some(len(moved), 'offset')} of {some(len(groups), 'group')}"
            there = f"{len(offsets) - len(moved)} are set already"
            yield each["cluster"], f"set {what}; {there}"


def _starts(starts: Sequence[Mapping[str, Any]]) -> str:
    counts = Counter(
        "where the log does not answer"
        if each["to"] is None
        else "for the first time"
        if each["from"] is None
        else "where it stopped"
        if each["from"] == each["to"]
        else "behind what was copied"
        for each in starts
    )
    told = ", ".join(f"{count} {where}" for where, count in counts.most_common())
    return f"{starts[0]['flow']} begins in {some(len(starts), 'partition')}: {told}"


def _place_row(each: Mapping[str, Any]) -> tuple[object, ...]:
    place = f"{each['topic']}-{each['partition']}"
    before, after, again = (
        NOTHING if each[key] is None else each[key] for key in ("from", "to", "again")
    )
    return (
        *(each["group"], each["read"], place, before, after, each["exactness"]),
        again,
    )


def show_end(operator: Operator, lines: StepLines) -> None:
    """How long it took, and what a failover cost."""
    from mirror.recovery.procedure import way_back

    assert operator.run is not None
    first, last = operator.run.first, operator.run.last
    seconds = last.at - first.at
    back = f"mirror switch '{way_back(first)}'"
    if first.kind is Kind.SWITCH:
        complain(f"Done in {seconds:.1f} s. To go back: {back}")
        return
    notes = lines.last.notes if lines.last is not None else {}
    for columns, rows in (
        (LOST_COLUMNS, [_lost_row(each) for each in notes.get("lost", ())]),
        (STANDING_COLUMNS, [_standing_row(each) for each in notes.get("groups", ())]),
        (
            STEP_COLUMNS,
            [(s, f"{n:.1f}") for s, n in notes.get("step_seconds", {}).items()],
        ),
    ):
        if rows:
            blank_line()
            table(columns, rows)
    rpo = duration(notes.get("rpo_seconds", -1))
    complain(
        f"{first.target} is active after {seconds:.1f} s; {notes.get('text', '')}",
        f"RTO {notes.get('rto_seconds', seconds):.1f} s, RPO {rpo}",
    )


def _lost_row(each: Mapping[str, Any]) -> tuple[object, ...]:
    known = not each["reason"]
    return (
        each["topic"],
        each["partition"],
        f"{each['records']:,}" if known else NOTHING,
        decimal(each["bytes"]) if each["bytes"] >= 0 else NOTHING,
        duration(each["seconds"]),
        each["reason"],
    )


def _standing_row(each: Mapping[str, Any]) -> tuple[object, ...]:
    return (
        each["group"],
        duration(each["position_age_seconds"]),
        f"{each['may_read_again']:,}",
        each["unknown_partitions"],
    )
