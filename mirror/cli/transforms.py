"""Whether the functions that flows name can be used: asked before anything runs.

Main function: `unusable`. Only a configuration that names one pays for importing
what they work with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mirror.config.schema import MirrorConfig


def unusable(config: MirrorConfig) -> list[str]:
    """What is wrong with them, a line each."""
    if not any(flow.transform for flow in config.flows.values() if flow.enabled):
        return []

    from mirror.relay import transform  # noqa: PLC0415  loads kernels

    return transform.problems(config)
