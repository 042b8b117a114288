"""Switches that call hooks: commands and POSTs that stop and move applications."""

from __future__ import annotations

import contextlib
from http.server import BaseHTTPRequestHandler, HTTPServer
import json
import sys
import threading
from typing import TYPE_CHECKING, Any, Self

from confluent_kafka import Producer
import pytest

from tests.harness.admin import create_topic
from tests.harness.application import Application
from tests.harness.rehearsal import Rehearsal
from tests.harness.service import RunningMirror
from tests.harness.switching import Switch, command, pair_of
from tests.harness.waiting import PATIENCE_SECONDS
from tests.harness.witness import read_topic

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration

_HOOK_SECONDS = 5

_RECORD = """
import json, os, pathlib, signal, sys, time
call = json.load(sys.stdin)
calls = pathlib.Path(sys.argv[1])
with calls.open("a") as file:
    file.write(json.dumps(call) + "\\n")
times = sum(json.loads(l)["hook"] == call["hook"] for l in calls.open())
"""


def hook(calls: Path, code: str = "") -> dict[str, Any]:
    """A command that records its calls; `code` runs after that, and knows how often it
    was called in `times`.
    """
    return {"command": [sys.executable, "-c", _RECORD + code, str(calls)]}


def called(calls: Path) -> list[dict[str, Any]]:
    lines = calls.read_text().splitlines() if calls.exists() else []
    return [json.loads(line) for line in lines]


class Operations:
    """An HTTP server that does what a POST to it says."""

    def __init__(self, act: Callable[[dict[str, Any]], int]) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        operations = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                document = json.loads(
                    self.rfile.read(int(self.headers["Content-Length"]))
                )
                operations.asked.append((self.headers["Authorization"], document))
                self.send_response(act(document))
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._listening = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._listening.server_port}/"
        self._thread = threading.Thread(
            target=self._listening.serve_forever, args=(0.05,)
        )
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._listening.shutdown()
        self._thread.join()
        self._listening.server_close()


def test_hooks_move_applications(
    clusters: dict[str, PlaygroundCluster], topic_name: str, tmp_path: Path
) -> None:
    """A switch in which only hooks move applications. The first one stops the producer
    only at its third call, the next ones are POSTs. The command is killed with SIGKILL
    by its own hook in step 8; run again, it calls that hook with the same id, and not
    those that are done. The producer and the group go on at the other cluster, and the
    group reads each record once. Step 9 sees the first write and the group.
    """
    ends = {"HA": clusters["a"].bootstrap, "HB": clusters["b"].bootstrap}
    for bootstrap in ends.values():
        create_topic(bootstrap, topic_name, 2)
    application = Application(topic_name, 2, f"app-{topic_name}")
    document = pair_of(("HA", ends["HA"]), ("HB", ends["HB"]), topic_name)
    calls, token = tmp_path / "calls", tmp_path / "token"
    token.write_text("t0ken-of-operations\n")
    stop_at = tmp_path / "stop"
    moved, read, done = (threading.Event() for _ in range(3))

    def consume() -> None:
        moved.wait()
        while not done.is_set():  # and commit each time
            application.consume(ends["HB"], [topic_name, f"HA.{topic_name}"], most=20)
            read.set()

    def act(asked: dict[str, Any]) -> int:
        if asked["hook"] == "start_consumers":
            moved.set()
            read.wait(PATIENCE_SECONDS)
        return 204

    with (
        Operations(act) as operations,
        RunningMirror(document, tmp_path) as mirror,
        contextlib.ExitStack() as stack,
    ):
        stack.callback(done.set)
        stack.callback(moved.set)
        mirror.wait_running("HA->HB")
        application.write(ends["HA"], 200)
        application.consume(ends["HA"], [topic_name], most=150)
        pair = document["recovery"]["HA<->HB"]
        pair["fence"] = "hook"
        pair["hooks"] = {
            "stop_producers": hook(
                calls,
                f"""
if times < 3:
    print("the pods are still there")
    sys.exit(75)
pathlib.Path({str(stop_at)!r}).touch()
""",
            ),
            "stop_consumers": {"url": operations.url, "token_file": str(token)},
            "redirect_producers": hook(
                calls, "if times == 1: os.kill(os.getppid(), signal.SIGKILL)"
            ),
            "start_consumers": {"url": operations.url, "token_file": str(token)},
        }
        (tmp_path / "mirror.yaml").write_text(json.dumps(document))
        consumer = threading.Thread(target=consume)
        consumer.start()
        with application.writing(ends["HA"]) as stop:
            switch = Switch(tmp_path, "switch", "HA/HB", "--yes")
            mirror.wait_until(lambda _: stop_at.exists())
            stop.set()
        switch.dies()
        assert len(called(calls)) == 4
        with application.writing(ends["HB"]):
            out = Switch(tmp_path, "switch", "HA/HB", "--yes").succeeds()
            done.set()
        consumer.join()

        stopped, redirected = called(calls)[:3], called(calls)[3:]
        assert {each["hook"] for each in stopped} == {"stop_producers"}
        assert {each["hook"] for each in redirected} == {"redirect_producers"}
        assert len(redirected) == 2
        for each in (stopped, redirected):
            assert len({call["call"] for call in each}) == 1
        asked = [document["hook"] for _, document in operations.asked]
        assert asked == ["stop_consumers", "start_consumers"]
        assert {a for a, _ in operations.asked} == {"Bearer t0ken-of-operations"}
        assert {d["run"] for _, d in operations.asked} == {stopped[0]["run"]}
        assert "redirect_producers called; start_consumers called" in out
        assert "first write on HB after" in out
        assert "1 of 1 group advances" in out
        assert "the last 1,000 records are equal in 2 of 2 partitions" in out
        application.consume(ends["HB"], [topic_name, f"HA.{topic_name}"])
        application.require_each_once()


def _copy_again(bootstrap: str, copy: str) -> None:
    """Write the last record of a copy once more, as it is."""
    found = read_topic(bootstrap, copy)[0][-1]
    client = Producer({"bootstrap.servers": bootstrap})
    client.produce(
        copy, found.value(), found.key(), partition=0, headers=found.headers(),
        timestamp=found.timestamp()[1],
    )  # fmt: skip
    assert client.flush(30) == 0


@pytest.mark.full
def test_hooks_that_do_not_do_it(
    clusters: dict[str, PlaygroundCluster], topic_name: str, tmp_path: Path
) -> None:
    """A hook that fails, one that hangs, and one that says that it is done while the
    producer goes on: each ends the switch, everything is undone, and the message names
    the hook that was called. The copy goes on, and what the hook printed is in the
    journal without the password. A switch without such a hook succeeds afterwards, and
    warns that somebody has written a record of the copy again.
    """
    ends = {"LA": clusters["a"].bootstrap, "LB": clusters["b"].bootstrap}
    create_topic(ends["LA"], topic_name, 1)
    application = Application(topic_name, 1, f"app-{topic_name}")
    document = pair_of(("LA", ends["LA"]), ("LB", ends["LB"]), topic_name)
    pair = document["recovery"]["LA<->LB"]
    calls = tmp_path / "calls"

    def fails(stop_producers: dict[str, Any]) -> str:
        pair["hooks"] = {"stop_producers": stop_producers}
        (tmp_path / "mirror.yaml").write_text(json.dumps(document))
        said = Switch(tmp_path, "switch", "LA/LB", "--yes").fails()
        assert "step fence failed: " in said
        assert "Everything was undone; hooks that were called" in said
        assert "stop_producers; what they stopped on LA must be started" in said
        return said

    with RunningMirror(document, tmp_path) as mirror:
        mirror.wait_running("LA->LB")
        pair["fence"] = "hook"
        said = fails(hook(calls, "print('login with password=s3same'); sys.exit(2)"))
        assert "hook stop_producers failed: exit code 2: login with pass" in said
        assert "s3same" not in said
        slow = hook(calls, "time.sleep(600)")
        said = fails({**slow, "timeout_seconds": 1.0})
        assert "hook stop_producers failed: no answer within 1.0 s" in said
        pair["block_seconds"] = 6
        with application.writing(ends["LA"]):
            said = fails(hook(calls))
        assert "although stop_producers called: " in said
        assert "records are still being written" in said
        assert len({each["run"] for each in called(calls)}) == 3
        (told,) = json.loads(command(tmp_path, "pair", "-o", "json"))["pairs"]
        assert told["active"] == "LA"
        assert not any(run["open"] for run in told["runs"])
        del pair["hooks"]
        pair["fence"], pair["block_seconds"] = "confirmed", 60
        (tmp_path / "mirror.yaml").write_text(json.dumps(document))
        _copy_again(ends["LB"], f"LA.{topic_name}")
        application.write(ends["LA"], 10)
        switch = Switch(tmp_path, "switch", "LA/LB", "--yes")
        out = switch.succeeds()
        assert "the last 1,000 records are equal in 0 of 1 partition" in out
        assert "1 finding among the last records, such as DOUBLED" in "".join(
            switch.said
        )
        assert application.consume(ends["LB"], [f"LA.{topic_name}"]) >= 10
    (told,) = read_topic(ends["LA"], "mirror-journal.internal").values()
    journal = b"".join(each.value() or b"" for each in told).decode()
    assert "login with password=***" in journal
    assert "s3same" not in journal


@pytest.mark.full
def test_a_hook_adds_its_own_time(
    clusters: dict[str, PlaygroundCluster], topic_name: str
) -> None:
    """Producers are blocked for as long as the hook that stops them takes, beside the
    time that the steps take without it, and no longer.
    """
    a, b = (clusters[name].bootstrap for name in "ab")
    create_topic(a, topic_name, 1)
    assert Application(topic_name, 1, f"app-{topic_name}").write(a, 10)
    blocks = []
    for seconds in (0, _HOOK_SECONDS):
        one, other = (f"{each}{seconds}{topic_name[-6:]}" for each in "AB")
        code = f"import time; time.sleep({seconds})"
        hooks = {"stop_producers": {"command": [sys.executable, "-c", code]}}
        with Rehearsal(
            (one, a), (other, b), topic_name, pair={"fence": "hook", "hooks": hooks}
        ) as rehearsal:
            rehearsal.copy(b, f"{one}.{topic_name}", 10)
            rehearsal.carry_out()
            assert rehearsal.run is not None
            block = rehearsal.run.block
            assert block is not None
            assert block.ended is not None
            blocks.append(block.ended - block.began)
    plain, longer = blocks
    print(f"without {plain:.2f} s, with a hook of {_HOOK_SECONDS} s {longer:.2f} s")
    assert longer >= _HOOK_SECONDS
    assert longer < plain + 2 * _HOOK_SECONDS
