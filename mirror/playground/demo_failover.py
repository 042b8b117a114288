"""The end of the demo: cluster A dies, and a group goes on at B.

Main function: `fail_over`. The group reads with an ordinary Kafka client, so what it
got, twice or never, is counted from outside; the failover is the command that people
type.
"""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from dataclasses import dataclass
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from kafka import KafkaConsumer
from kafka.errors import KafkaError

from mirror.errors import PlaygroundError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from mirror.playground.cluster import PlaygroundCluster
    from mirror.playground.screen import Screen

GROUP = "billing"
_COMMAND_SECONDS = 120.0
_READ_SECONDS = 60.0
_POLL_MS = 500
_QUIET_POLLS = 10
"""So many polls without a record: the group has read everything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Handover:
    """What the group read of the records that were copied."""

    on_a: int
    on_b: int
    twice: int
    never: int
    seconds: float
    """From the death of A to the group's first record on B."""

    @property
    def exact(self) -> bool:
        return self.on_b > 0 and not (self.twice or self.never)


def fail_over(
    screen: Screen,
    clusters: dict[str, PlaygroundCluster],
    config: Path,
    *,
    topics: Sequence[str],
    records: int,
    await_checkpoint: Callable[[float], object],
) -> Handover:
    """Let the group read half of the records on A, kill A, fail over, read on at B.

    `records` were copied; `await_checkpoint` waits for a checkpoint that is newer than
    this time, in epoch seconds.

    Raises:
        PlaygroundError: the group cannot read, or the failover fails.
    """
    on_a = _read(clusters["A"].bootstrap, topics, most=records // 2)
    screen.say(f"group {GROUP} has read {on_a.total()} of {records} records on A")
    await_checkpoint(time.time())
    clusters["A"].kill()
    died = time.monotonic()
    screen.say("killed cluster A (SIGKILL); mirror failover 'A->B' says:")
    _command(screen, config)
    arrivals: list[float] = []
    on_b = _read(
        clusters["B"].bootstrap,
        topics,
        most=records,
        arrived=lambda: arrivals.append(time.monotonic()),
    )
    read = on_a + on_b
    return Handover(
        on_a=on_a.total(),
        on_b=on_b.total(),
        twice=read.total() - len(read),
        never=records - len(read),
        seconds=min(arrivals, default=died) - died,
    )


def _command(screen: Screen, config: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "mirror", "failover", "A/B", "-c", config, "--yes"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None, "it is a pipe"
        for line in process.stdout:
            screen.say(f"  {line.rstrip()}")
        code = process.wait(_COMMAND_SECONDS)
    if code:
        raise PlaygroundError(f"mirror failover ended with exit code {code}")


def _read(
    bootstrap: str,
    topics: Sequence[str],
    *,
    most: int,
    arrived: Callable[[], object] = lambda: None,
) -> Counter[bytes]:
    """The keys that the group reads until nothing more comes, or at least `most`; they
    are committed.
    """
    keys: Counter[bytes] = Counter()
    began, quiet = time.monotonic(), 0
    try:
        with closing(
            KafkaConsumer(
                *topics,
                bootstrap_servers=bootstrap,
                group_id=GROUP,
                isolation_level="read_committed",
                auto_offset_reset="earliest",
                enable_auto_commit=False,
            )
        ) as consumer:
            while sum(keys.values()) < most and quiet < _QUIET_POLLS:
                polled = consumer.poll(_POLL_MS)
                if polled:
                    arrived()
                # Before the group has its partitions, silence says nothing.
                quiet = 0 if polled or not consumer.assignment() else quiet + 1
                for batch in polled.values():
                    keys.update(record.key for record in batch)
                if time.monotonic() - began > _READ_SECONDS:
                    raise PlaygroundError(f"group {GROUP} reads too slowly")
            consumer.commit()
    except KafkaError as error:
        raise PlaygroundError(f"group {GROUP} cannot read: {error}") from error
    return keys
