"""Switches and failovers as people run them: `mirror switch` in a process of its own.

Main type: `Switch`. `pair_of` writes a configuration of two clusters.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from typing import IO, TYPE_CHECKING, Any, Self
import uuid

from confluent_kafka import Consumer, TopicPartition
import pytest

from mirror.clusters.reach import Reach
from mirror.pairs import roles
from mirror.pairs.journal import Entry, JournalWriter, Kind, StepState
from mirror.playground.secured import PASSWORDS
from tests.harness.admin import create_topic
from tests.harness.application import Application
from tests.harness.configurations import configuration
from tests.harness.metadata import allow
from tests.harness.service import RunningMirror
from tests.harness.waiting import crowd, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from mirror.playground.cluster import PlaygroundCluster


def pair_of(one: tuple[str, str], other: tuple[str, str], topic: str) -> dict[str, Any]:
    """A configuration of two clusters, alias and bootstrap, of which the first one is
    active. No other test of these clusters may use both aliases: their journals keep
    the pair's role.
    """
    return {
        "clusters": {a: {"bootstrap_servers": b} for a, b in (one, other)},
        "defaults": {
            "topics": [topic],
            "tasks": 1,
            # A flow counts as running once its first lease has ended.
            "lease_seconds": 2,
            "groups": [f"app-{topic}"],
            "emit_heartbeats": False,
            # Other tests emit some on the same clusters.
            "heartbeats_replication": False,
            "emit_checkpoints_seconds": 1,
        },
        "flows": {f"{one[0]}->{other[0]}": {}, f"{other[0]}->{one[0]}": {}},
        "recovery": {
            f"{one[0]}<->{other[0]}": {"active": one[0], "fence": "confirmed"}
        },
    }


def secured_pair_of(
    one: tuple[str, PlaygroundCluster], other: tuple[str, PlaygroundCluster], topic: str
) -> dict[str, Any]:
    """The same with clusters that have users: mirror is a super user, and switches
    fence by ACLs.
    """
    document = pair_of((one[0], ""), (other[0], ""), topic)
    document["recovery"] = {f"{one[0]}<->{other[0]}": {"active": one[0]}}
    document["defaults"]["sync_topic_acls"] = False
    for alias, cluster in (one, other):
        assert cluster.sasl is not None
        document["clusters"][alias] = {
            "bootstrap_servers": cluster.sasl.bootstrap,
            **cluster.sasl.client_config,
            "sasl_username": "admin",
            "sasl_password": PASSWORDS["admin"],
        }
    return document


def make_active(document: dict[str, Any], source: str, target: str, epoch: int) -> None:
    """Write to both journals what a switch of the document's only pair writes."""
    config = configuration(document)
    (pair,) = config.recovery
    run = uuid.uuid4().hex
    with Reach(config.clusters, client_id="test") as reach:
        for alias in (target, source):
            writer = JournalWriter(reach(alias), pair)
            for number, step in enumerate((roles.ROLE, roles.END)):
                writer.write(
                    Entry(
                        pair=pair, run=run, number=number, kind=Kind.SWITCH,
                        epoch=epoch, source=source, target=target, step=step,
                        state=StepState.DONE, at=time.time(), by="test",
                    )
                )  # fmt: skip


class Played:
    """A running pair of two clusters, with an application that goes along; a context
    manager. Its group has read a half of what was written before.
    """

    def __init__(
        self,
        clusters: Mapping[str, PlaygroundCluster],
        topic: str,
        tag: str,
        folder: Path,
        *,
        secured: bool = False,
    ) -> None:
        """`tag`: what the aliases begin with, which no other test uses. `secured`: the
        clusters have users, of whom alice is fenced; the application is none of them.
        """
        self.active, self.other = f"{tag}A", f"{tag}B"
        self.ends = {
            self.active: clusters["a"].admin_bootstrap,
            self.other: clusters["b"].admin_bootstrap,
        }
        self.application = Application(topic, 2, f"app-{topic}")
        self._topic, self._folder = topic, folder
        for bootstrap in self.ends.values():
            create_topic(bootstrap, topic, 2)
        if secured:
            allow(self.ends[self.active], "alice", "WRITE", topic)
            made = zip(self.ends, clusters.values(), strict=True)
            document = secured_pair_of(*made, topic)
        else:
            document = pair_of(*self.ends.items(), topic)
        self._mirror = RunningMirror(document, folder)

    def __enter__(self) -> Self:
        self._mirror.__enter__()
        self._mirror.wait_running(f"{self.active}->{self.other}")
        first = self.ends[self.active]
        self.application.write(first, 100)
        self.application.consume(first, [self._topic], most=50)
        return self

    def __exit__(self, *args: object) -> None:
        self._mirror.__exit__(*args)

    def settle(self) -> None:
        """Wait until all is copied, and the group's position is known there."""
        flow = f"{self.active}->{self.other}"
        self._mirror.wait_copied(self.ends[self.active], self._topic, flow=flow)
        self._mirror.wait_checkpoints(flow)

    def kill(self) -> None:
        """SIGKILL to the service."""
        self._mirror.kill_driver()

    def start(self) -> None:
        """Start the service again."""
        self._mirror.start()

    def switch(self, *words: str, kill_at: str = "") -> Switch:
        flow = f"{self.active}/{self.other}"
        return Switch(self._folder, "switch", flow, "--yes", *words, kill_at=kill_at)

    def shown(self) -> Any:
        """What `mirror pair` says."""
        return json.loads(command(self._folder, "pair", "-o", "json"))["pairs"][0]

    def go_on(self) -> None:
        """The other cluster is active now: the application writes and reads there, and
        over both clusters its group has read every record once.
        """
        self.active, self.other = self.other, self.active
        here = self.ends[self.active]
        self.application.write(here, 20)
        self.application.consume(here, [self._topic, f"{self.other}.{self._topic}"])
        self.application.require_each_once()


class Switch:
    """`mirror switch` or `failover` in a process of its own."""

    def __init__(
        self, folder: Path, *words: str, kill_at: str = "", host: str = ""
    ) -> None:
        """`kill_at`: SIGKILL as soon as it prints this. `host`: as `command`."""
        self._process = subprocess.Popen(
            _command(folder, words, host),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.said: list[str] = []
        self._out: list[str] = []
        pipes = [(self._process.stdout, self._out), (self._process.stderr, self.said)]
        self._threads = [
            threading.Thread(target=self._listen, args=(pipe, lines, kill_at))
            for pipe, lines in pipes
            if pipe is not None
        ]
        for thread in self._threads:
            thread.start()

    def wait_for(self, text: str) -> None:
        """Wait until it prints this, as a result or as a message."""

        def there() -> bool:
            return any(text in line for line in (*self.said, *self._out))

        wait_for(lambda: there() or self._process.poll() is not None)
        if self._process.poll() is not None:
            self._end()  # its last words are heard
        assert there(), f"{self._out}\n{''.join(self.said)}"

    def _listen(self, pipe: IO[str], lines: list[str], kill_at: str) -> None:
        with pipe:
            for line in pipe:
                if kill_at and kill_at in line:
                    self._process.kill()
                lines.append(line)

    def kill_within(self, journal: str, step: str, delay: float) -> None:
        """SIGKILL `delay` seconds after the journal on this cluster says that the step
        has begun.
        """
        try:
            self.reaches(journal, step)
            time.sleep(delay)
        finally:
            self.kill()

    def reaches(self, journal: str, step: str, *, state: str = "BEGUN") -> None:
        """Wait until the journal on this cluster says that the step has begun, or that
        it is in another `state`, or the command has ended.
        """
        reader = Consumer(
            {
                "bootstrap.servers": journal,
                "group.id": "step-begun",
                "isolation.level": "read_committed",
            }
        )
        try:
            place = TopicPartition("mirror-journal.internal", 0)
            _, place.offset = reader.get_watermark_offsets(place, timeout=30)
            reader.assign([place])

            def reached() -> bool:
                message = reader.poll(0.02)
                if message is None or message.error():
                    return self._process.poll() is not None
                entry = json.loads(message.value() or b"{}")
                return (entry["step"], entry["state"]) == (step, state)

            # Each look takes one entry: with pauses it would see a step late.
            wait_for(reached, pause=0.0)
        finally:
            reader.close()

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """SIGSTOP, and SIGCONT when the block ends."""
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def dies(self, *, at_the_end: bool = False) -> None:
        """Wait until it was killed at what it printed. `at_the_end`: little comes after
        that, so it may have been quicker.
        """
        self._end()
        assert self._process.returncode in {-signal.SIGKILL, 0 if at_the_end else None}

    def kill(self) -> None:
        self._process.kill()
        self._end()

    def _end(self) -> str:
        self._process.wait(120 * crowd())
        for thread in self._threads:
            thread.join()
        return "".join(self._out)

    @property
    def printed(self) -> str:
        """On stdout, so far."""
        return "".join(self._out)

    def ends(self) -> int:
        """Its exit code."""
        self._end()
        return self._process.returncode

    def succeeds(self) -> str:
        """What it printed."""
        out = self._end()
        assert self._process.returncode == 0, f"{out}\n{''.join(self.said)}"
        return out

    def fails(self) -> str:
        """Its complaints."""
        out = self._end()
        assert self._process.returncode == 1, f"{out}\n{''.join(self.said)}"
        return "".join(self.said)


def command(folder: Path, *words: str, fails: bool = False, host: str = "") -> str:
    """What a command prints. `fails`: it also complains, with exit code 1. `host`: the
    name of the machine on which it runs; empty: this one's.
    """
    done = subprocess.run(
        _command(folder, words, host), check=False, capture_output=True, text=True
    )
    assert done.returncode == int(fails), done.stderr
    return done.stdout


def _command(folder: Path, words: Sequence[str], host: str) -> list[str]:
    file = str(folder / "mirror.yaml")
    made = [sys.executable, "-m", "mirror", *words, "-c", file]
    if not host:
        return made
    if shutil.which("unshare") is None:
        pytest.skip("no unshare, which gives a process another host name")
    as_root = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    named = ["sh", "-c", 'hostname "$0" && exec "$@"', host]
    return ["unshare", *as_root, "--uts", *named, *made]
