"""`mirror verify --by content`: copies by other tools, right ones and wrong ones.

The tool is an ordinary producer, so that each copy is exactly what its test wants. The
flow that is verified never ran. One partition is too long for one task.
"""

from __future__ import annotations

from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
import multiprocessing
import time
from typing import TYPE_CHECKING, Any

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
import pytest

from mirror.proofs.account import FindingKind
from tests.harness.admin import create_topic
from tests.harness.load import producer
from tests.harness.proofs import proven
from tests.harness.slot_processes import peak_memory
from tests.harness.slots import SparklessFlow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration

_COUNT = 120
_NOW = int(time.time() * 1000)
Found = tuple[FindingKind, int | None, int | None, int]
"""Kind, source offset, target offset, count."""


@dataclass(frozen=True)
class Record:
    """What is written to a log."""

    key: bytes | None
    value: bytes | None
    time: int
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass(frozen=True)
class Case:
    """A log and its copy, and what verify must say."""

    copy: Callable[[list[Record]], list[Record]]
    findings: frozenset[Found] = frozenset()
    equal: int = _COUNT
    foreign: int = 0
    source: tuple[Record, ...] = ()
    """Instead of the usual records."""
    trimmed: int = 0
    """How many records retention takes from the copy."""


def _usual() -> list[Record]:
    return [
        Record(
            key=None if number % 7 == 0 else b"k%d" % (number % 30),
            value=None if number % 11 == 5 else b"value" * (number % 9),
            time=_NOW + number,
            headers=(("h", b"%d" % number), ("h", None))[: number % 3],
        )
        for number in range(_COUNT)
    ]


def _others(count: int) -> list[Record]:
    return [Record(b"other", b"%d" % n, _NOW - n) for n in range(count)]


def _alike(count: int) -> tuple[Record, ...]:
    return (Record(b"alike", b"on", _NOW),) * count


def _changed(number: int, **values: object) -> Callable[[list[Record]], list[Record]]:
    def copy(log: list[Record]) -> list[Record]:
        return [*log[:number], replace(log[number], **values), *log[number + 1 :]]

    return copy


def _woven(log: list[Record]) -> list[Record]:
    """With two records of other writers after each."""
    others = iter(_others(2 * len(log)))
    return [each for one in log for each in (one, next(others), next(others))]


_CASES = {
    "right": Case(lambda log: log),
    "empty": Case(lambda log: log, equal=0, source=()),
    "missing": Case(
        lambda log: [*log[:40], *log[41:]],
        frozenset({(FindingKind.MISSING, 40, None, 1)}), equal=_COUNT - 1,
    ),
    "several-missing": Case(
        lambda log: [*log[:40], *log[45:]],
        frozenset({(FindingKind.MISSING, 40, None, 5)}), equal=_COUNT - 5,
    ),
    "value": Case(
        _changed(40, value=b"valuevaluX"),
        frozenset({(FindingKind.DIFFERENT, 40, 40, 1)}), equal=_COUNT - 1,
    ),
    "key": Case(
        _changed(40, key=b"K"),
        frozenset({(FindingKind.DIFFERENT, 40, 40, 1)}), equal=_COUNT - 1,
    ),
    "time": Case(
        _changed(40, time=_NOW),
        frozenset({(FindingKind.DIFFERENT, 40, 40, 1)}), equal=_COUNT - 1,
    ),
    "repeated": Case(  # at least once: it went back by twenty records
        lambda log: [*log[:60], *log[40:]],
        frozenset({(FindingKind.DOUBLED, 40, 60, 20)}),
    ),
    "all-twice": Case(
        lambda log: log * 2, frozenset({(FindingKind.DOUBLED, 0, _COUNT, _COUNT)})
    ),
    "swapped": Case(
        lambda log: [*log[:40], *log[41:80], log[40], *log[80:]],
        frozenset({(FindingKind.SWAPPED, 40, 79, 1)}), equal=_COUNT - 1,
    ),
    "woven": Case(_woven, foreign=2 * _COUNT),
    "woven-missing": Case(
        lambda log: [*_woven(log[:40]), *_woven(log[41:])],
        frozenset({(FindingKind.MISSING, 40, None, 1)}),
        equal=_COUNT - 1, foreign=2 * (_COUNT - 1),
    ),
    "others-first": Case(lambda log: [*_others(500), *log], foreign=500),
    "alike": Case(lambda log: log, equal=50, source=_alike(50)),
    "alike-missing": Case(  # which of them?
        lambda log: [*log[:20], *log[21:]],
        frozenset({(FindingKind.UNPROVEN, 10, None, 30)}), equal=20,
        source=(*_usual()[:10], *_alike(30), *_usual()[10:20]),
    ),
    "trimmed": Case(
        lambda log: log, frozenset(), equal=_COUNT - 20, trimmed=20
    ),
    "trimmed-missing": Case(  # one record expired, and which are the others?
        lambda log: [*_others(1), *log[10:]],
        frozenset({(FindingKind.UNPROVEN, 0, None, 9)}), equal=_COUNT - 10, trimmed=1,
    ),
    "tail": Case(  # nothing says how far another tool is
        lambda log: log[:-3],
        frozenset({(FindingKind.UNPROVEN, _COUNT - 3, None, 3)}), equal=_COUNT - 3,
    ),
}  # fmt: skip


def _write(bootstrap: str, logs: dict[str, list[Record]]) -> None:
    client = producer(bootstrap)
    for topic, log in logs.items():
        for each in log:
            client.produce(
                topic, key=each.key, value=each.value, timestamp=each.time,
                headers=list(each.headers), partition=0,
            )  # fmt: skip
    assert client.flush(30) == 0


def test_each_copy_gets_its_verdict(clusters: dict[str, PlaygroundCluster]) -> None:
    """Copies by another tool, some with planted faults: each fault is found with its
    kind and place, nothing else is, and all other records are equal.
    """
    a, b = clusters["a"].bootstrap, clusters["b"].bootstrap
    flow = SparklessFlow(source=a, target=b, topic="content-.*", alias="Content")
    logs = {
        f"content-{name}": list(case.source or _usual()) * (name != "empty")
        for name, case in _CASES.items()
    }
    for name in logs:
        create_topic(a, name, partitions=1)
        create_topic(b, f"Content.{name}", partitions=1)
    _write(a, logs)
    _write(
        b,
        {
            f"Content.{name}": _CASES[name.removeprefix("content-")].copy(log)
            for name, log in logs.items()
        },
    )

    ends = [
        TopicPartition(f"Content.content-{name}", 0, case.trimmed)
        for name, case in _CASES.items()
        if case.trimmed
    ]
    admin = AdminClient({"bootstrap.servers": b})
    for future in admin.delete_records(ends).values():
        future.result()

    told = proven(flow, by_content=True)

    found: dict[str, set[Found]] = defaultdict(set)
    for each in told.findings:
        found[each.topic].add((each.kind, each.source, each.target, each.count))
    keys = {each.topic: each.key for each in told.findings}
    assert keys["content-missing"] == keys["content-value"] == "k10"
    accounts = {each.of.topic: each.account for each in told.partitions}
    for name, case in _CASES.items():
        topic = f"content-{name}"
        assert (name, found[topic]) == (name, case.findings)
        equal = 0 if name == "empty" else case.equal
        assert (name, accounts[topic].equal) == (name, equal)
        assert (name, accounts[topic].foreign) == (name, case.foreign)
    discreet = proven(flow, by_content=True, keys=False).findings
    assert len(discreet) == len(told.findings)
    assert not any("key" in each.document() for each in discreet)


# ---- a long partition ----


_LONG, _OTHERS = 1_200_000, 1_500_000
_LOST = 777_777
_MOST_MEMORY = 500 << 20


def _write_numbers(bootstrap: str, topic: str, numbers: Iterable[int]) -> None:
    """Below zero: records of another writer."""
    client = producer(bootstrap, compression_type="lz4")
    for number in numbers:
        while True:
            try:
                client.produce(
                    topic, key=b"%d" % number, value=b"some value", partition=0,
                    timestamp=_NOW + max(number, 0) // 10,
                )  # fmt: skip
                break
            except BufferError:
                client.poll(0.1)
    assert client.flush(120) == 0


class InAnother:
    """Carries out tasks one by one in another process."""

    def __init__(self, pool: ProcessPoolExecutor) -> None:
        self._pool = pool

    def results(self, tasks: Iterable[Callable[[], Any]]) -> Iterator[Any]:
        for task in tasks:
            yield self._pool.submit(task).result()


def _measured(flow: SparklessFlow, result: Any) -> None:
    begun = time.monotonic()
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        found = proven(flow, by_content=True, runner=InAnother(pool))
        peaks = pool.submit(peak_memory).result(), peak_memory()
    result.put((found, time.monotonic() - begun, peaks))


@pytest.mark.full
def test_a_long_partition_in_bounded_memory(
    clusters: dict[str, PlaygroundCluster], topic_name: str
) -> None:
    """Over a million records, with more of another writer in one place: all are
    matched, the one that is missing is found, and the memory stays small.
    """
    a, b = clusters["a"].bootstrap, clusters["b"].bootstrap
    flow = SparklessFlow(source=a, target=b, topic=topic_name, alias="Long")
    for bootstrap, name in ((a, topic_name), (b, flow.copy)):
        create_topic(bootstrap, name, partitions=1)
    _write_numbers(a, topic_name, range(_LONG))
    middle = _LONG // 3
    _write_numbers(b, flow.copy, range(middle))
    _write_numbers(b, flow.copy, range(-_OTHERS, 0))
    _write_numbers(b, flow.copy, (n for n in range(middle, _LONG) if n != _LOST))

    context = multiprocessing.get_context("spawn")
    result = context.SimpleQueue()
    process = context.Process(target=_measured, args=(flow, result))
    process.start()
    found, seconds, (peak, of_driver) = result.get()
    process.join(30)

    print(f"{seconds:.1f} s, {peak >> 20} and {of_driver >> 20} MiB")
    (finding,) = found.findings
    assert (finding.kind, finding.source, finding.count) == (
        FindingKind.MISSING,
        _LOST,
        1,
    )
    (part,) = found.partitions
    assert (part.account.equal, part.account.foreign) == (_LONG - 1, _OTHERS)
    assert peak < _MOST_MEMORY
