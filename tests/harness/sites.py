"""Services of other sites for tests: real HTTP ports over recorded statuses.

`site` is a store with clusters and flows; `serving` lets it answer and ask its peers,
as a service does.
"""

from __future__ import annotations

from contextlib import contextmanager
import time
from typing import TYPE_CHECKING, Any

from mirror.config.service_settings import HttpSettings, ServiceConfig
from mirror.status.states import FlowState
from mirror.status.store import StatusStore
from mirror.status.values import ClusterStatus
from mirror.web.peers import Peers
from mirror.web.server import StatusServer
from tests.harness.statuses import show

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


def site(
    flow: str, ids: Mapping[str, str], *, silent: Sequence[str] = (), **changes: Any
) -> StatusStore:
    """A service with one running flow, whose clusters have these ids by alias."""
    store = StatusStore((flow,))
    source, _, target = flow.partition("->")
    running: dict[str, Any] = {
        "source": source,
        "target": target,
        "state": FlowState.RUNNING,
        "bytes_per_second": 2e6,
    }
    show(store, flow, **running | changes)
    store.clusters = known(ids, silent=silent)
    return store


def known(
    ids: Mapping[str, str], *, silent: Sequence[str] = ()
) -> tuple[ClusterStatus, ...]:
    """Clusters with these ids by alias, of which some do not answer."""
    return tuple(
        ClusterStatus(
            alias=alias,
            sides=("source",),
            answers=alias not in silent,
            since=time.time(),
            reason="no route to host" if alias in silent else "",
            cluster_id=cluster_id,
        )
        for alias, cluster_id in ids.items()
    )


@contextmanager
def serving(
    store: StatusStore,
    *,
    port: int = 0,
    peers: Sequence[Mapping[str, Any]] = (),
    **access: Any,
) -> Iterator[str]:
    """The address at which it answers."""
    settings = HttpSettings.model_validate(access)
    asking = Peers(store, ServiceConfig.model_validate({"peers": [*peers]}).peers)
    with StatusServer(store, "127.0.0.1", port, access=settings) as server:
        asking.start()
        try:
            yield server.url
        finally:
            asking.close()
