"""How long a registry's schemas take to copy, what a look without news costs, how long
the first record of a new schema takes, and what a slot's ids take of memory.

`python -m tests.benchmarks.schemas` fills a registry, copies it into an empty one, and
looks again and again. Then a slot with `schemas: require`, whose job does not look,
copies records that each have a new schema of a new subject. Both registries are the one
that keeps ids; the figures are those of one machine with both on it. Each is printed
with its goal.
"""

from __future__ import annotations

import argparse
from concurrent.futures import ThreadPoolExecutor
import contextlib
import http.client
import json
from pathlib import Path
import statistics
import struct
import tempfile
import time
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
import psutil

from mirror.playground.brokers import playground
from mirror.records.schema_id_translation import IdMap
from mirror.records.schema_ids import Numbers
from mirror.schemas.registry.registry import RequestPace
from mirror.schemas.sync import sync
from mirror.status.states import SchemaState
from tests import tools
from tests.harness.admin import create_topic
from tests.harness.load import producer
from tests.harness.registry_process import AXONOPS_PROGRAM, axonops
from tests.harness.schemas import JSON, Raw, SchemaSides, avro
from tests.harness.slots import RunningLease, SparklessFlow

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.harness.registry_process import RegistryProcess

_FILLING = 4
_LOOKS = 13
"""As far apart as in a service: large lists are read as a whole once a minute."""
_SECONDS = 10.0
"""`schemas_seconds` by default."""
_NEW = 200
"""New schemas, of which the slowest two are beyond p99."""
_IDS = 100_000
"""Of a slot's memory."""
_COPY_GOAL = 300.0
"""Seconds for 50,000 versions; others in proportion."""


def _fill(url: str, numbers: range, versions: int) -> None:
    where = urlsplit(url)
    line = http.client.HTTPConnection(where.hostname or "", where.port)
    for number in numbers:
        for version in range(1, versions + 1):
            fields = [f"f{each}" for each in range(version)]
            line.request(
                "POST", f"/subjects/topic-{number}-value/versions",
                json.dumps({"schema": avro(f"T{number}", *fields)}), JSON,
            )  # fmt: skip
            answer = line.getresponse()
            said = answer.read()
            assert answer.status == http.client.OK, said
    line.close()


def _first_records(ends: Mapping[str, tuple[str, str]], alias: str) -> list[float]:
    """The seconds from the write of each record with a new schema until a consumer of
    the target has it. `alias`: whose claims there are.
    """
    (source, of_source), (target, of_target) = ends["A"], ends["B"]
    create_topic(source, "new", 1)
    flow = SparklessFlow(
        source={"bootstrap_servers": source, "schema_registry": {"url": of_source}},
        target={"bootstrap_servers": target, "schema_registry": {"url": of_target}},
        topic="new",
        alias=alias,
        settings={"schemas": "require", "policy": "identity"},
    ).own()
    consumer = Consumer({"bootstrap.servers": target, "group.id": "reader",
                         "isolation.level": "read_committed",
                         "fetch.wait.max.ms": 10})  # fmt: skip
    consumer.assign([TopicPartition("new", 0, OFFSET_BEGINNING)])
    sender, registry = producer(source, linger_ms=0), Raw(of_source)
    found = []
    with flow.slot() as slot:
        lease = RunningLease(slot, flow.lease(600))
        for number in range(_NEW):
            new = registry.register(f"new-{number}", avro(f"New{number}", "a"))
            began = time.monotonic()
            sender.produce("new", struct.pack(">bI", 0, new))
            assert sender.flush(30) == 0
            while (message := consumer.poll(0.1)) is None or message.error():
                assert not lease.ended
            found.append(time.monotonic() - began)
        lease.end()
    consumer.close()
    return found


def _used(registry: RegistryProcess) -> float:
    """Its CPU seconds."""
    assert registry._process is not None
    return sum(psutil.Process(registry._process.pid).cpu_times()[:2])


def _memory() -> int:
    """The bytes that a slot with `schemas_ids: translate` keeps for its ids."""
    known, ids = Numbers(), IdMap.of(dict(zip(range(_IDS), range(_IDS), strict=True)))
    known.add(range(1, _IDS + 1))
    return known.table.nbytes + ids.sources.nbytes + ids.targets.nbytes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--subjects", type=int, default=10_000)
    parser.add_argument("--versions", type=int, default=5)
    asked = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        made = stack.enter_context(
            playground(("a", "b"), root=folder / "clusters", given=False)
        )
        program = tools.path(AXONOPS_PROGRAM)
        a, b = (stack.enter_context(axonops(program, folder / n)) for n in "ab")
        parts = [range(n, asked.subjects, _FILLING) for n in range(_FILLING)]
        with ThreadPoolExecutor(_FILLING) as pool:
            list(pool.map(lambda part: _fill(a.url, part, asked.versions), parts))
        ends = {"A": (made["a"].bootstrap, a.url), "B": (made["b"].bootstrap, b.url)}
        sides = stack.enter_context(SchemaSides(ends, {"A->B": {}}))
        rate = sides.flow().schemas_requests_per_second
        with sides.ends(pace=RequestPace(rate)) as flow:
            began, used = time.monotonic(), time.process_time()
            before = _used(a), _used(b)
            found = sync(flow, levels_of=())
            seconds = time.monotonic() - began
            assert set(found.states) - {
                s for s, n in found.states.items() if not n
            } == {SchemaState.SYNCED}, found.problems
            count = len(found.writes)
            goal = _COPY_GOAL * count / 50_000
            print(f"first copy of {count:,} versions: {seconds:.1f} s (goal {goal:g}); "
                  f"requests to A and B per version: {flow.source.asked / count:.1f} "
                  f"and {flow.target.asked / count:.1f}; CPU seconds of the flow, A "
                  f"and B: {time.process_time() - used:.1f}, "
                  f"{_used(a) - before[0]:.1f} and {_used(b) - before[1]:.1f}"
                  )  # fmt: skip
            # This one reads what the copy wrote, which is news.
            assert not sync(flow, levels_of=()).writes
            subjects = [each.subject for each in found.subjects]
            walls, cpus, requests = [], [], flow.source.asked + flow.target.asked
            for look in range(_LOOKS):
                if look:
                    time.sleep(max(0.0, began + _SECONDS - time.monotonic()))
                some = set(subjects[look * 50 : (look + 1) * 50])
                began, used = time.monotonic(), time.process_time()
                assert not sync(flow, levels_of=some).writes
                walls.append(time.monotonic() - began)
                cpus.append(time.process_time() - used)
            requests = flow.source.asked + flow.target.asked - requests
            print(f"look without news: {statistics.median(walls):.2f} s (worst "
                  f"{max(walls):.2f} s; goal 2 s), {requests // _LOOKS} requests, "
                  f"{statistics.mean(cpus) / _SECONDS:.4f} core (goal 0.01)"
                  )  # fmt: skip
        found = sorted(_first_records(ends, sides.alias["A"]))
        print(f"first record of a new schema: {found[_NEW // 2]:.2f} s (p50), "
              f"{found[_NEW * 99 // 100]:.2f} s (p99; goal 1 s) after its write"
              )  # fmt: skip
        print(f"memory of a slot for {_IDS:,} ids: {_memory() / 1e6:.2f} MB (goal 2)")


if __name__ == "__main__":
    main()
