"""The client for applications: where a group continues after moving to the target.

Main type: `MirrorClient`, with the methods of MirrorMaker 2's Java client, under the
same names and with the same answers. It needs only the target cluster, neither the
source nor a running service. It changes nothing on any cluster.

    from mirror.client import MirrorClient

    with MirrorClient({"bootstrap_servers": "kafka-b:9092"}) as client:
        for place, offset in client.translate_offsets("app", "A").items():
            print(place.topic, place.partition, offset.offset)
"""

from __future__ import annotations

from concurrent.futures import TimeoutError as FutureTimeoutError
import contextlib
import threading
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, get_args

from pydantic import ValidationError

from mirror.clusters.cluster import Cluster
from mirror.clusters.topics import NO_ID, topic_id_of
from mirror.config import own_topics
from mirror.config.cluster_settings import ClusterConfig
from mirror.errors import ClusterError, ConfigError, ReceiptError
from mirror.offsets import checkpoints, translation
from mirror.offsets.checkpoints import checkpoints_topic
from mirror.offsets.receipts import Outcome, Receipts
from mirror.policy.choice import make_policy
from mirror.policy.naming import HEARTBEATS, is_internal

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

Policy = Literal["default", "identity"]
_AT_ONCE_SECONDS = 10.0
"""For the first look at the target."""


class TopicPartition(NamedTuple):
    """A partition of the target."""

    topic: str
    partition: int


class OffsetAndMetadata(NamedTuple):
    """The next offset to read there, and the metadata committed with it."""

    offset: int
    metadata: str = ""


class MirrorClient:
    """Reads from one cluster what was copied to it. Not thread-safe, but for
    `wait_copied`.

    Every method raises `mirror.errors.ClusterError` if the cluster does not answer.
    """

    def __init__(
        self,
        target: ClusterConfig | Mapping[str, Any],
        *,
        policy: Policy = "default",
        separator: str = ".",
        internal_topic_separator: bool = True,
        source_alias: str = "",
        exactly_once: bool = True,
    ) -> None:
        """`target`: a cluster's settings, by their names in the configuration.

        `policy`, `separator` and `internal_topic_separator` are those of the flows.
        `source_alias` is needed only with policy identity, whose copies do not say
        where they are from. `exactly_once` is that of the flows, too; only
        `wait_copied` goes by it.

        Raises:
            ConfigError: the settings cannot be used.
        """
        if policy not in get_args(Policy):
            known = ", ".join(get_args(Policy))
            raise ConfigError([f'policy: "{policy}" is not one of {known}'])
        self._config = _config(target)
        self._cluster = Cluster(self._config, client_id="mirror.client")
        self._is_connected = False
        self._separator = separator
        self._exactly_once = exactly_once
        self._lock = threading.Lock()
        self._receipts: dict[str, Receipts] = {}
        """By source, once one was asked for."""
        self._sole = ""
        """The only source, once that was looked for."""
        self._mm2_separator = separator if internal_topic_separator else "."
        self._policy = make_policy(
            policy, source_alias=source_alias, separator=separator
        )
        self._has_source = self._policy.names_source or bool(source_alias)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._cluster.close()
        self._is_connected = False
        with self._lock:
            for each in self._receipts.values():
                each.close()
            self._receipts.clear()

    def translate_offsets(
        self, group: str, source: str
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Where a group of the cluster `source` continues here, by its checkpoints;
        never beyond the end of a copy.

        Empty if the group has no checkpoints, or there are none at all.
        """
        topic = checkpoints_topic(source, self._mm2_separator)
        found = checkpoints.read(self._connected(), topic).get(group, {})
        there = translation.read_logs(self._cluster, found.keys())
        return {
            TopicPartition(*key): OffsetAndMetadata(
                there[key].below_end(each.downstream)
                if key in there
                else each.downstream,
                each.metadata,
            )
            for key, each in sorted(found.items())
        }

    remote_consumer_offsets = translate_offsets
    """Java's other name for it."""

    def wait_copied(
        self,
        topic: str,
        partition: int,
        offset: int,
        timeout: float = 5.0,
        *,
        source: str = "",
        topic_id: str = "",
    ) -> bool:
        """Whether the record at this offset of the source is committed on the target;
        waits for that, `timeout` seconds at most. `topic` is named as on the source.

        `source`: its alias, needed where several flows lead to the target. `topic_id`:
        of the source's topic, as Kafka's tools show it; empty: that which is copied
        under this name. Any number of threads may wait at once.

        Raises:
            ReceiptError: there will be no receipt: the flow has passed the record
                without a copy, or the target may lose what it acknowledged.
            ClusterError: the target did not answer meanwhile.
            ConfigError: no flow, or several, lead to the target; or the id is none.
        """
        receipts = self._receipts_of(source)
        try:
            wanted = topic_id_of(topic_id) if topic_id else NO_ID
        except ValueError as error:
            raise ConfigError([f'topic_id: "{topic_id}" is no topic id']) from error
        asked = receipts.ask(
            topic, partition, offset, topic_id=wanted, at_once=timeout <= 0
        )
        try:
            found = asked.result(timeout if timeout > 0 else _AT_ONCE_SECONDS)
        except FutureTimeoutError:
            asked.cancel()
            if receipts.trouble:
                raise ClusterError(receipts.trouble) from None
            return False
        if found.outcome in (Outcome.NOT_COPIED, Outcome.REFUSED):
            raise ReceiptError(f"{topic}-{partition}@{offset}: {found.reason}")
        if found.reason:
            raise ClusterError(found.reason)
        return found.outcome is Outcome.COPIED

    def heartbeat_topics(self) -> set[str]:
        """Topics of heartbeats: the cluster's own, and copied ones."""
        return {
            name
            for name in self._names()
            if self._policy.original_topic(name) == HEARTBEATS
        }

    def upstream_clusters(self) -> set[str]:
        """Aliases of all clusters whose heartbeats arrive here, over any hops."""
        return {
            alias for name in self.heartbeat_topics() for alias in self._sources(name)
        }

    def replication_hops(self, upstream_cluster: str) -> int:
        """Over how many flows heartbeats of a cluster arrive here; -1 if none do."""
        hops = [
            sources.index(upstream_cluster) + 1
            for name in self.heartbeat_topics()
            if upstream_cluster in (sources := self._sources(name))
        ]
        return min(hops, default=-1)

    def checkpoint_topics(self) -> set[str]:
        """Topics of checkpoints, one for each cluster that flows come from."""
        ending = checkpoints_topic("", self._mm2_separator)
        return {name for name in self._names() if name.endswith(ending)}

    def remote_topics(self, source: str | None = None) -> set[str]:
        """Topics copied from any cluster, or from one, judging by their names."""
        if not self._has_source:
            return set()
        return {
            name
            for name in self._names()
            if not is_internal(name, self._separator)
            and (found := self._policy.topic_source(name)) is not None
            and source in (None, found)
        }

    def _sources(self, name: str) -> list[str]:
        """The clusters that a copy came through, the nearest first."""
        found: list[str] = []
        topic: str | None = name
        while topic is not None:
            source = self._policy.topic_source(topic)
            if source is None or source in found:
                break
            found.append(source)
            topic = self._policy.upstream_topic(topic)
        return found

    def _receipts_of(self, source: str) -> Receipts:
        with self._lock:
            if not source:
                self._sole = source = self._sole or self._only_source()
            if source not in self._receipts:
                self._receipts[source] = Receipts(
                    self._config,
                    source,
                    self._separator,
                    exactly_once=self._exactly_once,
                )
            return self._receipts[source]

    def _only_source(self) -> str:
        with contextlib.closing(
            Cluster(self._config, client_id="mirror.client")
        ) as one:
            names = one.connect().topics()
        found = sorted(filter(None, map(own_topics.PROGRESS.alias_in, names)))
        if len(found) != 1:
            known = ", ".join(found) or "none"
            raise ConfigError(
                [f"source: name the cluster that a flow comes from; there are: {known}"]
            )
        return found[0]

    def _names(self) -> list[str]:
        return list(self._connected().topics())

    def _connected(self) -> Cluster:
        if not self._is_connected:
            self._cluster.connect()
            self._is_connected = True
        return self._cluster


def _config(target: ClusterConfig | Mapping[str, Any]) -> ClusterConfig:
    if isinstance(target, ClusterConfig):
        return target
    try:
        return ClusterConfig.model_validate({"alias": "target", **target})
    except ValidationError as error:
        raise ConfigError(
            [
                f"{'.'.join(map(str, each['loc']))}: {each['msg']}"
                for each in error.errors()
            ]
        ) from error
