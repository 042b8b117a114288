"""A configuration that waits until its flow takes it up.

Main type: `Pending`, one per flow: others put the newest configuration in, the flow's
own thread takes it out where it can change. Several that come before the flow gets
there count as one. What a flow then does is `flow`'s duty.
"""

from __future__ import annotations

from dataclasses import dataclass
import threading
from typing import TYPE_CHECKING

from mirror.config.changes import Effect

if TYPE_CHECKING:
    from mirror.config.schema import MirrorConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Next:
    """What to go by from now on."""

    config: MirrorConfig
    effect: Effect
    """What that asks of the flow, since it last took one up."""


class Pending:
    """At most one configuration. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next: Next | None = None

    def put(self, config: MirrorConfig, effect: Effect) -> None:
        with self._lock:
            if self._next is not None:
                effect |= self._next.effect
            self._next = Next(config=config, effect=effect)

    @property
    def effect(self) -> Effect:
        """What is asked for once it is taken up."""
        with self._lock:
            return self._next.effect if self._next else Effect.NONE

    def take(self) -> Next | None:
        with self._lock:
            found, self._next = self._next, None
        return found
