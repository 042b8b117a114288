"""One thing that was looked at, what was seen, and how to put it right.

Main type: `Finding`. What is looked at stands in this room's other modules.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """How it looks."""

    OK = "ok"
    WARN = "warn"
    """A run works, and somebody should know."""
    FAIL = "fail"
    """A run would not work, or not for all that it should copy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The outcome of one check."""

    where: str
    """`cluster A`, `flow A->B`, or `here`: this machine and the configuration."""
    check: str
    state: State
    detail: str
    fix: str = ""
    """What would put it right; empty where nothing is wrong."""
    mistake: bool = False
    """Only a change of the configuration helps."""


def ok(where: str, check: str, detail: str) -> Finding:
    return Finding(where=where, check=check, state=State.OK, detail=detail)


def warn(where: str, check: str, detail: str, fix: str) -> Finding:
    return Finding(where=where, check=check, state=State.WARN, detail=detail, fix=fix)


def fail(
    where: str, check: str, detail: str, fix: str, *, mistake: bool = False
) -> Finding:
    return Finding(
        where=where,
        check=check,
        state=State.FAIL,
        detail=detail,
        fix=fix,
        mistake=mistake,
    )


def some(names: list[str], most: int = 3) -> str:
    """The first of them by name, and how many more."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
