"""The rights that mirror needs, feature by feature, in one table.

Main name: `TABLE`, whose rows are `Need`s. It leaves out implied operations (READ and
WRITE imply DESCRIBE, ALTER_CONFIGS implies DESCRIBE_CONFIGS). `rights` applies it to a
whole configuration.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror.preflight.permissions import (
    of_commands,
    of_recovery,
    of_schemas,
    of_service,
    of_tasks,
)

if TYPE_CHECKING:
    from mirror.preflight.permissions.need import Need

TABLE: tuple[Need, ...] = (
    *of_service.ROWS,
    *of_tasks.ROWS,
    *of_schemas.ROWS,
    *of_commands.ROWS,
    *of_recovery.ROWS,
)
