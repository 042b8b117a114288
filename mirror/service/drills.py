"""Has the pairs of a service drilled from time to time.

Main type: `Drills`, with one thread for all pairs, away from the slots. Of several
instances the one that leads the flow out of the active cluster drills; the journal says
when the last drill was. What drills stands above this room: the command
line passes it in.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, Protocol

import structlog

from mirror.clusters import cpu_share
from mirror.clusters.reach import Reach
from mirror.errors import MirrorError
from mirror.host import process_name
from mirror.log import LogThrottle

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirror.clusters.cluster import Cluster
    from mirror.config.pair_settings import PairConfig
    from mirror.config.schema import FlowConfig, MirrorConfig
    from mirror.service.pairs import PairFollower

log = structlog.get_logger()

_PAUSE_SECONDS = 1.0
_FIRST_SECONDS = 300.0
"""A service that has just started copies first what it has missed."""
_SHARE = cpu_share.SHARE / 2
"""Of a core: no one waits for these drills."""
_AGAIN_SECONDS = 60.0
"""After a drill that could not be carried out."""


class Rehearse(Protocol):
    """Drills a failover along a flow, and keeps the outcome in the journal."""

    def __call__(
        self,
        config: MirrorConfig,
        pair: PairConfig,
        flow: FlowConfig,
        reach: Callable[[str], Cluster],
        *,
        by: str,
    ) -> tuple[Any, str]:
        """As `drilling.runner.rehearse`."""


class Drills:
    """Drills all pairs until closed."""

    def __init__(
        self,
        config: Callable[[], MirrorConfig],
        follower: PairFollower,
        rehearse: Rehearse,
        *,
        leads: Callable[[str], bool],
    ) -> None:
        """`config`: the one in effect; `leads`: whether this instance leads a flow."""
        self._config, self._follower = config, follower
        self._rehearse, self._leads = rehearse, leads
        self._by = f"service {process_name()}"
        self._began = time.time()
        self._tried: dict[str, float] = {}
        self._throttle = LogThrottle()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="mirror-drills")

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._closing.wait(_PAUSE_SECONDS):
            for pair in self._config().recovery.values():
                self._turn(pair)

    def _turn(self, pair: PairConfig) -> None:
        try:
            if (flow := self._due(pair)) is not None:
                self._drill(pair, flow)
        except MirrorError as error:
            self._failed(pair, str(error))
        except Exception as error:
            log.exception("a drill failed", pair=pair.name)
            self._failed(pair, f"{type(error).__name__}: {error}"[:300])

    def _due(self, pair: PairConfig) -> FlowConfig | None:
        """The flow along which a drill is due; None: none is."""
        every, now = pair.drill_every_seconds, time.time()
        status = self._follower.role(pair)
        if not every or not status.epoch:
            return None
        other = pair.other_than(status.active)
        flow = self._config().flows.get(f"{status.active}->{other}")
        if flow is None:  # another instance runs it (`mirror run --clusters`)
            return None
        if not self._leads(flow.name) or self._follower.holds(flow.source, flow.target):
            return None
        last = max((each.at for each in self._follower.drills(pair)), default=0.0)
        due = max(
            last + every,
            max(self._began, status.since) + min(every, _FIRST_SECONDS),
            self._tried.get(pair.name, 0.0) + min(every, _AGAIN_SECONDS),
        )
        return flow if now >= due else None

    def _drill(self, pair: PairConfig, flow: FlowConfig) -> None:
        config = self._config()
        self._tried[pair.name] = time.time()
        with (
            cpu_share.gently(_SHARE),
            Reach(config.clusters, client_id="mirror.drill") as reach,
        ):
            done, not_kept = self._rehearse(config, pair, flow, reach, by=self._by)
        log.info("drill", pair=pair.name, verdict=str(done.text))
        if not_kept:
            self._failed(pair, not_kept)

    def _failed(self, pair: PairConfig, error: str) -> None:
        if self._throttle.due(error):
            log.warning("a drill failed", pair=pair.name, error=error)
