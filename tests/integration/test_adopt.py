"""Taking over from a real MirrorMaker 2 that stopped or was killed, and the way back.

MirrorMaker 2 comes from Kafka's own jars, as a process. Each test has an alias of its
own for the source, so that no test finds another's state.
"""

from __future__ import annotations

from dataclasses import dataclass
import json
import os
import signal
import subprocess
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer
import pytest
from typer.testing import CliRunner

from mirror.cli.main import app
from mirror.clusters.cluster import Cluster
from mirror.config.schema import ClusterConfig
from mirror.migration import mirrormaker
from tests.harness.admin import copied_records, create_topic, end_offsets, topic_exists
from tests.harness.load import NumberedLoad
from tests.harness.mm2 import PROPERTIES, start_mm2
from tests.harness.waiting import crowd, wait_for
from tests.harness.witness import assert_exactly_once, order_of, read_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    import contextlib
    from pathlib import Path

    from typer.testing import Result

    from mirror.playground.cluster import PlaygroundCluster
    from tests.benchmarks.processes import Service
    from tests.harness.service import RunningMirror
    from tests.harness.standing import StandingMirror

pytestmark = pytest.mark.integration

PARTITIONS = 3


@dataclass(slots=True, kw_only=True)
class Lab:
    """One flow, its configuration file, and the process that copies for it."""

    a: str
    b: str
    alias: str
    topic: str
    folder: Path
    load: NumberedLoad
    standing: StandingMirror
    exactly_once: bool
    mm2: Service | None = None
    more: dict[str, str]

    @property
    def copy(self) -> str:
        return f"{self.alias}.{self.topic}"

    @property
    def file(self) -> Path:
        return self.folder / PROPERTIES

    def start_mm2(self) -> None:
        self.mm2 = start_mm2(
            self.a, self.b, alias=self.alias, topic=self.topic, folder=self.folder,
            exactly_once=self.exactly_once, more=self.more,
        )  # fmt: skip

    def wait_copied(self, count: int) -> None:
        """Until the copy's end shows `count` records and markers."""

        def there() -> bool:
            assert self.mm2 is not None
            self.mm2.require_running()
            return sum(end_offsets(self.b, self.copy).values()) >= count

        wait_for(there, 150, 0.3)

    def end_mm2_amid_records(self, sign: int) -> None:
        with self.load.streaming(chunk=50, pause=0.05):
            wait_for(lambda: self._has_positions() == PARTITIONS, 150, 0.5)
            before = copied_records(self.b, self.copy)
            wait_for(lambda: copied_records(self.b, self.copy) > before + 100)
            self.end_mm2(sign)

    def _has_positions(self) -> int:
        """Of how many partitions MirrorMaker 2 has written a position."""
        written = read_topic(self.b, f"mm2-offsets.{self.alias}.internal").values()
        return len(
            {
                message.key()
                for messages in written
                for message in messages
                if b"MirrorSourceConnector" in (message.key() or b"")
            }
        )

    def end_mm2(self, sign: int) -> None:
        assert self.mm2 is not None
        os.kill(self.mm2._process.pid, sign)
        self.mm2._process.wait(150 * crowd())  # its own patience is over a minute
        self.close()

    def close(self) -> None:
        if self.mm2 is not None:
            self.mm2.stop()
            self.mm2 = None

    def mirror(self) -> contextlib.AbstractContextManager[RunningMirror]:
        """A service on the same flow."""
        return self.standing.hosting(
            {
                "clusters": {
                    self.alias: {"bootstrap_servers": self.a},
                    "B": {"bootstrap_servers": self.b},
                },
                "flows": {
                    f"{self.alias}->B": {
                        "topics": [self.topic],
                        "lease_seconds": 2,
                        "tasks": 1,
                        "emit_heartbeats": False,
                        "heartbeats_replication": False,
                    }
                },
            }
        )

    def command(self, *words: str) -> Result:
        return CliRunner().invoke(app, [*words, "-c", str(self.file)])

    def typed(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A command, as a person types it."""
        return subprocess.run(
            [sys.executable, "-m", "mirror", *words, "-c", str(self.file)],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def planned(self, *words: str) -> tuple[list[dict[str, Any]], str]:
        """The partitions that a dry run reports, and what it says besides."""
        done = self.command("adopt", *self._as_json, "--dry-run", *words)
        assert done.exit_code == 0, done.output
        return _partitions(done.stdout), done.stderr

    def adopt(self, *words: str) -> list[dict[str, Any]]:
        """The partitions that `mirror adopt` reports."""
        done = self.typed("adopt", *self._as_json, "--yes", *words)
        assert done.returncode == 0, done.stdout + done.stderr
        return _partitions(done.stdout)

    @property
    def _as_json(self) -> tuple[str, ...]:
        return ("-o", "json", "--topic", self.topic)


def _partitions(document: str) -> list[dict[str, Any]]:
    (flow,) = json.loads(document)["flows"]
    return [dict(each) for each in flow["partitions"]]


@pytest.fixture
def make_lab(
    clusters: dict[str, PlaygroundCluster],
    standing: StandingMirror,
    tmp_path: Path,
    topic_name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Callable[..., Lab]]:
    """Makes a lab; MirrorMaker 2 is ended with the test, however the test ends."""
    made: list[Lab] = []
    monkeypatch.setenv("MIRROR_SERVICE__GROUP", standing.group)  # for commands

    def make(*, exactly_once: bool, **more: str) -> Lab:
        a, b = clusters["a"].bootstrap, clusters["b"].bootstrap
        create_topic(a, topic_name, PARTITIONS)
        lab = Lab(
            a=a,
            b=b,
            alias=f"mm{topic_name[-8:]}",
            topic=topic_name,
            folder=tmp_path,
            load=NumberedLoad(a, topic_name, PARTITIONS),
            standing=standing,
            exactly_once=exactly_once,
            more={name.replace("_", "."): value for name, value in more.items()},
        )
        made.append(lab)
        return lab

    yield make
    for lab in made:
        lab.close()


@pytest.mark.parametrize(
    ("exactly_once", "sign"),
    [
        pytest.param(True, signal.SIGTERM, marks=pytest.mark.full),
        pytest.param(True, signal.SIGKILL, marks=pytest.mark.full),
        (False, signal.SIGKILL),
    ],
    ids=["exactly-term", "exactly-kill", "at-least-kill"],
)
def test_adopt_while_records_flow(
    make_lab: Callable[..., Lab], exactly_once: bool, sign: int
) -> None:
    """MirrorMaker 2 ends in the middle of its work, cleanly or by SIGKILL; after
    `mirror adopt` a service continues, and the copy has every record once and in order,
    including what an at-least-once MirrorMaker 2 had copied after its last position.
    """
    lab = make_lab(exactly_once=exactly_once, B_offset_flush_interval_ms="4000")
    lab.load.send(6000)
    lab.start_mm2()
    lab.wait_copied(6000)
    lab.end_mm2_amid_records(sign)
    unsure, _ = lab.planned("--most-records", "1")
    taken = _take_over(lab)
    if sign == signal.SIGKILL and not exactly_once:
        assert None not in {p["mm2_position"] for p in taken}, taken
        assert (copied := sum(p["copied"] for p in taken)) > 0, taken
        assert sum(p["may_repeat"] for p in unsure) >= copied, unsure
    with lab.mirror() as mirror:
        lab.load.send(1000)
        mirror.wait_copied(lab.a, lab.topic, timeout=150)
    assert_exactly_once(order_of(lab.b, lab.copy), lab.load.order)
    _no_group_would_miss_a_record(lab)


def _take_over(lab: Lab) -> list[dict[str, Any]]:
    """Adopt what ended: a dry run changes nothing and tells the same, and nothing is
    adopted twice.
    """
    planned, said = lab.planned()
    assert ("producers of MirrorMaker 2 will be fenced" in said) == lab.exactly_once
    assert not topic_exists(lab.b, f"mirror-progress.{lab.alias}.internal")
    taken = lab.adopt()
    assert [p["goes_on_at"] for p in taken] == [p["goes_on_at"] for p in planned]
    assert sum(p["may_repeat"] for p in taken) == 0, taken
    again = lab.command("adopt", "--yes")
    assert again.exit_code == 1
    assert "--replace" in again.stderr
    return taken


def _no_group_would_miss_a_record(lab: Lab) -> None:
    """A group continues at its record or before it, wherever it was on the source; at
    exactly its record in what mirror copied and in the last records that MirrorMaker 2
    copied.
    """
    copies = read_topic(lab.b, lab.copy)[0]
    end = end_offsets(lab.a, lab.topic)[0]
    exact = set()
    for offset in (1, end // 2, end - 600, end - 1):
        done = lab.command(
            *("group", "translate", "--topic", lab.topic, "--partition", "0"),
            *("--offset", str(offset), "-o", "json"),
        )
        assert done.exit_code == 0, done.output
        (answer,) = json.loads(done.stdout)["answers"]
        first = next(m for m in copies if m.offset() >= answer["other_offset"])
        key = first.key()
        assert key is not None
        number = int(key.split(b":")[1])
        assert number <= offset, answer
        if answer["exactness"] == "EXACT":
            assert number == offset, answer
            exact.add(offset)
    assert {end - 600, end - 1} <= exact


def test_who_is_at_work_writes_records(
    clusters: dict[str, PlaygroundCluster],
    topic_name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The marker with which a broker ends a dead producer's transaction does not count
    as activity; a record does, even while its transaction is open.
    """
    bootstrap = clusters["b"].bootstrap
    create_topic(bootstrap, topic_name, 1)
    target = Cluster(ClusterConfig(alias="B", bootstrap_servers=(bootstrap,))).connect()
    writer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic_name})
    writer.init_transactions(30)
    writer.begin_transaction()
    writer.produce(topic_name, b"left open")
    assert writer.flush(30) == 0

    def look_meanwhile(do: Callable[[], object]) -> mirrormaker.Activity:
        """It does this instead of waiting."""
        monkeypatch.setattr(mirrormaker, "time", SimpleNamespace(sleep=lambda _: do()))
        return mirrormaker.look(
            target, group=None, watched=[(topic_name, 0)], tell=print
        )

    def abort() -> None:
        writer.abort_transaction(30)
        wait_for(lambda: end_offsets(bootstrap, topic_name) == {0: 2})

    assert look_meanwhile(abort).growing == ()
    writer.begin_transaction()

    def write() -> None:
        writer.produce(topic_name, b"at work")
        assert writer.flush(30) == 0

    assert look_meanwhile(write).growing == (topic_name,)
    writer.abort_transaction(30)
    target.close()


@pytest.mark.full
def test_killed_before_it_wrote_a_position(make_lab: Callable[..., Lab]) -> None:
    """Killed before it first writes positions, MirrorMaker 2 has none at all: the copy
    alone shows how far it got, to the record.
    """
    lab = make_lab(exactly_once=False, B_offset_flush_interval_ms="600000")
    lab.load.send(5000)
    lab.start_mm2()
    lab.wait_copied(5000)
    lab.end_mm2(signal.SIGKILL)
    lab.load.send(1000)

    taken = lab.adopt()

    assert [p["mm2_position"] for p in taken] == [None] * PARTITIONS
    assert sum(p["copied"] for p in taken) == 5000
    assert {p["action"] for p in taken} == {"AHEAD"}
    with lab.mirror() as mirror:
        mirror.wait_copied(lab.a, lab.topic, timeout=150)
    assert_exactly_once(order_of(lab.b, lab.copy), lab.load.order)


@pytest.mark.full
def test_there_and_back(make_lab: Callable[..., Lab]) -> None:
    """`mirror adopt` refuses a running MirrorMaker 2 and takes over from one that was
    stopped in the middle of its work; `--back` refuses a running mirror and gives the
    flow back from a stopped one: after both changes every record is there once.
    """
    lab = make_lab(exactly_once=False, B_offset_flush_interval_ms="4000")
    lab.load.send(6000)
    lab.start_mm2()
    lab.wait_copied(6000)
    refused = lab.command("adopt", "--yes")
    assert refused.exit_code == 1
    assert "stop it first" in refused.stderr
    lab.end_mm2_amid_records(signal.SIGTERM)
    _take_over(lab)
    with lab.mirror() as mirror:
        lab.load.send(1000)
        mirror.wait_copied(lab.a, lab.topic, timeout=150)
        _no_group_would_miss_a_record(lab)
        refused = lab.command("adopt", "--back", "--yes")
        assert refused.exit_code == 1
        assert "stop it first" in refused.stderr
    copied = lab.load.total
    lab.load.send(1000)

    handed = lab.adopt("--back")

    assert sum(p["position"] for p in handed) == copied
    before = sum(end_offsets(lab.b, lab.copy).values())
    lab.start_mm2()
    lab.wait_copied(before + 1000)
    lab.load.send(500)
    lab.wait_copied(before + 1500)
    lab.end_mm2(signal.SIGTERM)
    assert_exactly_once(order_of(lab.b, lab.copy), lab.load.order)
