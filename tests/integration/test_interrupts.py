"""Ctrl-C and SIGTERM in commands of a pair: which run is open, and what to type next.

The process is the one that a person starts; each step of it is held when its work is
done and not yet noted. What is said is compared with the journal and with ACLs as
other clients see them, and the commands that it names are typed.
"""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import select
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, TopicPartition
import pytest
import yaml

from mirror.pairs import roles
from mirror.playground.secured import PASSWORDS
from tests.harness.admin import create_topic
from tests.harness.application import Application
from tests.harness.metadata import allow
from tests.harness.producers import add_users, all_acls, scram, write
from tests.harness.rehearsal import Rehearsal
from tests.harness.switching import pair_of
from tests.harness.waiting import crowd, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration

DENIED = "TOPIC_AUTHORIZATION_FAILED"
_HOLD = """
import sys, time
from dataclasses import replace
from mirror.cli import start
from mirror.recovery.steps import STEPS

name, what = sys.argv[1:3]
del sys.argv[1:3]
act = getattr(STEPS[name], what)

def held(stage):
    act(stage)
    print("stopped by the test", file=sys.stderr, flush=True)
    time.sleep(600)

STEPS[name] = replace(STEPS[name], **{what: held})
start.main()
"""
_SECONDS = 10.0


class Command:
    """A command in a process of its own, that writes to pipes or to a terminal."""

    def __init__(
        self,
        folder: Path,
        words: list[str],
        *,
        hold: tuple[str, str] | None = None,
        terminal: bool = False,
    ) -> None:
        code = ["-m", "mirror"] if hold is None else ["-c", _HOLD, *hold]
        file = ["-c", str(folder / "mirror.yaml")]
        self._terminal, inside = pty.openpty() if terminal else (-1, -1)
        self._process = subprocess.Popen(
            [sys.executable, *code, *words, *([] if "-c" in words else file)],
            stdin=inside if terminal else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        if terminal:
            os.close(inside)
        self._said = b""
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        while part := os.read(self._process.stdout.fileno(), 1 << 16):
            self._said += part

    @property
    def said(self) -> str:
        return self._said.decode()

    def waits(self, text: str) -> None:
        """Until it says this."""
        wait_for(lambda: text in self.said or self._process.poll() is not None)
        assert text in self.said, self.said

    def types(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def gets(self, *signals: signal.Signals) -> int:
        """It gets these signals, and ends soon; returns its exit code."""
        began = time.monotonic()
        for each in signals:
            self._process.send_signal(each)
        code = self.ends()
        assert time.monotonic() - began < _SECONDS * crowd()
        return code

    def ends(self) -> int:
        code = self._process.wait(200 * crowd())
        self._thread.join()
        assert self._process.stdout is not None
        self._process.stdout.close()
        if self._terminal >= 0:
            os.close(self._terminal)
        for wrong in ("Traceback", "Aborted"):
            assert wrong not in self.said, self.said
        return code

    def told(self, *signals: signal.Signals) -> tuple[str, dict[str, list[str]]]:
        """Interrupted: the line that says so, and the commands that follow it."""
        assert self.gets(*signals) == 130, self.said
        lines = self.said.splitlines()
        at = next(n for n, each in enumerate(lines) if each.startswith("interrupted"))
        print("\n".join(lines[at:]))
        ways = (each.partition(": ") for each in lines[at + 1 :])
        return lines[at], {what: shlex.split(line)[1:] for what, _, line in ways}


class Pair:
    """A pair with ACLs whose flow has copied all there is, and no service."""

    def __init__(
        self, secured: dict[str, PlaygroundCluster], topic: str, folder: Path
    ) -> None:
        self.topic, self._folder = topic, folder
        self.one, self.two = f"I{topic[-6:]}A", f"I{topic[-6:]}B"
        self.clusters = dict(zip((self.one, self.two), secured.values(), strict=True))
        sections = {}
        for alias, cluster in self.clusters.items():
            create_topic(cluster.admin_bootstrap, topic, 1)
            add_users(cluster, ["alice"])
            assert cluster.sasl is not None
            sections[alias] = {
                "bootstrap_servers": cluster.sasl.bootstrap,
                **cluster.sasl.client_config,
                "sasl_username": "admin",
                "sasl_password": PASSWORDS["admin"],
            }
        allow(self.clusters[self.one].admin_bootstrap, "alice", "WRITE", topic)
        self.rehearsal = Rehearsal(
            (self.one, ""), (self.two, ""), topic, clusters=sections,
            pair={"fence": "acl"}, sync_topic_acls=False,
        )  # fmt: skip

    @contextlib.contextmanager
    def ready(self) -> Iterator[Pair]:
        with self.rehearsal:
            here = self.clusters[self.one].admin_bootstrap
            assert Application(self.topic, 1, f"app-{self.topic}").write(here, 10)
            copy = f"{self.one}.{self.topic}"
            there = self.clusters[self.two].admin_bootstrap
            self.rehearsal.copy(there, copy, 10)
            self.rehearsal.see()
            self.write()
            yield self

    def write(self) -> None:
        document = yaml.safe_dump(self.rehearsal.document)
        (self._folder / "mirror.yaml").write_text(document)

    def runs(self, *words: str, **how: Any) -> Command:
        return Command(self._folder, list(words), **how)

    def switch(self, *more: str, kind: str = "switch", **how: Any) -> Command:
        return self.runs(kind, f"{self.one}/{self.two}", "--yes", *more, **how)

    def acls(self) -> list[set[tuple[Any, ...]]]:
        return [all_acls(each.admin_bootstrap) for each in self.clusters.values()]

    def noted(self) -> dict[str, Any]:
        """The pair's last entry in the journals, as an ordinary client reads it."""
        found: list[dict[str, Any]] = []
        for cluster in self.clusters.values():
            client = Consumer(
                {
                    "bootstrap.servers": cluster.admin_bootstrap,
                    "group.id": "noted",
                    "isolation.level": "read_committed",
                }
            )
            place = TopicPartition("mirror-journal.internal", 0, 0)
            with contextlib.closing(client):
                client.assign([place])
                _, end = client.get_watermark_offsets(place, timeout=30)
                while client.position([place])[0].offset < end:
                    message = client.poll(0.1)
                    if message is not None and message.key().decode().startswith(
                        self.one
                    ):
                        found.append(json.loads(message.value()))
        return max(found, key=lambda each: (each["at"], each["number"]))

    def alice(self, alias: str) -> str:
        """Why alice may not write there; empty: she may."""
        return write(scram(self.clusters[alias], "alice", "alice"), self.topic)

    def require_said(self, line: str, step: str) -> None:
        """What the command said is what the journals say."""
        noted = self.noted()
        assert (noted["step"], noted["state"]) == (step, "BEGUN")
        number = roles.STEPS.index(step) + 1
        assert line.startswith(f"interrupted in step {number} ({step}); run ")
        assert f"run {noted['run'][:8]} is open" in line


@pytest.fixture
def pair(
    secured_pair: dict[str, PlaygroundCluster], topic_name: str, tmp_path: Path
) -> Iterator[Pair]:
    with Pair(secured_pair, topic_name, tmp_path).ready() as made:
        yield made


def test_a_switch(pair: Pair) -> None:
    """In each step up to the one that makes B active, Ctrl-C or SIGTERM names the step
    and the run, and the command that it names undoes everything: ACLs are as before.
    In the step after that it names no way to undo, and the same command finishes it.
    """
    before = pair.acls()
    signals = (signal.SIGINT, signal.SIGTERM)
    for number, step in enumerate(roles.STEPS[:7]):
        held = pair.switch(hold=(step, "do"))
        held.waits("stopped by the test")
        line, ways = held.told(signals[number % 2])
        pair.require_said(line, step)
        blocks = number >= roles.STEPS.index("fence")
        assert (f"producers of {pair.one}" in line) is blocks
        undo = "undo"
        if step == roles.ROLE:
            undo = f"undo, unless {pair.two} is active by then"
        assert pair.acls() != before if blocks else pair.acls() == before
        if step == "drain":
            assert re.search(r"have been blocked for \d+ s$", line)
            assert pair.alice(pair.one) == DENIED
        assert set(ways) == {"go on", undo}
        undone = pair.runs(*ways[undo])
        assert undone.ends() == 0, undone.said
        assert pair.acls() == before
        assert (pair.noted()["step"], pair.noted()["state"]) == ("end", "UNDONE")
    held = pair.switch(hold=("redirect", "do"))
    held.waits("stopped by the test")
    line, ways = held.told(signal.SIGINT)
    pair.require_said(line, "redirect")
    assert line.endswith(f"and {pair.two} is active")
    assert "undo" not in str(ways)
    assert pair.alice(pair.two) == ""
    finished = pair.runs(*ways["go on"])
    assert finished.ends() == 0, finished.said
    assert (pair.noted()["step"], pair.noted()["state"]) == ("end", "DONE")
    assert pair.alice(pair.one) == DENIED


def test_it_goes_on(pair: Pair) -> None:
    """The same command goes on in the step in which it was interrupted while producers
    were blocked, and makes B active. While it undoes, it says so, and is run again.
    """
    before = pair.acls()
    held = pair.switch(hold=("drain", "do"))
    held.waits("stopped by the test")
    held.told(signal.SIGTERM)
    undoing = pair.switch("--abort", hold=("fence", "undo"))
    undoing.waits("stopped by the test")
    line, ways = undoing.told(signal.SIGINT)
    assert line.startswith("interrupted while step 3 (fence) was being undone; run ")
    assert pair.runs(*ways["undo"]).ends() == 0
    assert pair.acls() == before
    for step in ("fence", "positions", "prove"):
        held = pair.switch(hold=(step, "do"))
        held.waits("stopped by the test")
        line, ways = held.told(signal.SIGINT)
        pair.require_said(line, step)
    finished = pair.runs(*ways["go on"])
    assert finished.ends() == 0, finished.said
    assert (pair.alice(pair.one), pair.alice(pair.two)) == (DENIED, "")


def test_a_failover(pair: Pair) -> None:
    """While A is gone: before the role moves the failover is undone by the command that
    it names, and interrupted again it goes on. With --force nothing is said of A but
    that it was not asked.
    """
    pair.rehearsal.document["clusters"][pair.one]["bootstrap_servers"] = "127.0.0.1:1"
    pair.write()
    held = pair.switch(kind="failover", hold=("fence", "do"))
    held.waits("stopped by the test")
    line, ways = held.told(signal.SIGTERM)
    pair.require_said(line, "fence")
    assert "producers" not in line
    undone = pair.runs(*ways["undo"])
    assert undone.ends() == 0, undone.said
    forced = pair.switch("--force", kind="failover", hold=("drain", "do"))
    forced.waits("stopped by the test")
    asked = f"--force: {pair.one} was not asked"
    assert f"fence      {asked}: its fence is pending" in forced.said
    line, ways = forced.told(signal.SIGINT)
    pair.require_said(line, "drain")
    finished = pair.runs(*ways["go on"])
    assert finished.ends() == 0, finished.said
    assert f"consumers  {asked}" in finished.said
    assert "does not answer" not in forced.said + finished.said


def test_while_it_waits_and_asks(pair: Pair) -> None:
    """Interrupted while it asks, nothing was changed; while step 3 waits for people or
    asks them, a run is open, and its undoing is named. A second signal ends it at once.
    """
    flow = f"{pair.one}/{pair.two}"
    asking = pair.runs("switch", flow, terminal=True)
    asking.waits("[y/N]")
    assert asking.told(signal.SIGINT) == ("interrupted: nothing was changed", {})
    no = pair.runs("switch", flow, terminal=True)
    no.waits("[y/N]")
    no.types("n\n")
    assert no.ends() == 1
    assert "not confirmed" in no.said

    for each in pair.rehearsal.document["recovery"].values():
        each["fence"] = "confirmed"
    pair.write()
    stopped = pair.runs("switch", flow, terminal=True)
    stopped.waits("[y/N]")
    stopped.types("y\n")
    stopped.waits("Have all producers")
    line, ways = stopped.told(signal.SIGTERM)
    pair.require_said(line, "fence")
    assert "may have been stopped" in line

    client = Application(pair.topic, 1, "busy")
    with client.writing(pair.clusters[pair.one].admin_bootstrap):
        waiting = pair.switch()
        waiting.waits("fence: waiting")
        line, ways = waiting.told(signal.SIGINT)
    pair.require_said(line, "fence")
    assert pair.runs(*ways["undo"]).ends() == 0

    held = pair.switch(hold=("assess", "do"))
    held.waits("stopped by the test")
    twice = held.gets(signal.SIGTERM, signal.SIGTERM)
    assert twice in {130, -signal.SIGTERM}
    again = pair.runs("pair")
    assert again.ends() == 0
    assert "assess BEGUN" in again.said


def silent() -> socket.socket:
    """It takes connections and says nothing."""
    return socket.create_server(("127.0.0.1", 0))


@pytest.mark.parametrize(
    "words",
    ["switch A/B", "failover A/B --dry-run", "drill A/B", "tail list A/B", "pair"],
)
def test_before_a_cluster_answers(tmp_path: Path, words: str) -> None:
    """While it waits for a cluster that is silent, a command ends at once, whichever it
    is; it has changed nothing.
    """
    document = pair_of(("A", ""), ("B", ""), "orders")
    ends = [*document["clusters"].values()]
    for number in (signal.SIGINT, signal.SIGTERM):
        with silent() as one, silent() as other:
            for each, there in zip(ends, (one, other), strict=True):
                each["bootstrap_servers"] = f"127.0.0.1:{there.getsockname()[1]}"
            (tmp_path / "mirror.yaml").write_text(yaml.safe_dump(document))
            command = Command(tmp_path, words.split())
            assert select.select([one, other], [], [], 60 * crowd())[0]
            line, ways = command.told(number)
            assert line in {"interrupted", "interrupted: nothing was changed"}
            assert ways == {}
