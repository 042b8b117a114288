"""The result of one check: what was found, and how to fix it.

Main type: `Finding`. This room's other modules do the checks.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """The verdict."""

    OK = "ok"
    WARN = "warn"
    """A run works, with a caveat."""
    FAIL = "fail"
    """A run would fail, or would not copy everything that it should."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The outcome of one check."""

    where: str
    """`cluster A`, `flow A->B`, or `here`: this machine and the configuration."""
    check: str
    state: State
    detail: str
    fix: str = ""
    """How to fix it; empty where nothing is wrong."""
    mistake: bool = False
    """The fix is a change of the configuration."""


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
