"""Rounds of failover, tail and failback in one run, with an application that counts."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
import json
import os
import signal
import threading
from typing import TYPE_CHECKING, Any

import pytest

from mirror.playground.brokers import playground
from tests.harness.admin import closed_ends
from tests.harness.application import Application
from tests.harness.switching import Played, Switch, command
from tests.harness.waiting import wait_for
from tests.harness.witness import count_keys

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from mirror.playground.cluster import PlaygroundCluster

pytestmark = [
    pytest.mark.integration,
    pytest.mark.full,
    pytest.mark.timeout(1800),  # five minutes each at a load of five per core
]

_ROUNDS = 10
_WAYS = ("replay", "export", "skip")


class Rounds(Played):
    """A pair whose first cluster dies again and again, and comes back."""

    def __init__(
        self,
        clusters: dict[str, PlaygroundCluster],
        topic: str,
        tag: str,
        folder: Path,
        *,
        transactions: bool = False,
    ) -> None:
        super().__init__(clusters, topic, tag, folder)
        self.application = Application(
            topic, 2, f"app-{topic}", transactions=transactions
        )
        self._clusters = clusters
        self._dying = clusters["a"]
        self._out = f"{self.active}/{self.other}"
        self._back = f"{self.other}/{self.active}"
        self._copy = f"{self.active}.{topic}"

    def round(self, way: str, *, node: int = 0, step: str = "") -> int:
        """There and back, with the tail settled this way; how many records it had.
        `node`: which broker of each cluster dies as this step of the way home begins.
        """
        application, topic = self.application, self._topic
        one, two = self.ends.values()
        self._all_translated()
        first = len(application.written)
        self._die_under_load()
        Switch(self._folder, "failover", self._out, "--yes").succeeds()
        copied, _ = count_keys(two, self._copy)
        left = set(application.written[first:]) - copied.keys()
        application.lost |= left
        self.go_on()

        self._dying.start()
        assert application.write(one, 0)  # a transaction that it left open ends
        closed_ends(one, topic)  # of several brokers, some may know less at first
        stored, _ = count_keys(one, topic)
        # The producer had no answer about what it wrote last.
        unanswered = stored.keys() - set(application.written)
        application.written += sorted(unanswered)
        left |= unanswered - copied.keys()
        application.lost |= left
        assert left <= stored.keys()
        assert self._tail() == _by_partition(left)
        self._settle(way, left)
        assert self._tail() == {}
        kept = Counter(stored.keys() - application.lost)
        assert count_keys(two, self._copy)[0] == kept

        flow = self._back.replace("/", "->")
        self._mirror.wait_running(flow)
        self._mirror.wait_copied(two, topic, flow=flow)
        self._go_home(node, step)
        self.go_on()
        self._mirror.wait_copied(one, topic, flow=self._out.replace("/", "->"))
        command(self._folder, "verify")
        return len(left)

    def require_each_once_there(self) -> None:
        """Each record is on both clusters once, but for what was exported or skipped,
        which is only where it was written.
        """
        written, lost = self.application.written, self.application.lost
        for (alias, bootstrap), gone in zip(
            self.ends.items(), (set[bytes](), lost), strict=True
        ):
            (other,) = self.ends.keys() - {alias}
            found = Counter[bytes]()
            for name in (self._topic, f"{other}.{self._topic}"):
                found += count_keys(bootstrap, name)[0]
            assert found == Counter(key for key in written if key not in gone)

    def _all_translated(self) -> None:
        """The group has read a part of what is there, and B knows how far."""
        one = self.ends[self.active]
        flow = self._out.replace("/", "->")
        self._mirror.wait_running(flow)
        self.application.write(one, 60)
        self.application.consume(
            one, [self._topic, f"{self.other}.{self._topic}"], most=40
        )
        self._mirror.wait_copied(one, self._topic, flow=flow)

        def looked(after: float) -> float:
            found = self._mirror.wait_until(
                lambda _: self._mirror.flow(flow)["checkpoint_at"] > after
            )
            (at,) = (f["checkpoint_at"] for f in found["flows"] if f["name"] == flow)
            return float(at)

        # The look that ends first may have begun before.
        looked(looked(self._mirror.flow(flow)["checkpoint_at"]))

    def _die_under_load(self) -> None:
        """The cluster dies when its copy has fallen behind."""
        application = self.application
        gone = threading.Event()
        with application.writing(self.ends[self.active], gone=gone) as stop:
            _wait_for_more(application.written)
            workers = self._mirror.worker_pids()
            for pid in workers:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP)
            _wait_for_more(application.written)
            self._dying.kill()
            gone.set()
            stop.set()
        for pid in workers:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def _go_home(self, node: int, step: str) -> None:
        words = ("failback", self._back, "--yes")
        home = Switch(self._folder, *words)
        if not node:
            home.succeeds()
            return
        home.reaches(self.ends[self.other], step)
        for cluster in self._clusters.values():
            cluster.kill(node)
        if home.ends():
            Switch(self._folder, *words).succeeds()
        for cluster in self._clusters.values():
            cluster.start(node)

    def _tail(self) -> dict[int, int]:
        """How many records `mirror tail list` names, by partition."""
        words = ("tail", "list", self._out, "-o", "json")
        shown: dict[str, Any] = json.loads(command(self._folder, *words))
        parts = shown["partitions"]
        assert {each["topic"] for each in parts} <= {self._topic}
        return {p["partition"]: p["records"] for p in parts if p["records"]}

    def _settle(self, way: str, left: set[bytes]) -> None:
        file = self._folder / "tail.jsonl"
        file.unlink(missing_ok=True)
        to = ("--to-file", str(file)) if way == "export" else ()
        command(self._folder, "tail", way, self._out, *to, "--yes")
        if way == "export":
            lines = [json.loads(line) for line in file.read_text().splitlines()]
            assert Counter(line["key"]["data"].encode() for line in lines) == Counter(
                left
            )
        elif way == "replay":
            self.application.lost -= left
            copies = [self._topic, self._copy]
            self.application.consume(self.ends[self.active], copies)
            self.application.require_each_once()


def _wait_for_more(written: list[bytes]) -> None:
    before = len(written)
    wait_for(lambda: len(written) > before + 100)


def _by_partition(keys: Iterable[bytes]) -> dict[int, int]:
    return Counter(int(key.partition(b":")[0]) for key in keys)


def test_ten_rounds(topic_name: str, tmp_path: Path) -> None:
    """Ten times the active cluster dies under load, applications fail over and it comes
    back: its tail is what the producer counts beyond the copy, is replayed, exported or
    skipped in turn, and applications go home. `mirror verify` finds nothing, and over
    both clusters the group has read each record once but for what was left out.
    """
    with playground(("a", "b"), root=tmp_path / "clusters", given=False) as made:
        with Rounds(made, topic_name, "RR", tmp_path) as rounds:
            for number in range(_ROUNDS):
                assert rounds.round(_WAYS[number % len(_WAYS)])
        rounds.require_each_once_there()
        rounds.application.require_each_once()


@pytest.mark.parametrize("transactions", [False, True], ids=["plain", "transactions"])
def test_three_nodes(topic_name: str, tmp_path: Path, *, transactions: bool) -> None:
    """The same with clusters of three brokers and three replicas of everything, also
    where the application writes in transactions and aborts some: all of A's brokers
    die, and on the way home one of each cluster dies, another one each time.
    """
    root = tmp_path / "clusters"
    tag = f"R3{int(transactions)}"
    with playground(("a", "b"), root=root, given=False, nodes=3) as made:
        with Rounds(
            made, topic_name, tag, tmp_path, transactions=transactions
        ) as rounds:
            steps = ("fence", "positions", "open")
            for node, (way, step) in enumerate(zip(_WAYS, steps, strict=True), 1):
                assert rounds.round(way, node=node, step=step)
        rounds.require_each_once_there()
        rounds.application.require_each_once()
