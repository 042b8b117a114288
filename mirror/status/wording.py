"""Numbers, times and differences in words, the same in tables, pictures and pages.

Functions only, pure. A negative number and a time of zero mean not known; both become
`NOTHING`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

NOTHING = "-"
NOT_SET = "not set"
_MOST_NAMED = 5


def moment(epoch_seconds: float) -> str:
    """A point in time, to the second; nothing for zero."""
    if not epoch_seconds:
        return NOTHING
    return f"{datetime.fromtimestamp(epoch_seconds, UTC):%Y-%m-%dT%H:%M:%SZ}"


def milliseconds(value: float) -> str:
    """A duration; nothing for a negative one, which means not known."""
    return f"{value:.0f}ms" if value >= 0 else NOTHING


def remaining(seconds: float) -> str:
    """How long something will take; nothing for a negative time: not known."""
    for unit, size, most in (("s", 1, 90), ("min", 60, 90), ("h", 3600, 48)):
        if 0 <= seconds < most * size:
            return f"{max(round(seconds / size), 1)} {unit} left"
    return f"{seconds / 86400:.0f} d left" if seconds >= 0 else NOTHING


def duration(seconds: float) -> str:
    """A lag in time; nothing for a negative one, which means not known."""
    for unit, size, most in (("s", 1, 120), ("min", 60, 120), ("h", 3600, 48)):
        if 0 <= seconds < most * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / 86400:.0f} d" if seconds >= 0 else NOTHING


def rate(bytes_per_second: float) -> str:
    """Bytes per second, in steps of a thousand."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if bytes_per_second >= size:
            return f"{bytes_per_second / size:.1f} {unit}/s"
    return f"{bytes_per_second:.0f} B/s"


def count(number: int) -> str:
    """A whole number with separated thousands."""
    return f"{number:,}"


def some(number: int, noun: str) -> str:
    """A count with its noun."""
    return f"{count(number)} {noun}" if number == 1 else f"{count(number)} {noun}s"


def named(names: Sequence[str], most: int = _MOST_NAMED) -> str:
    """The first of them, and how many more there are."""
    more = len(names) - most
    text = ", ".join(names[:most])
    return f"{text} and {more} more" if more > 0 else text


def differences(topic: Mapping[str, Any]) -> str:
    """How a copy differs from its topic, by the JSON form of that, in one line."""
    here, there = topic["partitions"], topic["target_partitions"]
    said = []
    if not there and not topic["problem"]:
        said.append("no copy yet")
    elif 0 < there < here:
        said.append("too few partitions")
    elif there > here and not topic["merged"]:
        said.append("more partitions than its topic")
    for config in topic["configs"]:
        wanted = config["wanted"]
        should = "not be set" if wanted is None else f"be {config_value(wanted)}"
        said.append(
            f"{config['name']} is {config_value(config['found'])}, should {should}"
        )
    said += [f"sources differ on {conflict}" for conflict in topic["conflicts"]]
    if topic["problem"]:
        said.append(topic["problem"])
    return "; ".join(said) or NOTHING


def config_value(text: str | None) -> str:
    """A config's value, which may be missing or empty."""
    return NOT_SET if text is None else text or '""'
