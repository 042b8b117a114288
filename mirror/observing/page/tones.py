"""How states look on the page: a tone for the colour, and a sign.

Main function: `tone`. Colour is never the only cue: a state is always written out, next
to a sign.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror.offsets.translation import Exactness
from mirror.status.events import Level
from mirror.status.states import AclState, FlowState, PartitionState, SchemaState
from mirror.status.wording import some

if TYPE_CHECKING:
    from mirror.status.values import FlowStatus

_CALM = ("calm", "•")
_LOOKS: dict[str, tuple[str, str]] = {
    FlowState.RUNNING: ("good", "✓"),
    FlowState.STARTING: ("warn", "…"),
    FlowState.RETRYING: ("bad", "↻"),
    FlowState.FAILED: ("bad", "✕"),
    FlowState.STANDBY: ("calm", "○"),
    FlowState.RESTING: ("calm", "○"),
    FlowState.STOPPED: ("calm", "■"),
    PartitionState.CATCHING_UP: ("warn", "▲"),
    PartitionState.FAULTED: ("bad", "✕"),
    PartitionState.PAUSED: ("calm", "‖"),
    AclState.SYNCED: ("good", "•"),
    SchemaState.PENDING: ("warn", "…"),
    SchemaState.CONFLICT: ("bad", "✕"),
    SchemaState.UNSUPPORTED: ("bad", "✕"),
    SchemaState.REFUSED: ("bad", "↻"),
    Exactness.EXACT: ("good", "✓"),
    Exactness.TIP: ("good", "✓"),
    Exactness.BEHIND: ("warn", "▲"),
    Exactness.BEFORE: ("bad", "✕"),
    Exactness.UNKNOWN: ("bad", "?"),
    Level.INFO: ("calm", "•"),
    Level.WARNING: ("warn", "▲"),
    Level.ERROR: ("bad", "✕"),
    "good": ("good", "✓"),
    "warn": ("warn", "…"),
    "bad": ("bad", "✕"),
}


def tone(state: str) -> str:
    """good, warn, bad, or calm for what is neither."""
    return _LOOKS.get(state, _CALM)[0]


def sign(state: str) -> str:
    return _LOOKS.get(state, _CALM)[1]


def needs(flow: FlowStatus) -> list[str]:
    """Why a flow needs attention, in words; nothing if it is healthy."""
    found = []
    if tone(flow.state) == "bad":
        found.append(f"{flow.state}: {flow.reason}" if flow.reason else flow.state)
    if flow.faulted:
        found.append(f"{some(flow.faulted, 'partition')} {PartitionState.FAULTED}")
    if is_late(flow):
        found.append("behind its SLA")
    if flow.problems:
        found.append(some(len(flow.problems), "problem"))
    found.extend(f"job {job.name} fails" for job in flow.jobs if job.error)
    return found


def is_idle(flow: FlowStatus) -> bool:
    """Whether it is not running for a good reason: it is starting, or has ended."""
    return flow.state in {FlowState.STARTING, FlowState.STOPPED} and not needs(flow)


def is_late(flow: FlowStatus) -> bool:
    return flow.lag_seconds > flow.sla_seconds
