"""A cluster as its clients see it: brokers, leaders, coordinators, connections.

Main type: `Cluster`, which keeps one connection per broker and purpose and asks
for metadata (see `topics`). A purpose keeps long polls and bulk data apart from
small requests. It does not interpret requests: see `admin`, `wire` and
`transactions`.
"""

from __future__ import annotations

import contextlib
import math
import random
import time
from typing import TYPE_CHECKING, Any, TypeVar

from kafka.protocol.metadata import FindCoordinatorRequest, MetadataRequest

from mirror.clusters import codes
from mirror.clusters.topics import NO_ID, Leaders, Views, topic_of
from mirror.clusters.wire import handshake
from mirror.clusters.wire.connection import Connection
from mirror.clusters.wire.handshake import QUESTIONS
from mirror.errors import AuthenticationError, NoLeaderError, UnreachableError
from mirror.retry import patiently

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    import uuid

    from mirror.clusters.topics import Leader, Topic
    from mirror.config.cluster_settings import ClusterConfig
    from mirror.errors import ClusterError

T = TypeVar("T")
_GROUP, _TRANSACTION = 0, 1
_MANY_COORDINATORS = 4
"""From this version on, one request can ask for many coordinators."""
_KEYS_AT_ONCE = 500
_HIGH_LATENCY_SECONDS = 0.02
_DOUBT_SECONDS = 60.0
_BESIDE_SECONDS = 3.0
"""For TCP to one broker of several: if its machine is gone, and so refuses nothing, the
others answer meanwhile. A lost SYN is sent again after one second."""


class Cluster:
    """Connections to one cluster. Not thread-safe: one per thread."""

    def __init__(
        self,
        config: ClusterConfig,
        *,
        client_id: str = "mirror",
        cluster_id: str = "",
    ) -> None:
        """`cluster_id` is the id of the expected cluster: an address that leads to
        another one raises `ClusterChangedError`. Empty accepts the first one found.
        """
        self.alias = config.alias
        self.cluster_id = ""
        self._expected_id = cluster_id
        self.controller = -1
        self._round_trip_seconds = math.inf
        self._config = config
        self._client_id = client_id
        self._brokers: dict[int, tuple[str, int]] = {}
        self._connections: dict[tuple[int, str], Connection] = {}
        self._leaders = Leaders()
        self._doubted: dict[int, float] = {}
        """Brokers to ask last, and until when (monotonic)."""

    def connect(self) -> Cluster:
        """Reach any broker and learn about the others.

        Raises:
            UnreachableError: no bootstrap server answers, or none names a broker.
            AuthenticationError: one answered and refused us.
            ClusterChangedError: one answered that belongs to another cluster.
        """
        failures = []
        refusal: AuthenticationError | None = None
        servers = list(self._config.bootstrap_servers)
        random.shuffle(servers)
        for server in servers:
            host, _, port = server.rpartition(":")
            try:
                connection = self._connection(host.strip("[]"), int(port))
                with contextlib.closing(connection):
                    self._learn(connection.call(metadata_request([])))
            except UnreachableError as error:
                failures.append(f"{error}{self._hint(error)}")
            except AuthenticationError as error:
                refusal = refusal or error  # perhaps this broker alone
            else:
                return self
        raise refusal or UnreachableError("; ".join(failures))

    def _hint(self, error: UnreachableError) -> str:
        """A listener that requires SASL hangs up on a client that does not log in."""
        protocol = self._config.security_protocol
        if "closed the connection" in str(error) and not protocol.startswith("SASL"):
            return f" (does its listener require SASL? security_protocol is {protocol})"
        return ""

    @property
    def high_latency(self) -> bool:
        """Whether even the fastest first answer took as long as over a WAN."""
        return _HIGH_LATENCY_SECONDS < self._round_trip_seconds < math.inf

    @property
    def own_replicas(self) -> int:
        """As `ClusterConfig.own_replicas`."""
        return self._config.own_replicas

    def tool(self, name: str) -> list[str]:
        """As `ClusterConfig.tool`."""
        return self._config.tool(name)

    @property
    def brokers(self) -> int:
        return len(self._brokers)

    @property
    def nodes(self) -> tuple[int, ...]:
        """The ids of the brokers known now."""
        return tuple(sorted(self._brokers))

    @property
    def addresses(self) -> Mapping[int, tuple[str, int]]:
        """Host and port of each broker, as the brokers advertise them."""
        return dict(self._brokers)

    def connection(
        self, node: int, purpose: str = "control", *, seconds: float = math.inf
    ) -> Connection:
        """The connection to a broker for a purpose; opens one if there is none, which
        waits for answers so long, or for less if the settings say so.
        """
        existing = self._connections.get((node, purpose))
        if existing is not None:
            existing.notice_end()
            if existing.session_ends:
                handshake.authenticate_again(existing)
            if not existing.closed:
                return existing
        if (address := self._brokers.get(node)) is None:
            raise UnreachableError(f"cluster {self.alias}: broker {node} is not known")
        made = self._connection(*address, seconds)
        self._connections[node, purpose] = made
        return made

    def _connection(
        self, host: str, port: int, seconds: float = math.inf
    ) -> Connection:
        config = self._config
        if seconds < config.request_timeout_seconds:
            config = config.model_copy(update={"request_timeout_seconds": seconds})
        made = Connection(
            config,
            host,
            port,
            client_id=self._client_id,
            cluster_id=self._expected_id or self.cluster_id,
            connect_seconds=_BESIDE_SECONDS
            if max(len(self._brokers), len(config.bootstrap_servers)) > 1
            else handshake.CONNECT_SECONDS,
        )
        known, took = self._round_trip_seconds, made.round_trip_seconds
        self._round_trip_seconds = min(known, took)
        return made

    def doubt(self, node: int) -> None:
        """Ask other brokers first for a minute: a broker that is cut off from its
        cluster keeps naming itself leader and coordinator but cannot act as either.
        """
        self._doubted[node] = time.monotonic() + _DOUBT_SECONDS

    def any_connection(self) -> Connection:
        """A connection to any broker that answers, doubted ones last. If no known
        broker answers, the bootstrap servers are asked again.
        """
        refusals: list[ClusterError] = []
        for again in (False, True):
            if again:
                self.connect()
            for node in self._in_turn():
                try:
                    return self.connection(node)
                except UnreachableError as error:
                    self.doubt(node)
                    refusals.append(error)
                except AuthenticationError as error:
                    refusals.append(error)
        raise refusals[-1]

    def _in_turn(self) -> list[int]:
        """All brokers, shuffled; doubted ones last."""
        now = time.monotonic()
        nodes = random.sample(sorted(self._brokers), len(self._brokers))
        return sorted(nodes, key=lambda node: self._doubted.get(node, 0.0) > now)

    def call(self, request: Any, *, node: int | None = None) -> Any:
        """Send a small request to a broker (any if none is given) and wait."""
        return self.calls([request], node=node)[0]

    def calls(self, requests: Sequence[Any], *, node: int | None = None) -> list[Any]:
        """As `call`, for several requests to one broker, without waiting in between."""
        connection = self._ours(node)
        try:
            return connection.calls(requests)
        except UnreachableError:
            # A broker may close an idle connection just as the request is on its way;
            # and where any may be asked, another one may answer.
            if not (again := connection.hung_up):
                known = self._connections.items()
                asked = next(node for (node, _), each in known if each is connection)
                self.doubt(asked)
                again = node is None and self._in_turn()[0] != asked
            if not (again and {e.API_KEY for e in requests} <= QUESTIONS):
                raise
        return self._ours(node).calls(requests)

    def _ours(self, node: int | None) -> Connection:
        return self.any_connection() if node is None else self.connection(node)

    def refresh(self) -> None:
        """Update the list of brokers."""
        self._learn(self.call(metadata_request([])))

    def topics(
        self, names: Iterable[str] | None = None, *, node: int | None = None
    ) -> dict[str, Topic]:
        """Topics by name: all that we may see, or the named ones (with their errors),
        as a broker reports them (any if none is given). Their leaders are the newest
        that any broker has reported.
        """
        if names is not None and not (names := list(names)):
            return {}
        self._learn(answer := self.call(metadata_request(names), node=node))
        shown = {topic.name: topic_of(topic) for topic in answer.topics}
        if names is None:
            self._leaders.keep_only({topic.topic_id for topic in shown.values()})
        return {name: self._leaders.newest(topic) for name, topic in shown.items()}

    def topic(self, name: str) -> Topic | None:
        """The topic with this name; None if there is none.

        Raises:
            ClusterError: the cluster does not answer, or does not show it to us.
        """
        found = self.topics([name])[name]
        if found.error == codes.UNKNOWN_TOPIC_OR_PARTITION:
            return None
        if found.error != codes.NONE:
            raise codes.error_for(found.error, f"cluster {self.alias}: reading {name}")
        return found

    def learn_leader(self, topic_id: uuid.UUID, partition: int, leader: Leader) -> None:
        """From now on, ignore brokers that report an older leader than this one."""
        self._leaders.learn(topic_id, partition, leader)

    def views(self, names: Iterable[str]) -> Views:
        """What every broker reports about these topics, for decisions that must not
        rest on a single broker, which may be cut off from its cluster.

        Raises:
            ClusterError: no broker answers.
        """
        request = list(names)
        if not (answers := self._views(request)):
            self.connect()
            answers = self._views(request)
        # Only brokers that some answer lists count: others may be gone for good.
        named = answers.keys() | {
            broker.node_id for answer in answers.values() for broker in answer.brokers
        }
        return Views(
            brokers=len(named),
            answers={
                node: {topic.name: topic for topic in map(topic_of, answer.topics)}
                for node, answer in answers.items()
            },
        )

    def _views(self, names: list[str]) -> dict[int, Any]:
        """Metadata from each broker that answers. The first answer replaces the list
        of brokers, so that brokers which may be gone are not waited for.
        """
        asked: set[int] = set()
        answers: dict[int, Any] = {}
        while left := self._brokers.keys() - asked:
            asked.add(node := next(each for each in self._in_turn() if each in left))
            try:
                answer = self.call(metadata_request(names), node=node)
            except UnreachableError:
                self.doubt(node)
                continue
            except AuthenticationError:
                continue
            if not answers:
                self._learn(answer)
            for broker in answer.brokers:
                self._brokers.setdefault(broker.node_id, (broker.host, broker.port))
            answers[node] = answer
        return answers

    def wait_for_topic(self, name: str, *, partitions: int = 0) -> Topic:
        """The topic, once it has that many partitions and every one has a leader.

        Raises:
            NoLeaderError: a partition still has none after a long wait.
            ClusterError: the cluster does not answer, or does not show it to us.
        """
        return patiently(lambda: self._led_topic(name, partitions))

    def _led_topic(self, name: str, partitions: int) -> Topic:
        topic = self.topics([name])[name]
        if (
            topic.error == codes.NONE
            and topic.partitions >= partitions
            and all(leader.node >= 0 for leader in topic.leaders.values())
        ):
            return topic
        if topic.error != codes.NONE and not codes.is_retriable(topic.error):
            raise codes.error_for(topic.error, f"cluster {self.alias}: topic {name}")
        raise NoLeaderError(
            f"cluster {self.alias}: topic {name} has no leader "
            f"({codes.name_of(topic.error)})"
        )

    def feature(self, name: str) -> int:
        """The finalized level of a cluster feature such as `transaction.version`."""
        return self.any_connection().features.get(name, 0)

    def speaks(self, api_key: int, version: int) -> bool:
        """Whether a broker knows this version of a request."""
        return self.any_connection().versions.get(api_key, (0, -1))[1] >= version

    def transaction_coordinator(self, transactional_id: str) -> int:
        """The broker that coordinates a transactional id; waits until there is one."""
        return self.coordinators([transactional_id], _TRANSACTION)[transactional_id]

    def group_coordinators(self, groups: Iterable[str]) -> dict[str, int]:
        """The broker that coordinates each group; waits until every group has one."""
        return self.coordinators(groups, _GROUP)

    def coordinators(self, keys: Iterable[str], kind: int) -> dict[str, int]:
        """The coordinator of each key, many per request where brokers support it."""
        nodes: dict[str, int] = {}
        waiting = list(dict.fromkeys(keys))

        def ask() -> dict[str, int]:
            errors = []
            for key, found in self._ask_for_coordinators(waiting, kind):
                if found.error_code == codes.NONE:
                    self._brokers[found.node_id] = (found.host, found.port)
                    nodes[key] = int(found.node_id)
                    continue
                what = f"cluster {self.alias}: coordinator of {key}"
                errors.append(codes.error_for(found.error_code, what))
            if errors:
                waiting[:] = [key for key in waiting if key not in nodes]
                raise min(errors, key=lambda error: error.retriable)
            return nodes

        return patiently(ask)

    def _ask_for_coordinators(
        self, keys: Sequence[str], kind: int
    ) -> Iterator[tuple[str, Any]]:
        spoken = self.any_connection().version(FindCoordinatorRequest)
        most = _KEYS_AT_ONCE if spoken >= _MANY_COORDINATORS else 1
        for part in in_parts(keys, most):
            answer = self.call(
                FindCoordinatorRequest(
                    key=part[0], key_type=kind, coordinator_keys=part
                )
            )
            if answer.coordinators:
                for found in answer.coordinators:
                    yield found.key, found
            else:
                yield part[0], answer

    def drop(self, purpose: str, *, idle: bool = True) -> None:
        """Close the connections of one purpose; what is in flight on them is lost. If
        not `idle`, those that wait for no answer stay.
        """
        for key, each in list(self._connections.items()):
            if key[1] == purpose and (idle or not each.idle):
                self._connections.pop(key).close()

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def _learn(self, answer: Any) -> None:
        self.cluster_id = answer.cluster_id or ""
        self.controller = answer.controller_id
        if answer.brokers:
            self._brokers = {b.node_id: (b.host, b.port) for b in answer.brokers}
        if not self._brokers:
            raise UnreachableError(
                f"cluster {self.alias} answers but counts no broker as alive"
            )


def metadata_request(names: Iterable[str] | None, **also: bool) -> MetadataRequest:
    """Asks for brokers, and for these topics (None: all), of which none is created."""
    entry = MetadataRequest.MetadataRequestTopic
    return MetadataRequest(
        topics=None
        if names is None
        else [entry(topic_id=NO_ID, name=name) for name in names],
        allow_auto_topic_creation=False,
        **also,
    )


def in_parts(some: Iterable[T], most: int) -> Iterator[list[T]]:
    """Parts with so many each, for requests that take no more."""
    listed = list(some)
    return (listed[at : at + most] for at in range(0, len(listed), most))
