"""How states look on the page: a tone for the colour, and a sign.

Main function: `tone`. Colour is never the only cue: a state is always written out, next
to a sign.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror.status.wording import some

if TYPE_CHECKING:
    from mirror.status.values import FlowStatus

_TONES = {
    "RUNNING": "good",
    "SYNCED": "good",
    "EXACT": "good",
    "TIP": "good",
    "CATCHING_UP": "warn",
    "STARTING": "warn",
    "BEHIND": "warn",
    "warning": "warn",
    "warn": "warn",
    "good": "good",
    "bad": "bad",
    "RETRYING": "bad",
    "FAILED": "bad",
    "FAULTED": "bad",
    "UNKNOWN": "bad",
    "BEFORE": "bad",
    "error": "bad",
}
_SIGNS = {
    "RUNNING": "✓",
    "CATCHING_UP": "▲",
    "STARTING": "…",
    "RETRYING": "↻",
    "FAILED": "✕",
    "FAULTED": "✕",
    "PAUSED": "‖",
    "STANDBY": "○",
    "STOPPED": "■",
    "EXACT": "✓",
    "TIP": "✓",
    "BEHIND": "▲",
    "BEFORE": "✕",
    "UNKNOWN": "?",
    "good": "✓",
    "warn": "…",
    "bad": "✕",
    "info": "•",
    "warning": "▲",
    "error": "✕",
}


def tone(state: str) -> str:
    """good, warn, bad, or calm for what is neither."""
    return _TONES.get(state, "calm")


def sign(state: str) -> str:
    return _SIGNS.get(state, "•")


def needs(flow: FlowStatus) -> list[str]:
    """Why a flow needs attention, in words; nothing if it is healthy."""
    found = []
    if tone(flow.state) == "bad":
        found.append(f"{flow.state}: {flow.reason}" if flow.reason else flow.state)
    if flow.faulted:
        found.append(f"{some(flow.faulted, 'partition')} FAULTED")
    if is_late(flow):
        found.append("behind its SLA")
    if flow.problems:
        found.append(some(len(flow.problems), "problem"))
    found.extend(f"job {job.name} fails" for job in flow.jobs if job.error)
    return found


def is_idle(flow: FlowStatus) -> bool:
    """Whether it is not running for a good reason: it is starting, or has ended."""
    return str(flow.state) in {"STARTING", "STOPPED"} and not needs(flow)


def is_late(flow: FlowStatus) -> bool:
    return flow.lag_seconds > flow.sla_seconds
