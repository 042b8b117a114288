"""Accepts or refuses new configurations, and reports them.

Main type: `ConfigFollower`. It compares each reading of the file with the
configuration in use and keeps the newest one that is usable; `service` applies it to
the flows.
"""

from __future__ import annotations

from dataclasses import asdict, replace
import time
from typing import TYPE_CHECKING

import structlog

from mirror import log as logs
from mirror.config import changes
from mirror.status.events import Event, EventKind
from mirror.status.values import ConfigStatus

if TYPE_CHECKING:
    from mirror.config.changes import Changes
    from mirror.config.schema import MirrorConfig
    from mirror.driver.reload import Watch
    from mirror.status.store import StatusStore

log = structlog.get_logger()


class ConfigFollower:
    """Holds the newest usable configuration."""

    def __init__(
        self, config: MirrorConfig, watch: Watch | None, store: StatusStore
    ) -> None:
        """`watch` provides new configurations; None: this one never changes."""
        self.config = config
        self._watch = watch
        self._store = store
        store.config = ConfigStatus(
            file=str(watch.file) if watch else "",
            version=changes.version(config),
            loaded_at=time.time(),
        )

    def start(self) -> None:
        if self._watch is not None:
            self._watch.look_every(self.config.service.reload_seconds)
            self._watch.start()

    def close(self) -> None:
        if self._watch is not None:
            self._watch.close()

    def take(self) -> Changes | None:
        """Apply the newest reading; returns its changes, or None if there is none or it
        was refused.
        """
        if self._watch is None or (reading := self._watch.take()) is None:
            return None
        for warning in reading.warnings:
            log.warning("configuration", warning=warning)
        if reading.config is None:
            self._refuse(reading.at, reading.problems)
            return None
        found = changes.compare(self.config, reading.config)
        if found.refused:
            self._refuse(reading.at, found.refused)
            return None
        known = self._store.config
        self._store.config = replace(
            known,
            version=changes.version(reading.config),
            loaded_at=reading.at,
            reloads=known.reloads + bool(found),
            refused_at=0.0,
            refused=(),
        )
        self._go_by(reading.config)
        self._announce(found)
        return found

    def _refuse(self, at: float, problems: tuple[str, ...]) -> None:
        known = self._store.config
        self._store.config = replace(known, refused_at=at, refused=problems)
        self._store.trail.add(
            Event(
                kind=EventKind.CONFIGURATION_REFUSED,
                subject=known.file,
                text="configuration refused, the previous one stays in use: "
                + "; ".join(problems),
                details={"problems": list(problems)},
            )
        )

    def _go_by(self, config: MirrorConfig) -> None:
        """Apply the service's own settings."""
        before, now = self.config.service, config.service
        self.config = config
        if self._watch is not None:
            self._watch.look_every(now.reload_seconds)
        log_settings = (now.log_level, now.log_format)
        if log_settings != (before.log_level, before.log_format):
            logs.set_up(*log_settings)

    def _announce(self, found: Changes) -> None:
        self._store.trail.add(
            Event(
                kind=EventKind.CONFIGURATION_RELOADED,
                subject=self._store.config.file,
                text=f"configuration reloaded: {found}",
                details={
                    "version": self._store.config.version,
                    "settings": [asdict(change) for change in found.settings],
                    "added": list(found.added),
                    "removed": list(found.removed),
                },
            )
        )
