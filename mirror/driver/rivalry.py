"""Instances of one group that disagree on the topics of a flow.

One leads the flow, and the others copy nothing: two services that were meant to share
out the topics look like this, and so does a rolling restart with another configuration,
for as long as it takes. Main functions: `rivals`, which finds them among the wishes of
all members, and `rivalry`, which says what is wrong. Pure.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mirror.config.schema import FlowConfig

ROLLING_SECONDS = 180.0
"""A rolling restart, or a changed file on its way to all instances, takes less."""


class Wishes(Protocol):
    """What one instance says, as far as it matters here."""

    @property
    def name(self) -> str: ...

    @property
    def selects(self) -> Mapping[str, str]: ...


def fingerprint(flow: FlowConfig) -> str:
    """The same for flows that select the same topics."""
    text = json.dumps([sorted(flow.topics), sorted(flow.topics_exclude)])
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def rivals(wishes: Mapping[str, Wishes], member: str) -> dict[str, list[str]]:
    """By flow, the instances that select other topics for it than this member."""
    found: dict[str, list[str]] = {}
    for flow, own in wishes[member].selects.items():
        others = (w.name for w in wishes.values() if w.selects.get(flow, own) != own)
        if names := sorted(others):
            found[flow] = names
    return found


def rivalry(flow: str, others: Sequence[str], seconds: float) -> str:
    """What to tell of a flow; empty if there is nothing, or not yet."""
    if not others:
        return ""
    if seconds < ROLLING_SECONDS:
        return (
            f"{', '.join(others)} of the same service.group selects other topics, as "
            "during a rolling restart"
        )
    return (
        f"{', '.join(others)} of the same service.group selects other topics, and only "
        f"the leader of {flow} copies. If each service is to copy topics of its own, "
        "give the flow another `part: NAME` in each of them; if they are instances of "
        "one service, give them one configuration"
    )
