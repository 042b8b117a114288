"""Asks every cluster of the flows from time to time whether it answers.

Main type: `Answering`, with a thread per cluster, away from flows and slots: a cluster
that hangs delays no other one's answer. What it finds is in the status and its metric;
a change is an event. Each instance asks for itself, also one that stands by.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from mirror.clusters.cluster import Cluster
from mirror.errors import MirrorError
from mirror.status.events import Event, EventKind
from mirror.status.values import ClusterStatus

if TYPE_CHECKING:
    from mirror.config.cluster_settings import ClusterConfig
    from mirror.config.schema import MirrorConfig
    from mirror.status.store import StatusStore

EVERY_SECONDS = 10.0
_MOST_SECONDS = 10.0
"""A broker that takes longer does not answer."""


class Answering:
    """Asks until closed."""

    def __init__(self, store: StatusStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._asked: dict[str, ClusterConfig] = {}
        self._sides: dict[str, tuple[str, ...]] = {}
        self._found: dict[str, ClusterStatus] = {}

    def follow(self, config: MirrorConfig) -> None:
        """From now on, ask the clusters of these flows."""
        flows = [flow for flow in config.flows.values() if flow.enabled]
        ends = {
            "source": {f.source for f in flows},
            "target": {f.target for f in flows},
        }
        with self._lock:
            before = self._asked
            self._sides = {
                alias: tuple(side for side, those in ends.items() if alias in those)
                for alias in sorted(ends["source"] | ends["target"])
            }
            self._asked = {alias: config.clusters[alias] for alias in self._sides}
            new = [each for a, each in self._asked.items() if before.get(a) != each]
            for alias in before.keys() - self._asked.keys():
                self._found.pop(alias, None)
            for alias in self._asked.keys() - {each.alias for each in new}:
                self._asked[alias] = before[alias]  # its thread goes on
            self._show()
        for each in new:
            threading.Thread(
                target=self._ask, args=(each,), name="answering", daemon=True
            ).start()

    def close(self) -> None:
        """Ask no more. It does not wait for a cluster that hangs."""
        self._closing.set()

    def _ask(self, config: ClusterConfig) -> None:
        seconds = min(config.request_timeout_seconds, _MOST_SECONDS)
        quick = config.model_copy(update={"request_timeout_seconds": seconds})
        cluster = Cluster(quick, client_id="mirror.answering")
        while not self._closing.is_set() and self._asked.get(config.alias) is config:
            try:
                cluster.any_connection()  # connects if no broker is known
                cluster.refresh()
            except MirrorError as error:
                cluster.close()
                self._note(config, str(error))
            else:
                self._note(config, "", cluster_id=cluster.cluster_id)
            self._closing.wait(EVERY_SECONDS)
        cluster.close()

    def _note(
        self, config: ClusterConfig, reason: str, *, cluster_id: str = ""
    ) -> None:
        alias = config.alias
        with self._lock:
            if self._asked.get(alias) is not config:
                return
            before = self._found.get(alias)
            changed = before is None or before.answers == bool(reason)
            self._found[alias] = ClusterStatus(
                alias=alias,
                sides=self._sides[alias],
                answers=not reason,
                since=time.time() if before is None or changed else before.since,
                reason=reason,
                cluster_id=cluster_id or (before.cluster_id if before else ""),
            )
            self._show()
        if changed and (reason or before is not None):
            self._store.trail.add(
                Event(
                    kind=EventKind.PROBLEM if reason else EventKind.PROBLEM_GONE,
                    cluster=alias,
                    subject="answers",
                    text=f"cluster {alias} does not answer: {reason}"
                    if reason
                    else f"cluster {alias} answers again",
                )
            )

    def _show(self) -> None:
        self._store.clusters = tuple(each for _, each in sorted(self._found.items()))
