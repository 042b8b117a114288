"""What a pair costs beside the data: `python -m tests.benchmarks.pair_cost`.

The service's own threads, without Spark, in this process: those of the flow that rests
and of the journals, then that which follows 1,000 commits a second. The kernel's clock
of each thread says how much of a core it takes.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
import tempfile
import threading
import time
from typing import TYPE_CHECKING, Annotated

from confluent_kafka import Consumer, TopicPartition
from rich.console import Console
from rich.table import Table
import typer

from mirror.offsets.groups import Copy
from mirror.pairs import selection
from mirror.playground.brokers import playground
from mirror.service.groups import CHECKPOINTS, GroupJobs
from mirror.service.pairs import PairFollower
from mirror.service.scheduler import Jobs
from mirror.service.standby import EndsJob
from mirror.status.store import StatusStore
from tests.harness.admin import create_topic
from tests.harness.application import Application
from tests.harness.configurations import configuration
from tests.harness.slots import SparklessFlow, copy_until
from tests.harness.switching import pair_of
from tests.harness.waiting import wait_for
from tests.harness.witness import Witness

if TYPE_CHECKING:
    from collections.abc import Iterator

    from confluent_kafka import KafkaError

    from mirror.config.schema import MirrorConfig

_TOPIC = "cost"
_PARTITIONS = 16
_GROUPS = 20
_WARM_UP_SECONDS = 15.0


def main(
    *,
    seconds: Annotated[float, typer.Option(help="Of each measurement.")] = 75.0,
    commits_per_second: Annotated[int, typer.Option(help="0: none.")] = 1000,
) -> None:
    """Measure, and print the cores that each thread takes."""
    table = Table("WHAT", "THREAD", "CORES")
    with (
        tempfile.TemporaryDirectory(prefix="mirror-cost-") as scratch,
        playground(("a", "b"), root=Path(scratch, "clusters"), given=False) as made,
    ):
        ends = [(name.upper(), each.bootstrap) for name, each in made.items()]
        for _, bootstrap in ends:
            create_topic(bootstrap, _TOPIC, _PARTITIONS)
        document = pair_of(ends[0], ends[1], _TOPIC)
        document["defaults"]["emit_heartbeats"] = True
        config = configuration(document)
        with _resting(config):
            for thread, cores in _measured(seconds).items():
                table.add_row("at rest", thread, f"{cores:.5f}")
        if commits_per_second:
            with _following(ends[0][1], ends[1][1], commits_per_second) as taken:
                before, began = len(taken), time.monotonic()
                found = _measured(seconds)
                rate = (len(taken) - before) / (time.monotonic() - began)
                for thread, cores in found.items():
                    table.add_row(f"{rate:.0f} commits/s", thread, f"{cores:.5f}")
    Console().print(table)


def _measured(seconds: float) -> dict[str, float]:
    """The cores that mirror's threads take, by name."""
    time.sleep(_WARM_UP_SECONDS)
    threads = [each for each in threading.enumerate() if "mirror-" in each.name]
    before, began = [_spent(each) for each in threads], time.monotonic()
    time.sleep(seconds)
    took = time.monotonic() - began
    return {
        each.name: (_spent(each) - then) / took
        for each, then in zip(threads, before, strict=True)
    }


def _spent(thread: threading.Thread) -> float:
    """Seconds of a core."""
    clock = Path(f"/proc/self/task/{thread.native_id}/schedstat")
    return int(clock.read_text().split()[0]) / 1e9


@contextlib.contextmanager
def _resting(config: MirrorConfig) -> Iterator[None]:
    """The jobs of the flow that rests, and the readers of both journals."""
    flow = config.flows["B->A"]
    store = StatusStore(tuple(config.flows))
    groups = GroupJobs(flow, dict, store=store, tell=lambda *_: None)
    jobs = Jobs(
        flow.name,
        (config.clusters["B"], config.clusters["A"]),
        [
            *groups.heartbeats(rests=True),
            EndsJob(flow, store=store, notes=selection.noted(config, flow.name)).job(),
        ],
        store=store,
        ids={},
    )
    with contextlib.closing(PairFollower(config, store)) as follower:
        follower.start()
        with contextlib.closing(jobs):
            jobs.start()
            yield


@contextlib.contextmanager
def _following(source: str, target: str, per_second: int) -> Iterator[list[str]]:
    """Groups commit, each commit in a request of its own; gives the name of the group
    for each commit that the broker took.
    """
    topic = f"{_TOPIC}-commits"
    create_topic(source, topic, 1)
    assert Application(topic, 1, "app").write(source, 1000)
    copying = SparklessFlow(
        source=source, target=target, topic=topic, alias="F",
        settings={"groups": "app-.*"},
    )  # fmt: skip
    flow = copying.own()
    with flow.slot() as slot, Witness(target) as witness:
        witness.begin(copying.copy)
        copy_until(witness, slot, flow.lease(60), count=1000, timeout=60)
    config = copying.config()
    followed = config.flows[copying.name]
    store = StatusStore((followed.name,))
    copies = {topic: Copy(topic=copying.copy, partitions=1)}
    groups = GroupJobs(followed, lambda: copies, store=store, tell=lambda *_: None)
    jobs = Jobs(
        followed.name,
        (config.clusters[followed.source], config.clusters[followed.target]),
        [each for each in groups.jobs() if each.name == CHECKPOINTS],
        store=store,
        ids={},
    )
    taken: list[str] = []
    stop = threading.Event()
    members = [
        threading.Thread(target=_commit, args=(source, n, per_second, stop, taken))
        for n in range(_GROUPS)
    ]
    for member in members:
        member.start()
    try:
        with contextlib.closing(jobs):
            jobs.start()
            wait_for(lambda: store.flow(followed.name).follows_commits)
            yield taken
    finally:
        stop.set()
        for member in members:
            member.join()


def _commit(
    source: str, number: int, per_second: int, stop: threading.Event, taken: list[str]
) -> None:
    """One group's share of the commits."""
    topic = f"{_TOPIC}-commits"
    group = f"app-{number}"

    def committed(error: KafkaError | None, _: object) -> None:
        if error is None:
            taken.append(group)

    client = Consumer(
        {"bootstrap.servers": source, "group.id": group, "on_commit": committed}
    )
    at, due = 0, time.monotonic()
    while not stop.is_set():
        at = at % 999 + 1
        client.commit(offsets=[TopicPartition(topic, 0, at)], asynchronous=True)
        client.poll(0)
        due += _GROUPS / per_second
        stop.wait(max(0.0, due - time.monotonic()))
    client.close()


if __name__ == "__main__":
    typer.run(main)
