"""Whether the source has brokers in the flow's `rack`.

One function, `finding`. A rack that no broker has is no error there: leaders serve, and
the traffic that the setting is to save is paid for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror.preflight.finding import ok, warn

if TYPE_CHECKING:
    from collections.abc import Collection

    from mirror.config.schema import FlowConfig
    from mirror.preflight.finding import Finding


def finding(flow: FlowConfig, where: str, racks: Collection[str]) -> Finding:
    """`racks`: of the source's brokers."""
    if flow.rack in racks:
        return ok(where, "rack", f"{flow.source} has brokers in {flow.rack}")
    if not racks:
        told = f"no broker of {flow.source} has a rack, so leaders are read"
        return warn(where, "rack", told, "set broker.rack there, or leave out rack")
    return warn(
        where,
        "rack",
        f"no broker of {flow.source} is in {flow.rack}, so leaders are read",
        f"use {' or '.join(sorted(racks))}, as broker.rack there says",
    )
