"""What `mirror switch` and `mirror failover` print: steps, plans, and what it cost."""

from __future__ import annotations

from dataclasses import dataclass
import json
import sys
from typing import TYPE_CHECKING, Any

from rich.filesize import decimal

from mirror.cli.output import NOTHING, Form, blank_line, complain, duration, table
from mirror.recovery.journal import Kind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirror.switching.group_places import GroupPlaces
    from mirror.switching.runner import Operator
    from mirror.switching.stage import Done, Stage

LOST_COLUMNS = ("TOPIC", "PARTITION", "NOT-COPIED", "BYTES", "SECONDS", "REASON")
STANDING_COLUMNS = ("GROUP", "POSITION-AGE", "READS-AGAIN-AT-MOST", "UNKNOWN")
STEP_COLUMNS = ("STEP", "SECONDS")
PLACE_COLUMNS = ("GROUP", "READ", "GOES-ON-IN", "OFFSET", "EXACTNESS")


@dataclass(slots=True)
class Lines:
    """Prints a line for each step."""

    form: Form
    numbers: dict[str, int]
    waiting: str = ""
    last: Done | None = None

    def tell(self, step: str, text: str) -> None:
        if self.form is Form.TABLE and text != self.waiting:
            self.waiting = text
            complain(f"   {step}: waiting: {text}")

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
        line = f"{self.numbers[step]:2} {step:10} {done.text:78} {seconds:6.1f} s"
        sys.stdout.write(line.rstrip() + "\n")
        sys.stdout.flush()
        complain(*(f"   warning: {each}" for each in done.warnings))


def show_plan(stage: Stage, output: Form) -> None:
    """What a switch would move; changes nothing.

    Raises:
        MirrorError: it cannot be made now.
    """
    from mirror.switching.steps import STEPS  # noqa: PLC0415
    from mirror.switching.steps.assess import places_of  # noqa: PLC0415

    done = STEPS["assess"].do(stage)
    places = places_of(stage)
    if output is Form.JSON:
        told: dict[str, Any] = {
            "step": "assess",
            "text": done.text,
            "warnings": list(done.warnings),
            "notes": dict(done.notes),
            "groups": [
                dict(zip(PLACE_COLUMNS, row, strict=True)) for row in _rows(places)
            ],
        }
        sys.stdout.write(json.dumps(told, ensure_ascii=False) + "\n")
        return
    sys.stdout.write(f"ready: {done.text}\n")
    complain(*(f"warning: {each}" for each in done.warnings))
    if rows := _rows(places):
        blank_line()
        table(PLACE_COLUMNS, rows)


def _rows(places: GroupPlaces) -> list[tuple[object, ...]]:
    return [
        (
            group,
            place.came_from,
            f"{key[0]}-{key[1]}",
            place.offset if place.offset >= 0 else NOTHING,
            str(place.exactness),
        )
        for group, found in sorted(places.places.items())
        for key, place in sorted(found.items())
    ]


def show_end(operator: Operator, lines: Lines) -> None:
    """How long it took, and what a failover cost."""
    from mirror.switching.procedure import way_back  # noqa: PLC0415  loads kernels

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
