"""What a service needs of whatever proves its copies, which stands above it.

Protocols only: `ServiceProofs` for a service, `FlowProofs` for one of its flows. The
command line passes in `proofs.in_service`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from mirror.config.schema import FlowConfig, MirrorConfig
    from mirror.service.scheduler import Job
    from mirror.status.store import StatusStore


class FlowProofs(Protocol):
    """Proves the copies of one flow, across its runs."""

    def adopt(self, flow: FlowConfig, config: MirrorConfig) -> None:
        """Use new settings from the next `job` on."""

    def job(self) -> Job | None:
        """The job of a run that begins; None: nothing is to be proven."""

    def stop(self) -> None:
        """End the running task, and begin no other, until the next `job`."""


class ServiceProofs(Protocol):
    """Proves copies while a service runs, one task at a time."""

    def of(
        self, flow: FlowConfig, config: MirrorConfig, store: StatusStore
    ) -> FlowProofs:
        """For one flow; `config` has all of them."""

    def begin(
        self,
        spark: SparkSession,
        store: StatusStore,
        room: Callable[[], tuple[bool, str | None]],
    ) -> None:
        """Carry out tasks in this session. `room`: whether a core is free beside the
        slots, and where; None: anywhere.
        """
