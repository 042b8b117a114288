"""`mirror trace` as a person types it; an ordinary consumer says where records are."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
import numpy as np
import pytest
import yaml

from mirror.observing.server import StatusServer
from mirror.offsets.runs import Block, encode
from mirror.pairs import control
from mirror.playground.brokers import playground
from mirror.records.writing import append
from mirror.status.store import StatusStore
from tests.harness.admin import (
    alter_topic,
    create_topic,
    delete_records,
    delete_topic,
    end_offsets,
    topic_exists,
)
from tests.harness.commands import mirror, typed
from tests.harness.load import producer
from tests.harness.slots import SparklessFlow, copy_until
from tests.harness.statuses import partition_status, show
from tests.harness.waiting import wait_for
from tests.harness.witness import Witness, read_topic

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from click.testing import Result

    from mirror.playground.cluster import PlaygroundCluster
    from tests.harness.standing import StandingMirror

pytestmark = pytest.mark.acceptance

Found = tuple[str, str, int | None, str, str | None]
"""Cluster, topic, offset, how, bytes."""


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Four clusters whose log cleaners are quick, by alias."""
    folder = tmp_path_factory.mktemp("trace")
    settings = {"log.cleaner.backoff.ms": "100"}
    with playground(
        ("w", "x", "y", "z"), root=folder, given=False, settings=settings
    ) as made:
        yield {name.upper(): cluster.bootstrap for name, cluster in made.items()}


class Traced:
    """Flows between clusters, and the command about their records."""

    def __init__(self, ends: dict[str, str], folder: Path) -> None:
        """`ends`: addresses by alias."""
        self.ends = ends
        self.flows: dict[str, dict[str, Any]] = {}
        self._file = folder / "mirror.yaml"

    def flow(self, name: str, topic: str, **settings: Any) -> SparklessFlow:
        """A flow of this topic, without a service."""
        source, target = name.split("->")
        self.flows[name] = {"topics": [topic], **settings}
        return SparklessFlow(
            source=self.ends[source], target=self.ends[target], topic=topic,
            alias=source, into=target, settings=settings,
        )  # fmt: skip

    def file(self) -> Path:
        """The configuration with all flows so far."""
        clusters = {
            alias: {"bootstrap_servers": at, "request_timeout_seconds": 5}
            for alias, at in self.ends.items()
        }
        self._file.write_text(
            yaml.safe_dump({"clusters": clusters, "flows": self.flows})
        )
        return self._file

    def typed(self, *words: object) -> Result:
        """As typed, but in this process, which has loaded everything."""
        return mirror("trace", *words, "-c", self.file())

    def trace(self, *words: object) -> tuple[int, list[dict[str, Any]]]:
        """The exit code and the rows."""
        done = self.typed(*words, "-o", "json")
        assert done.stdout, done.stderr
        return done.exit_code, json.loads(done.stdout)["places"]


def brief(rows: Iterable[dict[str, Any]]) -> list[Found]:
    return [
        (each["cluster"], each["topic"], each["offset"], each["how"], each["bytes"])
        for each in rows
    ]


def offset_of(bootstrap: str, topic: str, key: bytes) -> list[int]:
    """Where an ordinary consumer finds a key in partition 0."""
    return [
        message.offset()
        for message in read_topic(bootstrap, topic)[0]
        if message.key() == key
    ]


def produce(bootstrap: str, topic: str, keys: Iterable[bytes], **more: Any) -> None:
    client = producer(bootstrap)
    for key in keys:
        client.produce(topic, **{"key": key, "value": b"v" * 9, "partition": 0, **more})
    assert client.flush(30) == 0


def copy(flow: SparklessFlow, topic: str, count: int, seconds: float = 60) -> None:
    """Copy until an ordinary consumer finds `count` records in this topic."""
    with Witness(str(flow.target)) as witness, flow.own().slot() as slot:
        witness.begin(topic)
        copy_until(witness, slot, flow.lease(seconds), count=count, timeout=seconds)


@pytest.mark.full
def test_three_hops(four: dict[str, str], tmp_path: Path) -> None:
    """From either end, a record is shown at all four places, origin first, each where
    an ordinary consumer finds its key; by its key and time as well.
    """
    traced = Traced(four, tmp_path)
    topics = {"W": "hops", "X": "W.hops", "Y": "X.W.hops", "Z": "Y.X.W.hops"}
    create_topic(four["W"], "hops")
    for part in range(2):  # markers of several transactions shift offsets
        produce(four["W"], "hops", [b"%d" % (part * 10 + n) for n in range(10)])
        for name in ("W->X", "X->Y", "Y->Z"):
            source, target = name.split("->")
            flow = traced.flow(name, topics[source])
            copy(flow, topics[target], part * 10 + 10)
    expected: list[Found] = []
    for alias, topic in topics.items():
        (offset,) = offset_of(four[alias], topic, b"17")
        how = ("ORIGIN", None) if alias == "W" else ("EXACT", "same")
        expected.append((alias, topic, offset, *how))
    assert len({each[2] for each in expected}) > 1
    for alias, topic, offset, *_ in (expected[0], expected[-1]):
        status, rows = traced.trace(alias, topic, 0, offset)
        assert (status, brief(rows)) == (0, expected), (alias, rows)
    assert {each["flow"] for each in rows[1:]} == traced.flows.keys()
    assert len({each["time"] for each in rows}) == 1
    found = traced.trace("Y", "X.W.hops", "--key", "17", "--time", rows[0]["time"])
    assert found == (0, rows)
    done = typed("trace", "X", "W.hops", "0", expected[1][2], "-c", traced.file())
    assert done.returncode == 0, done.stderr
    heading, *lines = done.stdout.splitlines()
    assert heading.split()[:4] == ["CLUSTER", "TOPIC", "PARTITION", "OFFSET"]
    assert [line.split()[:4] for line in lines] == [
        [alias, topic, "0", str(offset)] for alias, topic, offset, *_ in expected
    ]


@pytest.mark.full
def test_a_ring(four: dict[str, str], tmp_path: Path) -> None:
    """A record goes round once: where it was written, it is not copied again, because
    its headers name that cluster.
    """
    ends = {"R1": four["W"], "R2": four["X"], "R3": four["Y"]}
    traced = Traced(ends, tmp_path)
    create_topic(four["W"], "ring")
    produce(four["W"], "ring", [b"0", b"1", b"2"])
    for name in ("R1->R2", "R2->R3"):
        copy(traced.flow(name, "ring", policy="identity"), "ring", 3)
    traced.flow("R3->R1", "ring", policy="identity")
    places = {
        alias: offset_of(bootstrap, "ring", b"2")[0]
        for alias, bootstrap in ends.items()
    }
    for alias, offset in places.items():
        status, rows = traced.trace(alias, "ring", 0, offset)
        assert status == 0, rows
        assert brief(rows) == [
            ("R1", "ring", places["R1"], "ORIGIN", None),
            ("R2", "ring", places["R2"], "EXACT", "same"),
            ("R3", "ring", places["R3"], "EXACT", "same"),
            ("R1", "ring", None, "FILTERED", None),
        ]
    assert rows[-1]["detail"].startswith("its mirror.via names R1/")


@pytest.mark.full
def test_merged_copies(four: dict[str, str], tmp_path: Path) -> None:
    """In one topic that two flows and a producer write, each record has its own origin,
    also with the flow that adds no header.
    """
    ends = {"P": four["W"], "Q": four["Y"], "M": four["X"]}
    traced = Traced(ends, tmp_path)
    for alias in ("P", "Q", "M"):
        create_topic(ends[alias], "merged")
        produce(ends[alias], "merged", [f"{alias}{n}".encode() for n in range(3)])
    first = traced.flow("P->M", "merged", policy="identity")
    copy(first, "merged", 6)
    other = traced.flow("Q->M", "merged", policy="identity", provenance=False)
    copy(other, "merged", 9)
    for alias in ("P", "Q"):
        key = f"{alias}1".encode()
        (at,) = offset_of(ends[alias], "merged", key)
        (there,) = offset_of(ends["M"], "merged", key)
        status, rows = traced.trace("M", "merged", 0, there)
        origin = (alias, "merged", at, "ORIGIN", None)
        assert brief(rows) == [origin, ("M", "merged", there, "EXACT", "same")]
        assert status == 0
    assert brief(traced.trace("M", "merged", 0, 1)[1]) == [
        ("M", "merged", 1, "ORIGIN", None)
    ]


_COMPACTED = {
    "cleanup_policy": "compact",
    "segment_ms": "100",
    "min_cleanable_dirty_ratio": "0.0001",
}


def _abort(bootstrap: str, topic: str) -> None:
    client = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    client.init_transactions(30)
    client.begin_transaction()
    end = end_offsets(bootstrap, topic)[0]
    client.produce(topic, key=b"aborted", value=b"v", partition=0)
    assert client.flush(30) == 0
    client.abort_transaction(30)
    # A transaction has ended before its marker is in the log.
    wait_for(lambda: end_offsets(bootstrap, topic)[0] == end + 2)


def _reasons(four: dict[str, str], traced: Traced) -> SparklessFlow:
    """Make one record of each kind; returns the flow."""
    s, t = four["W"], four["X"]
    for topic in ("why", "gone", "keys", "twice", "rest"):
        create_topic(s, topic)
    flow = traced.flow(
        "S->T", "why|gone|keys|twice|rest",
        transform="tests.functions:no_poison_masked", dead_letter_topic="dead",
    )  # fmt: skip
    cluster_id = (
        AdminClient({"bootstrap.servers": t}).list_topics(timeout=30).cluster_id
    )
    produce(s, "why", [b"expired", b"plain"])
    for key in (b"secret", b"void", b"poison"):
        produce(s, "why", [key], value=key)
    via = [("mirror.via", f"T/{cluster_id}".encode())]
    produce(s, "why", [b"loop"], headers=via)
    _abort(s, "why")
    produce(s, "why", [b"last"])
    produce(s, "gone", [b"0"])
    produce(s, "keys", [b"k", b"k"])
    produce(s, "twice", [b"0"])
    copy(flow, "S.why", 4)
    delete_records(t, "S.why", 1)
    alter_topic(t, "S.keys", **_COMPACTED)
    produce(s, "gone", [b"1", b"2", b"3"])
    delete_records(s, "gone", 3)
    time.sleep(0.2)  # segments end by the clock
    produce(s, "keys", [b"k"])
    reset = ["flow", "reset", "S/T", "--to", "earliest", "--topic", "twice", "--yes"]
    done = mirror(*reset, "-c", traced.file())
    assert done.exit_code == 0, done.stderr
    copy(flow, "S.twice", 2)
    with Witness(t) as witness, flow.slot() as slot:
        witness.begin("S.gone")
        copy_until(witness, slot, flow.lease(60), count=2, timeout=60)
    wait_for(lambda: len(read_topic(t, "S.keys")[0]) < 3)
    produce(s, "why", [b"behind"])
    return flow


def test_a_record_of_each_reason(four: dict[str, str], tmp_path: Path) -> None:
    """What keeps a record from the copy is named, with its place if it has one; with
    another configuration, the same records are missing and different, and that alone
    is an error.
    """
    ends = {"S": four["W"], "T": four["X"], "U": four["Y"]}
    traced = Traced(ends, tmp_path)
    flow = _reasons(four, traced)
    t = four["X"]
    at = {
        message.key(): message.offset() for message in read_topic(four["W"], "why")[0]
    }

    def traced_to(topic: str, offset: int) -> tuple[int, list[Found], str]:
        status, rows = traced.trace("S", topic, 0, offset)
        made = [each for each in rows if each["flow"]]
        return status, brief(made), rows[-1]["detail"]

    def why(key: bytes) -> tuple[int, list[Found], str]:
        return traced_to("why", at[key])

    def there(key: bytes) -> int:
        return offset_of(t, "S.why", key)[0]

    copied = ("T", "S.why", there(b"plain"), "EXACT", "same")
    assert why(b"plain")[:2] == (0, [copied])
    masked = ("T", "S.why", there(b"secret"), "EXACT", "transformed")
    assert why(b"secret")[:2] == (0, [masked])
    none = ("T", "S.why", None)
    assert why(b"void")[:2] == (0, [(*none, "REMOVED", None)])
    (letter,) = offset_of(t, "dead", b"poison")
    assert why(b"poison")[:2] == (0, [("T", "dead", letter, "DEAD_LETTER", None)])
    assert why(b"loop")[:2] == (0, [(*none, "FILTERED", None)])
    assert why(b"expired")[:2] == (0, [("T", "S.why", 0, "EXPIRED", None)])
    behind = why(b"behind")
    assert behind[:2] == (0, [(*none, "BEHIND", None)])
    assert behind[2] == f"copied up to offset {at[b'behind']}: it is the next"
    lost = traced_to("gone", 1)
    assert lost[:2] == (0, [("T", "S.gone", None, "LOST", None)])
    assert "DELETED" in lost[2]
    assert "offsets 1 to 2" in lost[2]
    assert traced_to("keys", 0)[:2] == (0, [("T", "S.keys", 0, "COMPACTED", None)])
    assert traced_to("twice", 0)[:2] == (
        0,
        [
            ("T", "S.twice", offset, how, "same")
            for offset, how in zip(
                offset_of(t, "S.twice", b"0"), ("EXACT", "REPEAT"), strict=True
            )
        ],
    )
    again = offset_of(t, "S.twice", b"0")[1]
    assert len(traced.trace("T", "S.twice", 0, again)[1]) == 3

    copy(traced.flow("T->U", "S.why"), "T.S.why", 3)
    made = traced.trace("S", "why", 0, at[b"expired"])
    assert made[0] == 0  # it had expired before the second flow could copy it
    assert [each["how"] for each in made[1]] == ["ORIGIN", "EXPIRED", "BEFORE"]
    del traced.flows["T->U"]
    for offset, word in ((at[b"loop"] + 1, "aborted"), (at[b"loop"] + 2, "marker")):
        status, rows = traced.trace("S", "why", 0, offset)
        assert (status, [each["how"] for each in rows]) == (0, ["NO_RECORD"])
        assert word in rows[0]["detail"]
    letters = traced.trace("T", "dead", 0, letter)[1]
    assert brief(letters)[0] == ("S", "why", at[b"poison"], "ORIGIN", None)

    produce(four["W"], "rest", [b"0"])
    store = StatusStore(("S->T",))
    told = partition_status("rest", 0, state="FAULTED", reason="it is refused")
    show(store, "S->T", partitions=(told,))
    with StatusServer(store, "127.0.0.1", 0) as server:
        status, rows = traced.trace("S", "rest", 0, 0, "--url", server.url)
    assert (status, rows[1]["how"]) == (0, "FAULTED")
    assert rows[1]["detail"].startswith("it is refused; nothing of the partition")
    with flow.connected() as (_, target):
        control.change_pauses(target, flow.config().flows["S->T"], "rest", paused=True)
    assert traced_to("rest", 0)[:2] == (0, [("T", "S.rest", None, "PAUSED", None)])

    for setting in ("transform", "dead_letter_topic"):
        del traced.flows["S->T"][setting]
    assert why(b"void")[:2] == (1, [(*none, "MISSING", None)])
    status, (wrong,), detail = why(b"secret")
    assert (status, wrong[3:]) == (1, ("EXACT", "differ"))
    assert detail == "value differs from byte 0 of 6"
    traced.ends["T"] = "127.0.0.1:1"
    status, (unseen,), detail = why(b"plain")
    assert (status, unseen[3:]) == (1, ("UNKNOWN", None))
    assert "127.0.0.1:1" in detail
    traced.ends |= {"S": "127.0.0.1:1", "T": t}
    status, rows = traced.trace("T", "S.why", 0, copied[2])
    assert (status, brief(rows)) == (
        1,
        [
            ("S", "why", at[b"plain"], "UNKNOWN", None),
            ("T", "S.why", copied[2], "EXACT", None),
        ],
    )


@pytest.mark.full
def test_what_a_flow_did_not_copy_itself(four: dict[str, str], tmp_path: Path) -> None:
    """With `start: latest`, what was there before is not missing; nor is what
    MirrorMaker 2 copied, of which the map knows only where it begins. The copy of a
    topic that was deleted since is one still.
    """
    source, target = four["Y"], four["X"]
    traced = Traced({"L": source, "T": target}, tmp_path)
    for topic in ("late", "adopted"):
        create_topic(source, topic)
        produce(source, topic, [b"0"])
    flow = traced.flow("L->T", "late|adopted", start="latest").own()
    produce(target, "L.adopted", [b"0"])
    produce(source, "late", [b"1"])
    copy(flow, "L.late", 1)
    status, rows = traced.trace("L", "late", 0, 0)
    assert (status, brief(rows)[1:]) == (0, [("T", "L.late", None, "BEFORE", None)])

    with flow.connected() as (near, far):  # as `mirror adopt` writes it
        ids = [near.topics(["adopted"]), far.topics(["L.adopted"])]
        floor = Block(
            topic="adopted", partition=0, target_topic="L.adopted",
            topic_id=ids[0]["adopted"].topic_id, copy_id=ids[1]["L.adopted"].topic_id,
            runs=np.array([(0, 0, 0)]),
        )  # fmt: skip
        append(far, "L.offset-map.internal", [(b"", *encode([floor]))])
    status, rows = traced.trace("L", "adopted", 0, 0)
    assert (status, brief(rows)[1:]) == (0, [("T", "L.adopted", None, "EARLIER", None)])
    status, rows = traced.trace("T", "L.adopted", 0, 0)
    assert (status, brief(rows)) == (
        0,
        [
            ("L", "adopted", None, "EARLIER", None),
            ("T", "L.adopted", 0, "COPIED", None),
        ],
    )

    delete_topic(source, "late")
    wait_for(lambda: not topic_exists(source, "late"))
    create_topic(source, "late")
    (there,) = offset_of(target, "L.late", b"1")
    status, rows = traced.trace("T", "L.late", 0, there)
    assert (status, brief(rows)) == (
        0,
        [("L", "late", None, "EXPIRED", None), ("T", "L.late", there, "COPIED", None)],
    )
    assert "a topic that was deleted since" in rows[0]["detail"]


@pytest.mark.full
def test_a_key_in_several_partitions(four: dict[str, str], tmp_path: Path) -> None:
    """The first record with the key, at the time or after it, is the one that an
    ordinary consumer finds first by its time, whichever partition it is in.
    """
    traced = Traced({"K": four["Y"], "T": four["X"]}, tmp_path)
    traced.flow("K->T", "keyed")
    create_topic(four["Y"], "keyed", 3, retention_ms="-1")
    client = producer(four["Y"])
    for number, key in enumerate([b"a", b"ab", b"b", b"", b"a", b"ab", b"a"]):
        more = {"timestamp": 1_700_000_000_000 + number, "partition": 2 - number % 3}
        for each in (b"other", key):
            client.produce("keyed", key=each, value=b"v", **more)
    assert client.flush(30) == 0
    records = [
        (message.timestamp()[1], message.partition(), message.offset())
        for each in read_topic(four["Y"], "keyed").values()
        for message in each
        if message.key() == b"a"
    ]
    for since in (0, 1, 4, 5):
        first = min(each for each in records if each[0] >= 1_700_000_000_000 + since)
        at = f"@{1_700_000_000_000 + since}"
        _, rows = traced.trace("K", "keyed", "--key", "a", "--time", at)
        assert (rows[0]["partition"], rows[0]["offset"]) == first[1:], since
        assert rows[1]["detail"] == "nothing of the partition is copied yet"


def test_what_is_no_place_of_a_record(four: dict[str, str], tmp_path: Path) -> None:
    """Each is refused with one message, and the exit code of a wrong command line; a
    time that no calendar has is shown as its number.
    """
    traced = Traced({"U": four["Y"], "V": four["Z"]}, tmp_path)
    traced.flow("U->V", "usage")
    create_topic(four["Y"], "usage", message_timestamp_after_max_ms=str((1 << 63) - 1))
    produce(four["Y"], "usage", [b"0"], timestamp=10**17)
    future = ("--key", "0", "--time", "2999-01-01T00:00:00Z")
    for words, message in (
        (("N", "usage", 0, 0), 'there is no cluster "N"'),
        (("U", "usages", 0, 0), 'cluster U has no topic "usages"'),
        (("U", "usage", 1, 0), "there is no 1"),
        (("U", "usage", 0, 1), "the log ends at offset 1"),
        (("U", "usage", *future), "2999-01-01T00:00:00Z is in the future"),
        (("U", "usage", 0), "pass PARTITION and OFFSET, or --key and --time"),
        (
            ("U", "usage", 0, 0, *future),
            "pass PARTITION and OFFSET, or --key and --time",
        ),
    ):
        done = traced.typed(*words)
        text = " ".join(done.stderr.replace("│", " ").split())
        assert (done.exit_code, message in text) == (2, True), (words, done.stderr)
        assert not done.stdout
    assert " @100000000000000000 " in traced.typed("U", "usage", 0, 0).stdout
    done = traced.typed("U", "usage", "--key", "other", "--time", "earliest")
    assert (done.exit_code, "no record with key other" in done.stderr) == (1, True)


@pytest.mark.full  # Spark takes long to start
def test_a_partition_that_is_set_aside(
    clusters: dict[str, PlaygroundCluster],
    standing: StandingMirror,
    topic_name: str,
    tmp_path: Path,
) -> None:
    """Only the running service knows why it does not copy a partition; without it, the
    record is not copied yet, and a note says that more is not known.
    """
    a, b = clusters["a"].bootstrap, clusters["b"].bootstrap
    source = f"F{topic_name[-8:]}"
    create_topic(a, topic_name)
    create_topic(b, f"{source}.{topic_name}", max_message_bytes="2000")
    produce(a, topic_name, [b"0"], value=bytes(9000))
    traced = Traced({source: a, "G": b}, tmp_path)
    name = f"{source}->G"
    traced.flow(name, topic_name, sync_topic_configs=False, emit_heartbeats=False)
    config = yaml.safe_load(traced.file().read_text())
    with standing.hosting(config) as mirror:
        mirror.wait_until(lambda found: found["flows"][0]["faulted"])
        status, rows = traced.trace(source, topic_name, 0, 0, "--url", mirror.url)
    assert (status, [each["how"] for each in rows]) == (0, ["ORIGIN", "FAULTED"])
    assert "MESSAGE_SIZE_TOO_LARGE" in rows[1]["detail"]
    done = traced.typed(source, topic_name, 0, 0, "--url", "http://127.0.0.1:1")
    assert (done.exit_code, "BEHIND" in done.stdout) == (0, True)
    assert "is not known: no service answers at http://127.0.0.1:1" in done.stderr
