"""Random scripts without faults, for holding the model against real brokers.

Main functions: `play`, `administer` and `divide`, which play a script through our
connections against any cluster, and return the answers in a form that does not depend
on the cluster: producer ids by their order, no times. The same script has the same
answers everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
import random
import struct
import time
from typing import TYPE_CHECKING, Any

from kafka.protocol.admin import DescribeProducersRequest, DescribeTransactionsRequest
from kafka.protocol.consumer import (
    FetchRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from kafka.protocol.producer import (
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
)

from mirror.clusters.admin import acls, configs, group_offsets, groups, topic_admin
from mirror.clusters.admin.group_offsets import CommittedOffset
from mirror.clusters.wire import produce
from mirror.errors import ClusterError
from mirror.records import records
from tests.harness.waiting import wait_for
from tests.simulation import membership

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mirror.clusters.cluster import Cluster

_STEPS = 40
_PATIENCE_SECONDS = 20.0
_SILENT_SECONDS = 8.0
"""Longer than a session of `divide`."""
_PAUSE_SECONDS = 0.2
_NOT_LEADER = 6
_IDS = ("x", "y")
_COMPLETE = {"Empty", "CompleteCommit", "CompleteAbort", "Ongoing"}
_NOT_YET = {14, 15, 16, 51}
"""The coordinator loads, moves, or still ends the last transaction."""


class _Player:
    """One script on one cluster."""

    def __init__(self, cluster: Cluster, topic: str, seed: int, *, v2: bool) -> None:
        self._cluster = cluster
        self._topic = topic
        self._random = random.Random(seed)
        self._v2 = v2
        self._names: dict[int, int] = {}
        self._known: dict[str, tuple[int, int]] = {}
        self._sequences: dict[tuple[int, int], int] = {}
        self._prefix = f"{topic}-"

    def _name(self, producer: int) -> int:
        """A producer id by its order."""
        return (
            self._names.setdefault(producer, len(self._names)) if producer >= 0 else -1
        )

    def _coordinator(self, name: str) -> int:
        return self._cluster.transaction_coordinator(self._prefix + name)

    def _settled(self, name: str) -> str:
        """The state of an id, once its markers are written."""
        end = time.monotonic() + _PATIENCE_SECONDS
        while True:
            request = DescribeTransactionsRequest(
                transactional_ids=[self._prefix + name]
            )
            (shown,) = self._cluster.call(
                request, node=self._coordinator(name)
            ).transaction_states
            if shown.error_code or shown.transaction_state in _COMPLETE:
                return f"{shown.error_code} {shown.transaction_state}"
            assert time.monotonic() < end, shown
            time.sleep(0.01)

    def init(self) -> Any:
        """A producer begins; one of its transactions may be open."""
        name = self._random.choice(_IDS)
        request = InitProducerIdRequest(
            transactional_id=self._prefix + name, transaction_timeout_ms=60_000,
            producer_id=-1, producer_epoch=-1,
        )  # fmt: skip
        end = time.monotonic() + _PATIENCE_SECONDS
        while True:
            answer = self._cluster.connection(self._coordinator(name)).call(
                request, at_most=4
            )
            if answer.error_code not in _NOT_YET:
                break
            assert time.monotonic() < end
            time.sleep(0.01)
        self._known[name] = (answer.producer_id, answer.producer_epoch)
        return name, answer.error_code, self._name(answer.producer_id), (
            answer.producer_epoch
        )  # fmt: skip

    def _some(self) -> tuple[str, int, int] | None:
        """A known id with its producer id and epoch; at times an old epoch."""
        if not self._known:
            return None
        name = self._random.choice(sorted(self._known))
        producer, epoch = self._known[name]
        old = self._random.random() < 0.1 and epoch > 0
        return name, producer, epoch - old

    def add(self) -> Any:
        """A partition comes to a v1 transaction."""
        if (some := self._some()) is None:
            return None
        name, producer, epoch = some
        entry = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
        number = self._random.randrange(2)
        answer = self._cluster.connection(self._coordinator(name)).call(
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self._prefix + name,
                v3_and_below_producer_id=producer,
                v3_and_below_producer_epoch=epoch,
                v3_and_below_topics=[entry(name=self._topic, partitions=[number])],
            ),
            at_most=3,
        )
        codes = [
            part.partition_error_code
            for topic in answer.results_by_topic_v3_and_below
            for part in topic.results_by_partition
        ]
        return some[0], number, codes

    def write(self) -> Any:
        """A batch in a transaction; at times out of sequence, or again."""
        if (some := self._some()) is None:
            return None
        name, producer, epoch = some
        number, count = self._random.randrange(2), self._random.randint(1, 3)
        key = (number, producer << 16 | epoch)
        sequence = self._sequences.get(key, 0)
        dice = self._random.random()
        if dice < 0.08:
            sequence += 5
        batch = records.encode([(b"%d" % n, b"v") for n in range(count)])
        batch.stamp(producer, epoch, sequence, transactional=True)
        leader = self._cluster.topics([self._topic])[self._topic].leaders[number].node
        answers = [
            self._written(leader, number, name, batch)
            for _ in range(2 if dice > 0.9 else 1)
        ]
        if answers[0][0] == 0:
            self._sequences[key] = sequence + count
        return name, number, sequence, count, answers

    def _written(self, leader: int, number: int, name: str, batch: Any) -> Any:
        end = time.monotonic() + _PATIENCE_SECONDS
        while True:
            pending = produce.send(
                self._cluster.connection(leader),
                {(self._topic, number): batch},
                transactional_id=self._prefix + name,
                version=12 if self._v2 else 8,
                timeout_ms=10_000,
            )
            ((part,),) = [t.partition_responses for t in pending.result().responses]
            if part.error_code != _NOT_LEADER or time.monotonic() > end:
                return part.error_code, part.base_offset
            time.sleep(0.01)  # of a topic that was created just now

    def end(self) -> Any:
        """The end of a transaction, or of none; at times asked for twice."""
        if (some := self._some()) is None:
            return None
        name, producer, epoch = some
        request = EndTxnRequest(
            transactional_id=self._prefix + name, producer_id=producer,
            producer_epoch=epoch, committed=self._random.random() < 0.6,
        )  # fmt: skip
        answers = []
        for _ in range(2 if self._random.random() < 0.15 else 1):
            answer = self._cluster.connection(self._coordinator(name)).call(
                request, at_most=5 if self._v2 else 3
            )
            raised = getattr(answer, "producer_epoch", -1)
            if self._v2 and not answer.error_code and raised >= 0:
                self._known[name] = (answer.producer_id, raised)
            answers.append((answer.error_code, raised if self._v2 else -1))
            answers.append((0, self._settled(name)))
        return name, request.committed, answers

    def commit(self) -> Any:
        """A group's offsets are set from outside, also where there is no partition."""
        name = self._prefix + self._random.choice(_IDS)
        places = {
            (self._topic, self._random.choice((0, 1, 1, 9))): CommittedOffset(
                self._random.randrange(50), self._random.choice(("", "note"))
            )
            for _ in range(self._random.randint(1, 3))
        }
        refused = group_offsets.commit(self._cluster, {name: places})
        return sorted(places.items()), refused.get(name, {})

    def groups(self) -> Any:
        """What groups have committed, and which there are."""
        names = [self._prefix + name for name in (*_IDS, "none")]
        known = group_offsets.fetch(self._cluster, names)
        listed = groups.list_groups(self._cluster)
        return (
            [sorted(known.groups[name].items()) for name in names],
            [listed[name].state for name in names if name in listed],
            known.refused,
        )

    def look(self) -> Any:
        """What clients see of both partitions."""
        keys = [(self._topic, number) for number in range(2)]
        ends = [self._ends(keys, committed=committed) for committed in (True, False)]
        return (
            ends,
            [self._fetched(number) for number in range(2)],
            self._open(),
        )

    def _ends(self, keys: Sequence[tuple[str, int]], *, committed: bool) -> list[int]:
        end = time.monotonic() + _PATIENCE_SECONDS
        while True:
            found = topic_admin.list_offsets(
                self._cluster, keys, timestamp=topic_admin.LATEST, committed=committed
            )
            if len(found) == len(keys) or time.monotonic() > end:
                return [found[key] for key in keys]
            time.sleep(0.01)  # of a topic that was created just now

    def _fetched(self, number: int) -> Any:
        entry = FetchRequest.FetchTopic
        leader = self._cluster.topics([self._topic])[self._topic].leaders[number].node
        request = FetchRequest(
            replica_id=-1, max_wait_ms=1, min_bytes=0, max_bytes=1 << 20,
            isolation_level=1, session_id=0, session_epoch=-1, rack_id="",
            topics=[
                entry(
                    topic=self._topic,
                    partitions=[
                        entry.FetchPartition(
                            partition=number, current_leader_epoch=-1, fetch_offset=0,
                            log_start_offset=-1, partition_max_bytes=1 << 20,
                        )
                    ],
                )
            ],
            forgotten_topics_data=[],
        )  # fmt: skip
        answer = self._cluster.connection(leader).call(request, at_most=11)
        ((part,),) = [topic.partitions for topic in answer.responses]
        aborted = sorted(
            (self._name(each.producer_id), each.first_offset)
            for each in part.aborted_transactions or ()
        )
        return (
            part.error_code,
            part.last_stable_offset,
            aborted,
            (_batches(bytes(part.records or b""), self._name)),
        )

    def _open(self) -> Any:
        leaders = self._cluster.topics([self._topic])[self._topic].leaders
        found = []
        for number in range(2):
            request = DescribeProducersRequest(
                topics=[
                    DescribeProducersRequest.TopicRequest(
                        name=self._topic, partition_indexes=[number]
                    )
                ]
            )
            answer = self._cluster.call(request, node=leaders[number].node)
            ((part,),) = [topic.partitions for topic in answer.topics]
            found.append(
                sorted(
                    (self._name(p.producer_id), p.producer_epoch,
                     p.current_txn_start_offset)
                    for p in part.active_producers
                )
            )  # fmt: skip
        return found

    def step(self) -> tuple[str, Any]:
        steps: list[Callable[[], Any]] = [
            self.init, self.write, self.write, self.write, self.end, self.look,
            self.commit, self.groups,
        ]  # fmt: skip
        if not self._v2:
            steps += [self.add, self.add]
        chosen = self._random.choice(steps)
        return chosen.__name__, chosen()


def _batches(data: bytes, name: Callable[[int], int]) -> list[tuple[int, ...]]:
    """Base offset, attributes, producer, epoch, sequence and count of each batch."""
    found, at = [], 0
    while at + 61 <= len(data):
        base, size = struct.unpack_from(">qi", data, at)
        attributes, delta = struct.unpack_from(">hi", data, at + 21)
        producer, epoch, sequence, count = struct.unpack_from(">qhii", data, at + 43)
        found.append((base, attributes, delta, name(producer), epoch, sequence, count))
        at += 12 + size
    return found


class _Administrator:
    """Another script: topics, configs, ACLs, groups."""

    def __init__(self, cluster: Cluster, topic: str, seed: int) -> None:
        self._cluster = cluster
        self._random = random.Random(seed)
        self._names = [f"{topic}-{letter}" for letter in "abc"]
        self._principal = f"User:{topic}"

    def _name(self) -> str:
        return self._random.choice(self._names)

    def _told(self, errors: Mapping[Any, ClusterError] | ClusterError | None) -> Any:
        """Why something was refused, without what brokers say beside the code; of
        several, each.
        """
        if isinstance(errors, Mapping):
            return sorted((str(key), self._told(each)) for key, each in errors.items())
        if errors is None:
            return ""
        return getattr(errors, "name", type(errors).__name__).partition(" (")[0]

    def create(self) -> Any:
        new = topic_admin.NewTopic(
            name=self._name(), partitions=self._random.randint(1, 3),
            replication_factor=1, configs={"retention.ms": "1000"},
        )  # fmt: skip
        made = topic_admin.create_topics(self._cluster, [new])
        if made.created:
            self._cluster.wait_for_topic(new.name)
        return new.name, new.partitions, self._told(made.refused)

    def grow(self) -> Any:
        name, count = self._name(), self._random.randint(1, 5)
        try:
            topic_admin.add_partitions(self._cluster, name, count=count)
        except ClusterError as error:
            return name, count, self._told(error)
        end = time.monotonic() + _PATIENCE_SECONDS
        while self._cluster.topics([name])[name].partitions != count:
            assert time.monotonic() < end
            time.sleep(0.01)
        return name, count, ""

    def alter(self) -> Any:
        name = self._name()
        changes = {
            key: self._random.choice((value, None))
            for key, value in (("retention.ms", "2000"), ("max.message.bytes", "999"))
            if self._random.random() < 0.7
        }
        checks = self._random.random() < 0.3
        refused = configs.alter(self._cluster, {name: changes}, validate_only=checks)
        return name, sorted(changes), checks, self._told(refused)

    def describe(self) -> Any:
        keys = ["retention.ms", "max.message.bytes", "cleanup.policy"]

        def look() -> Any:
            shown = configs.describe(self._cluster, self._names, keys=keys)
            return [
                (
                    name, each.missing, self._told(each.error),
                    sorted((k, c.value, c.origin) for k, c in each.configs.items()),
                )
                for name, each in sorted(shown.items())
            ]  # fmt: skip

        return _settled(look)

    def _acls(self) -> list[acls.Acl]:
        pick = self._random.choice
        return [
            acls.Acl(
                kind="TOPIC", name=self._name()[: pick((99, -1))],
                pattern=pick(("LITERAL", "PREFIXED")), principal=self._principal,
                host="*", operation=pick(("READ", "WRITE", "ALL")),
                permission=pick(("ALLOW", "DENY")),
            )
            for _ in range(self._random.randint(1, 3))
        ]  # fmt: skip

    def allow(self) -> Any:
        return self._told(acls.create(self._cluster, self._acls()))

    def forbid(self) -> Any:
        return self._told(acls.delete(self._cluster, self._acls()))

    def list_acls(self) -> Any:
        def look() -> Any:
            try:
                found = acls.describe(self._cluster)
            except ClusterError as error:
                return self._told(error)
            return [str(each) for each in found if each.principal == self._principal]

        return _settled(look)

    def groups(self) -> Any:
        name = f"{self._names[0]}-group"
        there = self._names[0] in self._cluster.topics()
        if there and self._random.random() < 0.5:
            places = {(self._names[0], 0): CommittedOffset(3, "")}
            group_offsets.commit(self._cluster, {name: places})
        known = groups.list_groups(self._cluster)
        return [(name, known[name].state)] if name in known else []

    def step(self) -> tuple[str, Any]:
        chosen = self._random.choice(
            [
                self.create, self.grow, self.alter, self.alter, self.describe,
                self.allow, self.forbid, self.list_acls, self.groups,
            ]
        )  # fmt: skip
        return chosen.__name__, chosen()


def _settled(look: Callable[[], Any]) -> Any:
    """What two looks agree about: brokers learn of changes late."""
    end = time.monotonic() + _PATIENCE_SECONDS
    last, found = None, look()
    while found != last:
        assert time.monotonic() < end, found
        time.sleep(0.1)
        last, found = found, look()
    return found


class _Members:
    """Several members of one group, over one connection each."""

    def __init__(self, cluster: Cluster, group: str) -> None:
        self._cluster = cluster
        self._group = group
        self._names: dict[str, str] = {}
        """Ids are random: answers have these names instead."""

    def _connection(self, name: str) -> Any:
        node = self._cluster.group_coordinators([self._group])[self._group]
        return self._cluster.connection(node, f"member {name}", seconds=30.0)

    def _id(self, name: str) -> str:
        return self._names.get(name, name)

    def _named(self, member: str) -> str:
        return next((n for n, each in self._names.items() if each == member), member)

    def begin_join(self, name: str) -> Any:
        protocol = JoinGroupRequest.JoinGroupRequestProtocol
        request = JoinGroupRequest(
            group_id=self._group, session_timeout_ms=6_000, rebalance_timeout_ms=3_000,
            member_id=self._id(name) if name in self._names else "",
            group_instance_id=None, protocol_type="mirror", reason=None,
            protocols=[protocol(name="share", metadata=name.encode())],
        )  # fmt: skip
        return self._connection(name).send(request)

    def joined(self, name: str, pending: Any) -> list[Any]:
        answer = pending.result()
        if answer.error_code == membership.MEMBER_ID_REQUIRED:
            self._names[name] = answer.member_id
        said = sorted((self._named(m.member_id), m.metadata) for m in answer.members)
        leads = answer.leader == answer.member_id
        return [name, answer.error_code, answer.generation_id, leads, said]

    def join(self, name: str) -> list[Any]:
        """Once the group's coordinator is ready."""
        end = time.monotonic() + _PATIENCE_SECONDS
        while True:
            said = self.joined(name, self.begin_join(name))
            if said[1] not in _NOT_YET or time.monotonic() > end:
                return said
            time.sleep(_PAUSE_SECONDS)

    def begin_sync(self, name: str, generation: int, shares: Sequence[str] = ()) -> Any:
        entry = SyncGroupRequest.SyncGroupRequestAssignment
        request = SyncGroupRequest(
            group_id=self._group, generation_id=generation, member_id=self._id(name),
            group_instance_id=None, protocol_type="mirror", protocol_name="share",
            assignments=[
                entry(member_id=self._id(each), assignment=f"of {each}".encode())
                for each in shares
            ],
        )  # fmt: skip
        return self._connection(name).send(request)

    def synced(self, pending: Any) -> tuple[int, bytes]:
        answer = pending.result()
        return answer.error_code, bytes(answer.assignment)

    def heartbeat(self, name: str, generation: int) -> int:
        request = HeartbeatRequest(
            group_id=self._group, generation_id=generation, member_id=self._id(name),
            group_instance_id=None,
        )  # fmt: skip
        return int(self._connection(name).call(request).error_code)

    def leave(self, *names: str) -> list[Any]:
        entry = LeaveGroupRequest.MemberIdentity
        request = LeaveGroupRequest(
            group_id=self._group, member_id=self._id(names[0]),
            members=[
                entry(member_id=self._id(n), group_instance_id=None, reason="script")
                for n in names
            ],
        )  # fmt: skip
        answer = self._connection(names[0]).call(request)
        return [answer.error_code, *(each.error_code for each in answer.members)]


def divide(cluster: Cluster, group: str) -> list[Any]:
    """The answers to members that join, sync, go on, take over, leave and fall silent.
    Who leads the group is the first one's, and stays so.
    """
    members, found = _Members(cluster, group), list[Any]()
    found.append(members.join("one"))
    found.append(members.join("one"))
    found.append(members.synced(members.begin_sync("one", 1, ["one"])))
    found += [members.heartbeat("one", at) for at in (1, 0, 2)]
    found.append(members.heartbeat("stranger", 1))
    found.append(members.join("two"))
    two = members.begin_join("two")
    wait_for(lambda: members.heartbeat("one", 1) == membership.REBALANCING)
    found.append(members.synced(members.begin_sync("one", 1)))
    one = members.begin_join("one")
    found += [members.joined("one", one), members.joined("two", two)]
    waits = members.begin_sync("two", 2)
    found.append(members.heartbeat("one", 2))
    found.append(members.synced(members.begin_sync("one", 2, ["one", "two"])))
    found.append(members.synced(waits))
    found.append(members.synced(members.begin_sync("two", 2)))
    found += [members.heartbeat("one", 2), members.heartbeat("two", 2)]
    found += [members.leave("two"), members.leave("two"), members.heartbeat("one", 2)]
    found.append(members.join("one"))
    found.append(members.synced(members.begin_sync("one", 3, ["one"])))
    time.sleep(_SILENT_SECONDS)
    found.append(members.heartbeat("one", 3))
    return found


def administer(cluster: Cluster, topic: str, seed: int) -> list[Any]:
    """The answers to a seed's script; topics whose names begin with `topic` are its."""
    administrator = _Administrator(cluster, topic, seed)
    return [administrator.step() for _ in range(_STEPS)]


def play(cluster: Cluster, topic: str, seed: int, *, v2: bool) -> list[Any]:
    """The answers to a seed's script; the topic has two partitions and is empty."""
    player = _Player(cluster, topic, seed, v2=v2)
    return [player.step() for _ in range(_STEPS)] + [("look", player.look())]
