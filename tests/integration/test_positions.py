"""Positions: what vanishes at the source, what is paused, and what is moved on purpose.

One service has three flows between one pair of clusters: LOSS continues whatever
happens, STOP waits for a decision, TIME begins at a given time.
"""

from __future__ import annotations

from contextlib import closing, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
import json
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

from confluent_kafka.admin import AdminClient
import httpx
import pytest
from typer.testing import CliRunner

from mirror.cli.main import app
from mirror.clusters.cluster import Cluster
from mirror.config.load import load
from mirror.proofs.runners import InProcess
from mirror.service.ownership import PositionUpdate, rewrite_progress
from tests.harness.admin import create_topic, delete_records, topic_exists
from tests.harness.load import producer
from tests.harness.waiting import PATIENCE_SECONDS, crowd, wait_for
from tests.harness.witness import eventually, keys_of, order_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from mirror.playground.cluster import PlaygroundCluster
    from tests.harness.service import RunningMirror
    from tests.harness.standing import StandingMirror

pytestmark = pytest.mark.integration

_BEGUN = time.time()
_START = datetime.fromtimestamp(_BEGUN - 1800, UTC)


class Lab:
    """A running service, its configuration file, and both clusters."""

    def __init__(self, mirror: RunningMirror, file: Path, a: str, b: str) -> None:
        self.mirror, self.file, self.a, self.b = mirror, file, a, b

    def put(self, topic: str, numbers: Iterable[int], mark: str = "") -> None:
        client = producer(self.a)
        for number in numbers:
            client.produce(topic, key=f"{mark}{number}".encode(), value=b"v" * 50)
        assert client.flush(30) == 0

    def copied(self, copy: str, count: int) -> list[bytes]:
        """The keys of the copy's only partition, once there are `count`."""
        try:
            return keys_of(eventually(self.b, copy, count))[0]
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.mirror.log_tail()}") from error

    def partition(self, topic: str) -> dict[str, Any]:
        for flow in self.mirror.status()["flows"]:
            for partition in flow["partitions"]:
                if partition["topic"] == topic:
                    return dict(partition)
        return {"state": "", "reason": "", "lost": 0, "position": -1}

    def wait_state(self, topic: str, state: str) -> dict[str, Any]:
        found: dict[str, Any] = {}

        def there() -> bool:
            found.update(self.partition(topic))
            return bool(found["state"] == state)

        wait_for(there)
        return found

    def command(self, *words: str) -> str:
        """Returns its stdout."""
        done = CliRunner().invoke(app, [*words, "-c", str(self.file)])
        assert done.exit_code == 0, done.output
        return done.stdout

    def typed(self, *words: str) -> str:
        """A command, as a person types it; returns its stdout."""
        done = subprocess.run(
            [sys.executable, "-m", "mirror", *words, "-c", str(self.file)],
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS * crowd(),  # a repair starts Spark
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def losses(self, topic: str) -> list[tuple[str, int, int | None]]:
        listed = json.loads(self.command("loss", "list", "-o", "json"))["losses"]
        return [
            (loss["cause"], loss["first"], loss["last"])
            for loss in listed
            if loss["topic"] == topic
        ]

    def delete_topic(self, topic: str) -> None:
        admin = AdminClient({"bootstrap.servers": self.a})
        admin.delete_topics([topic])[topic].result(30)
        wait_for(lambda: not topic_exists(self.a, topic))


@pytest.fixture(scope="module")
def lab(
    clusters: dict[str, PlaygroundCluster],
    standing: StandingMirror,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Lab]:
    a, b = clusters["a"].bootstrap, clusters["b"].bootstrap
    file = tmp_path_factory.mktemp("positions") / "mirror.yaml"
    create_topic(a, "time-0")
    client = producer(a)
    for number, age in enumerate((3600, 1801, 1799, 60)):
        moment = int((_BEGUN - age) * 1000)
        client.produce("time-0", key=b"%d" % number, timestamp=moment)
        assert client.flush(30) == 0
    common = {"lease_seconds": 2, "tasks": 1, "refresh_topics_seconds": 1}
    config = {
        "clusters": {
            **{name: {"bootstrap_servers": a} for name in ("LOSS", "STOP", "TIME")},
            "B": {"bootstrap_servers": b},
        },
        "flows": {
            "LOSS->B": {"topics": ["loss-.*"], **common},
            "STOP->B": {
                "topics": ["stop-.*"],
                "on_loss": "stop",
                "on_recreated_topic": "stop",
                **common,
            },
            "TIME->B": {
                "topics": ["time-.*"],
                "start": _START.isoformat(),
                **common,
            },
        },
    }
    file.write_text(json.dumps(config))  # JSON is YAML
    with standing.hosting(config) as mirror:
        for flow in config["flows"]:
            mirror.wait_running(flow)
        yield Lab(mirror, file, a, b)


def test_deleted_before_copied(lab: Lab) -> None:
    """What retention takes before it is copied is in the ledger with its exact range,
    counted in the status, and everything else is copied once.
    """
    topic = "loss-deleted"
    create_topic(lab.a, topic)
    lab.put(topic, range(50))
    lab.copied(f"LOSS.{topic}", 50)
    lab.typed("pause", "LOSS->B", "--topic", topic, "--yes")
    assert lab.wait_state(topic, "PAUSED")["position"] == 50
    lab.put(topic, range(50, 150))
    delete_records(lab.a, topic, 120)
    lab.typed("resume", "LOSS/B", "--yes")
    kept = [b"%d" % n for n in [*range(50), *range(120, 150)]]
    assert lab.copied(f"LOSS.{topic}", 80) == kept
    assert lab.losses(topic) == [("DELETED", 50, 119)]
    wait_for(lambda: lab.partition(topic)["lost"] == 70)
    lab.wait_state(topic, "RUNNING")


def test_stop_on_loss_waits_for_a_decision(lab: Lab) -> None:
    """With `on_loss: stop` nothing is left out until `mirror flow reset` says where to
    continue; the ledger then has what is left out.
    """
    topic, other = "stop-loss", "stop-other"
    create_topic(lab.a, topic)
    create_topic(lab.a, other)
    lab.put(topic, range(50))
    lab.copied(f"STOP.{topic}", 50)
    lab.command("pause", "STOP->B", "--topic", topic, "--yes")
    lab.wait_state(topic, "PAUSED")
    lab.put(topic, range(50, 100))
    delete_records(lab.a, topic, 70)
    lab.command("resume", "STOP->B", "--yes")
    reason = lab.wait_state(topic, "FAULTED")["reason"]
    assert "offsets 50 to 69" in reason
    assert "mirror flow reset" in reason
    lab.put(other, range(10))
    assert len(lab.copied(f"STOP.{other}", 10)) == 10
    assert len(order_of(lab.b, f"STOP.{topic}")[0]) == 50
    lab.typed("flow", "reset", "STOP->B", "--topic", topic, "--to", "earliest", "--yes")
    kept = [b"%d" % n for n in [*range(50), *range(70, 100)]]
    assert lab.copied(f"STOP.{topic}", 80) == kept
    assert lab.losses(topic) == [("SKIPPED", 50, 69)]
    wait_for(lambda: lab.partition(other)["position"] == 10)


def test_recreated_topic_goes_on(lab: Lab) -> None:
    """A topic that was deleted and re-created is copied from its new first record,
    after what was copied before; in between, the flow reports that it is gone.
    """
    topic = "loss-recreated"
    create_topic(lab.a, topic)
    lab.put(topic, range(100), "old-")
    lab.copied(f"LOSS.{topic}", 100)
    lab.delete_topic(topic)
    lab.mirror.wait_until(
        lambda _: any(topic in text for text in lab.mirror.flow("LOSS->B")["gone"])
    )
    create_topic(lab.a, topic)
    lab.put(topic, range(30), "new-")
    expected = [b"old-%d" % n for n in range(100)] + [b"new-%d" % n for n in range(30)]
    assert lab.copied(f"LOSS.{topic}", 130) == expected
    assert [cause for cause, _, _ in lab.losses(topic)] == ["RECREATED"]
    wait_for(lambda: not any(topic in t for t in lab.mirror.flow("LOSS->B")["gone"]))


def test_recreated_in_a_moment(lab: Lab) -> None:
    """A topic that is re-created at once, and soon has more records than the old one
    had, is still copied from its first record: it is not mistaken for the old one.
    """
    topic = "loss-in-a-moment"
    create_topic(lab.a, topic)
    lab.put(topic, range(20), "old-")
    lab.copied(f"LOSS.{topic}", 20)
    admin = AdminClient({"bootstrap.servers": lab.a})
    admin.delete_topics([topic])[topic].result(30)
    wait_for(lambda: not topic_exists(lab.a, topic), pause=0.01)
    create_topic(lab.a, topic)
    lab.put(topic, range(200), "new-")
    expected = [b"old-%d" % n for n in range(20)] + [b"new-%d" % n for n in range(200)]
    assert lab.copied(f"LOSS.{topic}", 220) == expected
    lab.mirror.wait_leases("LOSS->B")  # they could copy some again
    assert order_of(lab.b, f"LOSS.{topic}")[0] == expected


def test_stop_on_recreated_topic(lab: Lab) -> None:
    """With `on_recreated_topic: stop` nothing of the new topic is copied until `mirror
    flow reset` says where to continue.
    """
    topic = "stop-recreated"
    create_topic(lab.a, topic)
    lab.put(topic, range(40), "old-")
    lab.copied(f"STOP.{topic}", 40)
    lab.delete_topic(topic)
    create_topic(lab.a, topic)
    lab.put(topic, range(50), "new-")

    def refused() -> bool:
        shown = lab.partition(topic)
        return shown["state"] == "FAULTED" and "created again" in shown["reason"]

    wait_for(refused)
    assert len(order_of(lab.b, f"STOP.{topic}")[0]) == 40
    lab.command("flow", "reset", "STOP->B", "--topic", topic, "--to", "10", "--yes")
    expected = [b"old-%d" % n for n in range(40)]
    expected += [b"new-%d" % n for n in range(10, 50)]
    assert lab.copied(f"STOP.{topic}", 80) == expected


@pytest.mark.full
def test_a_pause_outlives_a_restart(lab: Lab) -> None:
    """A paused topic stays paused, with its position, also after a restart of the
    service; its neighbour is copied; after `resume` it continues where it was.
    """
    topic, other = "loss-paused", "loss-beside"
    create_topic(lab.a, topic)
    create_topic(lab.a, other)
    lab.put(topic, range(10))
    lab.copied(f"LOSS.{topic}", 10)
    shown = lab.command("pause", "LOSS->B", "--topic", topic, "--dry-run")
    assert topic in shown
    lab.mirror.wait_leases("LOSS->B")
    assert lab.partition(topic)["state"] == "RUNNING"
    lab.command("pause", "LOSS->B", "--topic", topic, "--yes")
    lab.wait_state(topic, "PAUSED")
    assert lab.mirror.terminate() == 0
    lab.put(topic, range(10, 20))
    lab.put(other, range(10))
    lab.mirror.start()
    lab.copied(f"LOSS.{other}", 10)
    wait_for(lambda: lab.partition(topic)["state"] == "PAUSED")
    wait_for(lambda: lab.partition(topic)["lag"] == 10)
    shown = lab.wait_state(topic, "PAUSED")
    assert (shown["position"], shown["since"] > 0) == (10, True)
    assert lab.mirror.flow("LOSS->B")["paused"] == 1
    assert len(order_of(lab.b, f"LOSS.{topic}")[0]) == 10
    lab.command("resume", "LOSS->B", "--topic", topic, "--yes")
    assert lab.copied(f"LOSS.{topic}", 20) == [b"%d" % n for n in range(20)]


def test_reset_while_the_service_runs(lab: Lab) -> None:
    """A running service takes up a position that is moved back, and copies nothing else
    again; a dry run moves nothing.
    """
    topic, other = "loss-reset", "loss-not-reset"
    for name in (topic, other):
        create_topic(lab.a, name)
        lab.put(name, range(30))
        lab.copied(f"LOSS.{name}", 30)
    words = ("flow", "reset", "LOSS->B", "--topic", topic, "--to", "20")
    planned = json.loads(lab.command(*words, "--dry-run", "-o", "json"))
    assert [(p["old"], p["new"], p["again"]) for p in planned["positions"]] == [
        (30, 20, 10)
    ]
    lab.mirror.wait_leases("LOSS->B")
    assert len(order_of(lab.b, f"LOSS.{topic}")[0]) == 30
    restarts = lab.mirror.flow("LOSS->B")["restarts"]
    lab.command(*words, "--yes")
    lab.put(topic, range(30, 40))
    expected = [b"%d" % n for n in [*range(30), *range(20, 40)]]
    assert lab.copied(f"LOSS.{topic}", 50) == expected
    assert order_of(lab.b, f"LOSS.{other}")[0] == [b"%d" % n for n in range(30)]
    assert lab.mirror.flow("LOSS->B")["restarts"] == restarts + 1


@pytest.mark.full
def test_repair_while_the_service_runs(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records that a flow left out are found, named by a dry run, and appended once
    while the service runs, which goes on by itself and shows the event.
    """
    topic, name = "loss-repair", "LOSS->B"
    create_topic(lab.a, topic)
    lab.put(topic, range(30))
    lab.copied(f"LOSS.{topic}", 30)
    config, _ = load(lab.file)
    with closing(Cluster(config.clusters["B"]).connect()) as target:
        rewrite_progress(  # as no mirror does: nothing notes what is left out
            config.flows[name], target,
            lambda known: PositionUpdate(
                positions={(topic, 0): replace(known[topic, 0], offset=33)}
            ),
        )  # fmt: skip
    lab.put(topic, range(30, 40))
    assert lab.copied(f"LOSS.{topic}", 37)[30:] == [b"%d" % n for n in range(33, 40)]
    words = ("repair", "append", name, "--topic", topic)

    with monkeypatch.context() as patched:  # Spark is for the real one
        patched.setattr(
            "mirror.cli.repair.proof_runner", lambda *_: nullcontext(InProcess())
        )
        typed = [*words, "-c", str(lab.file), "--dry-run", "-o", "json"]
        planned = CliRunner().invoke(app, typed)
    assert planned.exit_code == 1, planned.output
    (found,) = json.loads(planned.stdout)["findings"]
    assert [found[x] for x in ("kind", "source", "count")] == ["MISSING", 30, 3]
    assert (found["repair"], found["why"]) == ("append", "")
    assert len(order_of(lab.b, f"LOSS.{topic}")[0]) == 37
    done = lab.typed(*words, "--yes")
    assert done.splitlines()[1].split()[:4] == ["MISSING", f"{topic}-0@30", "-", "3"]

    lab.put(topic, range(40, 50))
    numbers = [*range(30), *range(33, 40), *range(30, 33), *range(40, 50)]
    assert lab.copied(f"LOSS.{topic}", 50) == [b"%d" % n for n in numbers]

    def told() -> list[dict[str, int]]:
        asked = f"{lab.mirror.url}/events?kind=copy-repaired"
        events = httpx.get(asked, timeout=PATIENCE_SECONDS).json()["events"]
        return [each["details"]["topics"] for each in events]

    wait_for(told)
    assert told() == [{topic: 3}]


def test_start_at_a_moment(lab: Lab) -> None:
    """A new flow with a time for `start` begins with the first record of that time or
    later; topics found after that begin at their first record.
    """
    assert lab.copied("TIME.time-0", 2) == [b"2", b"3"]
    create_topic(lab.a, "time-later")
    client = producer(lab.a)
    client.produce("time-later", key=b"old", timestamp=int((_BEGUN - 3600) * 1000))
    assert client.flush(30) == 0
    assert lab.copied("TIME.time-later", 1) == [b"old"]
