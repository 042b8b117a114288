"""`mirror verify --by content` of a partition that is too long for one task."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
import multiprocessing
import time
from typing import TYPE_CHECKING, Any

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

pytestmark = [pytest.mark.integration, pytest.mark.full]

_COUNT, _OTHERS = 1_200_000, 1_500_000
_LOST = 777_777
_NOW = int(time.time() * 1000)
_MOST_MEMORY = 500 << 20


def _write(bootstrap: str, topic: str, numbers: Iterable[int]) -> None:
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
    _write(a, topic_name, range(_COUNT))
    middle = _COUNT // 3
    _write(b, flow.copy, range(middle))
    _write(b, flow.copy, range(-_OTHERS, 0))
    _write(b, flow.copy, (n for n in range(middle, _COUNT) if n != _LOST))

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
    assert (part.account.equal, part.account.foreign) == (_COUNT - 1, _OTHERS)
    assert peak < _MOST_MEMORY
