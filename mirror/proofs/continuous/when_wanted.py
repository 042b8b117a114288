"""Proofs in a service that are loaded when a flow wants some.

Main type: `ProofsWhenWanted`, a stand-in for `in_service`, whose kernels take a third
of a second of CPU and 100 MB: by default no flow proves its copies, but another
configuration may turn that on.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from mirror.status.values import OFF

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from mirror.config.schema import FlowConfig, MirrorConfig
    from mirror.proofs.continuous.in_service import FlowProofs, ServiceProofs
    from mirror.service.scheduler import Job
    from mirror.status.store import StatusStore


class ProofsWhenWanted:
    """Of all flows of a service."""

    def __init__(self) -> None:
        self._session: tuple[Any, ...] = ()
        self._loading = threading.Lock()
        """Flows take up another configuration each in a thread of its own."""
        self._loaded: ServiceProofs | None = None

    def begin(
        self,
        spark: SparkSession,
        store: StatusStore,
        room: Callable[[], tuple[bool, str | None]],
    ) -> None:
        self._session = spark, store, room
        if self._loaded is not None:
            self._loaded.begin(*self._session)

    def of(
        self, flow: FlowConfig, config: MirrorConfig, store: StatusStore
    ) -> FlowProofsWhenWanted:
        def make(flow: FlowConfig, config: MirrorConfig) -> FlowProofs:
            return self._load().of(flow, config, store)

        return FlowProofsWhenWanted(flow, config, make)

    def _load(self) -> ServiceProofs:
        with self._loading:
            if self._loaded is None:
                from mirror.proofs.continuous.in_service import (  # noqa: PLC0415
                    ServiceProofs,
                )

                self._loaded = ServiceProofs()
                if self._session:
                    self._loaded.begin(*self._session)
            return self._loaded


class FlowProofsWhenWanted:
    """Of one flow, across its runs."""

    def __init__(
        self,
        flow: FlowConfig,
        config: MirrorConfig,
        make: Callable[[FlowConfig, MirrorConfig], FlowProofs],
    ) -> None:
        self._make = make
        self._made: FlowProofs | None = None
        self.adopt(flow, config)

    def adopt(self, flow: FlowConfig, config: MirrorConfig) -> None:
        if self._made is not None:
            self._made.adopt(flow, config)
        elif flow.verify != OFF:
            self._made = self._make(flow, config)

    def job(self) -> Job | None:
        return None if self._made is None else self._made.job()

    def stop(self) -> None:
        if self._made is not None:
            self._made.stop()
