"""The rights on the audit topic, whose cluster may be on either side of a flow.

Main function: `of_audit`, rows for one feature.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror.preflight.permissions.extent import named
from mirror.preflight.permissions.need import (
    FlowSide,
    Need,
    Operation,
    ResourceKind,
    Who,
)

if TYPE_CHECKING:
    from mirror.config.schema import FlowConfig, MirrorConfig
    from mirror.preflight.permissions.need import Condition


def of_audit(feature: str, who: Who, *operations: Operation) -> tuple[Need, ...]:
    """Rows on the side of each flow that has its cluster."""

    def there(side: FlowSide) -> Condition:
        def has(flow: FlowConfig, config: MirrorConfig) -> bool:
            alias = flow.source if side is FlowSide.SOURCE else flow.target
            return config.service.audit is not None and config.service.audit[0] == alias

        return has

    return tuple(
        Need(
            feature=feature,
            side=side,
            kind=ResourceKind.TOPIC,
            operations=operations,
            names=lambda _, config: named((config.service.audit or ("", ""))[1]),
            called="`audit_topic`",
            when=there(side),
            setting="`audit_topic` is on this cluster",
            who=who,
        )
        for side in FlowSide
    )
