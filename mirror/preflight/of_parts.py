"""Checks of a flow whose topics several services may share out.

Main function: `findings`, by what the parts have noted on the target; a part that never
ran has noted nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror.driver import parts, uniting
from mirror.preflight.finding import fail, ok, warn

if TYPE_CHECKING:
    from mirror.preflight.finding import Finding
    from mirror.preflight.ground import Ground


def findings(ground: Ground) -> list[Finding]:
    """Which parts there are, and which topics another one copies.

    Raises:
        ClusterError: the target no longer answers.
    """
    flow, where = ground.flow, ground.where
    noted = uniting.parts_of(flow, ground.target)
    names = ", ".join(each.name for each in noted)
    if flow.part is None:
        if not noted:
            return []
        return [
            warn(
                where, "parts", f"services copy the flow in parts: {names}",
                "a service with this configuration does not run: give the flow a "
                "`part` of its own, or stop the others and use `mirror flow unite`",
            )
        ]  # fmt: skip
    topics = [each.topic for each in ground.surveyed.topics]
    shared = parts.left(flow, parts.ahead(flow, noted), topics)
    return [
        ok(where, "part", f"{flow.part}; known on the target: {names or 'none'}"),
        *(
            fail(where, "part", text, "leave them out here with topics_exclude")
            for text in shared
        ),
    ]
