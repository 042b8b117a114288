"""Groups that switch to the target and come back, judged by the records they read.

One service mirrors plain, transactional, compacted, filtered and merged topics, and is
killed and started again meanwhile. Groups of every lag move to the target, where an
ordinary consumer of each group goes on; some move back. At the end sources and service
die, and the target alone gives the same answers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
import json
from pathlib import Path
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from mirror.cli.main import app
from mirror.playground.brokers import playground
from tests.harness.admin import copied_records
from tests.harness.group_moves import (
    COMPACTED,
    FILTERED,
    MERGED,
    PLAIN,
    TRANSACTIONS,
    Loads,
    Reader,
    Seen,
    behind,
    commit_for,
    committed,
    log_of,
    newest,
    run_java,
)
from tests.harness.service import RunningMirror
from tests.harness.waiting import wait_for
from tests.harness.witness import read_topic

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typer.testing import Result

    from mirror.playground.cluster import PlaygroundCluster

pytestmark = [pytest.mark.integration, pytest.mark.full]

LAGS = (0, 10, 1000, 10_000)
RECORDS = 12_000
"""Of each topic, before the service is killed; more come while it is."""
KIP_848 = "lag-10"
BACK = "back"
COPIES = {
    PLAIN: PLAIN,
    TRANSACTIONS: TRANSACTIONS,
    COMPACTED: COMPACTED,
    FILTERED: f"F.{FILTERED}",
}
"""Of topics that one flow alone writes."""
PARTITIONS = len(COPIES) + 1
"""Of these copies; one is empty."""
_TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
_SHARE = Path(__file__).parents[1] / "java" / "ReadShareGroup.java"
_SIEVE = """
import pyarrow as pa
import pyarrow.compute as pc

def even(batch):
    rest = pc.bit_wise_and(batch.column("offset"), pa.scalar(1, pa.int64()))
    return batch.filter(pc.equal(rest, 0))
"""


@dataclass
class Switch:
    """The running service, and what groups had not read on the sources."""

    clusters: dict[str, PlaygroundCluster]
    mirror: RunningMirror
    config: Path
    loads: Loads
    unread: dict[tuple[str, str], list[Seen]] = field(default_factory=dict)
    """Per group and topic; `other` is the merged topic on the second source."""

    @property
    def a(self) -> str:
        return self.clusters["a"].bootstrap

    @property
    def b(self) -> str:
        return self.clusters["b"].bootstrap

    def wait_copied(self) -> None:
        c = self.clusters["c"].bootstrap
        for topic in (PLAIN, TRANSACTIONS, COMPACTED, MERGED):
            self.mirror.wait_copied(self.a, topic, flow="M->B")
        self.mirror.wait_copied(self.a, FILTERED, flow="F->B")
        self.mirror.wait_copied(c, MERGED, flow="N->B")

    def commit_groups(self) -> None:
        """Groups of each lag; in the merged topic another one on each source."""
        logs = {topic: log_of(self.a, topic) for topic in (*COPIES, MERGED)}
        other = log_of(self.loads.other, MERGED)
        groups = {f"lag-{lag}": lag for lag in LAGS} | {BACK: 1000}
        opposite = dict(zip(groups, reversed(list(groups.values())), strict=True))
        for group, lag in groups.items():
            offsets = {}
            for topic, log in logs.items():
                offsets[topic], self.unread[group, topic] = behind(log, lag)
            if group == KIP_848:
                with Reader(self.a, group, logs, protocol="consumer") as reader:
                    reader.join()
                    reader.commit(offsets)
            else:
                commit_for(self.a, group, offsets)
            place, self.unread[group, "other"] = behind(other, opposite[group])
            commit_for(self.loads.other, group, {MERGED: place})

    def command(self, *words: str) -> Result:
        done = CliRunner().invoke(app, ["group", *words, "-c", str(self.config)])
        assert done.exit_code == 0, done.output
        return done

    def typed(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A command, as a person types it."""
        done = subprocess.run(
            [sys.executable, "-m", "mirror", "group", *words, "-c", self.config],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return done

    def places(self, *more: str) -> dict[tuple[str, str, str], int]:
        """By flow, group and topic, where `group list` sends groups in partition 0."""
        shown = json.loads(self.command("list", "-o", "json", *more).stdout)
        return {
            (flow["name"], group["group"], place["topic"]): place["target_offset"]
            for flow in shown["flows"]
            for group in flow["groups"]
            for place in group["partitions"]
            if place["partition"] == 0
        }


@pytest.fixture(scope="module")
def switch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Switch]:
    root = tmp_path_factory.mktemp("switch")
    settings = {"log.cleaner.backoff.ms": "500"}
    with playground(
        ("a", "b", "c"), root=root / "clusters", settings=settings
    ) as clusters:
        a, b, c = (clusters[name].bootstrap for name in "abc")
        loads = Loads(a, c)
        loads.create_topics()
        service = root / "mirror"
        service.mkdir()
        (service / "sieve_of_a_test.py").write_text(_SIEVE)
        common = {
            "lease_seconds": 5,
            "tasks": 1,
            "emit_checkpoints_seconds": 1,
            "sync_group_offsets": True,
            "heartbeats_on_source": True,
            "emit_offset_syncs": True,
        }
        own = [PLAIN, TRANSACTIONS, COMPACTED, MERGED]
        config = {
            "clusters": {
                "M": {"bootstrap_servers": a, "request_timeout_seconds": 5},
                "F": {"bootstrap_servers": a, "request_timeout_seconds": 5},
                "N": {"bootstrap_servers": c, "request_timeout_seconds": 5},
                "B": {"bootstrap_servers": b},
            },
            "flows": {
                "M->B": {**common, "policy": "identity", "topics": own},
                "N->B": {**common, "policy": "identity", "topics": [MERGED]},
                "F->B": {
                    **common,
                    "topics": [FILTERED],
                    "transform": "sieve_of_a_test:even",
                    "offset_syncs_location": "target",
                },
            },
        }
        with RunningMirror(config, service) as mirror:
            made = Switch(clusters, mirror, service / "mirror.yaml", loads)
            loads.send(RECORDS)
            wait_for(lambda: copied_records(b, PLAIN) > 0)
            with loads.streaming():
                mirror.kill_driver()
                mirror.start().wait_running("M->B")
                mirror.kill_workers()
            made.wait_copied()
            run_java("mirror-client", _SHARE, a, "shared", PLAIN, "earliest", "20")
            mirror.wait_checkpoints("M->B")  # the first one takes brokers seconds
            made.commit_groups()
            mirror.wait_checkpoints()
            yield made


def keys_of(topic: str, records: list[Seen]) -> list[bytes]:
    """The keys of a source's records that a reader can see on either side."""
    keys = [record.key for record in records]
    # Compacted topics are so on both sides, and not in step.
    return newest(keys) if topic == COMPACTED else keys


def kept(topic: str, records: list[Seen]) -> list[bytes]:
    """The keys of those that the flow's function lets through."""
    through = [r for r in records if topic != FILTERED or r.offset % 2 == 0]
    return keys_of(topic, through)


@pytest.mark.parametrize("lag", LAGS)
def test_a_group_reads_what_it_had_not_read(switch: Switch, lag: int) -> None:
    """After the switch a member of each group, which knows nothing but the group's
    name, reads on the target what the group had not read on the source: no record
    again, none left out, of plain, transactional, compacted and filtered topics,
    classic and KIP-848.
    """
    group = f"lag-{lag}"
    protocol = "consumer" if group == KIP_848 else "classic"
    with Reader(switch.b, group, COPIES.values(), protocol=protocol) as reader:
        found = reader.read(PARTITIONS)
    for topic, copy in COPIES.items():
        unread = kept(topic, switch.unread[group, topic])
        read = keys_of(topic, found.get(copy, []))
        assert read == unread, (topic, len(read), len(unread), read[:3], unread[:3])
        assert len(switch.unread[group, topic]) == lag


def test_merged_topics_are_exact_for_each_source(switch: Switch) -> None:
    """Where two sources are merged into one topic, each flow's answer is exact for the
    records of its source, and the file for kafka-consumer-groups has the smaller one,
    so that no record of either is left out; mirror by itself sets the offset of the
    first record that the group has read on neither.
    """
    merged = log_of(switch.b, MERGED)
    places = switch.places()
    for group in (*(f"lag-{lag}" for lag in LAGS), BACK):
        for flow, mark, topic in (("M->B", b"a", MERGED), ("N->B", b"c", "other")):
            at = places[flow, group, MERGED]
            rest = [r.key for r in merged if r.offset >= at and r.key[:1] == mark]
            assert rest == [r.key for r in switch.unread[group, topic]]
    group = "lag-1000"
    done = switch.command(
        "describe", group, "-o", "csv", "--flow", "M/B", "--flow", "N/B"
    )
    lines = [line.split(",") for line in done.stdout.splitlines()]
    (at,) = [int(line[2]) for line in lines if line[0] == MERGED]
    assert at == min(places[flow, group, MERGED] for flow in ("M->B", "N->B"))
    assert f"{MERGED}-0: several flows have an offset" in done.stderr
    for lag in LAGS:
        wait_for(lambda of=f"lag-{lag}": committed(switch.b, of, MERGED) is not None)
        begins = committed(switch.b, f"lag-{lag}", MERGED)
        rest = [r.key for r in merged if r.offset >= begins]
        unread = {
            r.key for t in (MERGED, "other") for r in switch.unread[f"lag-{lag}", t]
        }
        assert unread <= set(rest)
        assert rest[0] in unread
    commit_for(switch.b, "of both", {MERGED: at})
    with Reader(switch.b, "of both", [MERGED]) as reader:
        read = [record.key for record in reader.read(1)[MERGED]]
    assert len(read) == len(set(read))
    unread = {r.key for topic in (MERGED, "other") for r in switch.unread[group, topic]}
    assert unread <= set(read)


def test_groups_that_move_back(switch: Switch, tmp_path: Path) -> None:
    """A group that continued on the target returns: `group translate --reverse` gives
    the file for kafka-consumer-groups, and on the source the group reads what it had
    read on neither side, and what was written since; no record again, none left out.
    """
    steps = {PLAIN: 640, TRANSACTIONS: 501, COMPACTED: 400, FILTERED: 150}
    with Reader(switch.b, BACK, COPIES.values()) as reader:
        found = reader.read(PARTITIONS)
        left = {topic: found[copy][steps[topic] :] for topic, copy in COPIES.items()}
        reader.commit({COPIES[topic]: rest[0].offset for topic, rest in left.items()})
        early = switch.command("translate", BACK, "--reverse", "--flow", "M/B")
        assert f"group {BACK} still has members on B" in early.stderr
    ends = {topic: log_of(switch.a, topic)[-1].offset for topic in COPIES}
    switch.loads.send(500)
    switch.wait_copied()
    file = tmp_path / "back.csv"
    with file.open("w") as lines:
        for flow in ("M/B", "F/B"):
            done = switch.typed(
                "translate", BACK, "--reverse", "--flow", flow, "-o", "csv"
            )
            lines.write(done.stdout)
    assert f"{PLAIN},1,0\n" in file.read_text()  # the empty partition comes along
    run_java(
        *("tools", _TOOL, "--bootstrap-server", switch.a, "--group", BACK),
        *("--reset-offsets", "--from-file", file, "--execute"),
    )
    with Reader(switch.a, BACK, COPIES) as reader:
        found = reader.read(PARTITIONS)
    for topic, end in ends.items():
        new = [record for record in log_of(switch.a, topic) if record.offset > end]
        of = newest if topic == COMPACTED else list
        wanted = [record.key for record in left[topic]] + kept(topic, new)
        assert kept(topic, found[topic]) == of(wanted), topic


def test_kinds_of_groups(switch: Switch) -> None:
    """KIP-848 groups are translated like classic ones, and so are share groups."""
    listed = json.loads(switch.command("list", "-o", "json", "--flow", "M/B").stdout)
    (flow,) = listed["flows"]
    types = {group["group"]: group["type"] for group in flow["groups"]}
    assert types[KIP_848] == "consumer"
    assert types["lag-0"] == "classic"
    assert types["shared"] == "share"
    assert flow["share_groups"] == []
    assert switch.mirror.flow("M->B")["share_groups"] == []


def test_idle_flows_have_fresh_heartbeats(switch: Switch) -> None:
    """While nothing is written, the newest heartbeat that was copied stays recent in
    every flow: the flow is seen to work without any record.
    """
    before = {
        f["name"]: f["copied_heartbeat_at"] for f in switch.mirror.status()["flows"]
    }
    switch.mirror.wait_until(
        lambda document: all(
            flow["copied_heartbeat_at"] > before[flow["name"]] > 0
            and time.time() - flow["copied_heartbeat_at"] < 20
            for flow in document["flows"]
        )
    )


@pytest.mark.parametrize(
    ("side", "topic", "of"),
    [
        ("a", "mm2-offset-syncs.B.internal", {PLAIN, TRANSACTIONS}),
        ("b", "mm2-offset-syncs.F.internal", {FILTERED}),
    ],
)
def test_offset_syncs_name_one_record(
    switch: Switch, side: str, topic: str, of: set[str]
) -> None:
    """Whether offset syncs are on the source or on the target, both offsets of each
    belong to the same record: its copy has the same key.
    """
    keys = {
        name: [
            {seen.offset: seen.key for seen in log_of(bootstrap, topic_of)}
            for bootstrap, topic_of in ((switch.a, name), (switch.b, COPIES[name]))
        ]
        for name in of
    }
    found = set()
    for record in read_topic(switch.clusters[side].bootstrap, topic)[0]:
        name_size = int.from_bytes(record.key()[:2], "big")
        name = record.key()[2 : 2 + name_size].decode()
        up, down = (int.from_bytes(record.value()[i : i + 8], "big") for i in (0, 8))
        if name in of:
            source, target = keys[name]
            assert source[up] == target[down]
            found.add(name)
    assert found == of


def test_the_target_alone_gives_the_same_answers(switch: Switch) -> None:
    """With service and sources dead, every group gets the same offsets as before, from
    the checkpoints and the map on the target.
    """
    switch.mirror.wait_checkpoints()
    before = switch.places()
    assert switch.mirror.terminate() == 0
    for name in ("a", "c"):
        switch.clusters[name].kill()
    after = switch.places("--target-only")
    assert {key for key in after if key[1].startswith("lag-")} == {
        (flow, f"lag-{lag}", topic)
        for lag in LAGS
        for flow, topics in {
            "M->B": (PLAIN, TRANSACTIONS, COMPACTED, MERGED),
            "N->B": (MERGED,),
            "F->B": (FILTERED,),
        }.items()
        for topic in topics
    }
    assert after == before
