"""Keys that applications write on both clusters, found by `mirror conflicts`."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from mirror.recovery.tails.conflicts import conflicts
from tests.harness.admin import create_topic
from tests.harness.load import producer
from tests.harness.rehearsal import Rehearsal
from tests.harness.switching import command

if TYPE_CHECKING:
    from pathlib import Path

    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration


@pytest.mark.parametrize(
    "policy", [pytest.param("default", marks=pytest.mark.full), "identity"]
)
def test_both_sides(
    clusters: dict[str, PlaygroundCluster],
    topic_name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    policy: str,
) -> None:
    """With records of both sides copied there and back, and some from a third cluster
    on both, only a key that was written on both within the window is found, also when
    a small pass takes a part of the keys: not one outside the window, nor one written
    twice on one side, nor the copies.
    """
    tag = f"cf{policy[0]}"
    a, b = clusters["a"].bootstrap, clusters["b"].bootstrap
    for bootstrap in (a, b):
        create_topic(bootstrap, topic_name, 1)
    now = int(time.time() * 1000) - 500_000

    def write(bootstrap: str, key: str, at: int, headers: Any = ()) -> None:
        made = producer(bootstrap)
        made.produce(
            topic_name, key=key.encode(), value=b"v", partition=0,
            timestamp=now + at, headers=list(headers),
        )  # fmt: skip
        assert made.flush(30) == 0

    with Rehearsal((f"{tag}A", a), (f"{tag}B", b), topic_name, policy=policy) as pair:
        (tmp_path / "mirror.yaml").write_text(yaml.safe_dump(pair.document))
        for key, at in (("both", 0), ("late", 0), ("one", 0), ("one", 5), ("near", 9)):
            write(a, key, at * 1000)
        for key, at in (("both", 59), ("late", 61), ("near", 8)):
            write(b, key, at * 1000)
        for bootstrap in (a, b):
            write(bootstrap, "third", 0, [("mirror.via", b"C/c")])
        same = policy == "identity"
        pair.copy(b, topic_name if same else f"{tag}A.{topic_name}", 6 + 4 * same)
        pair.copy(
            a, topic_name if same else f"{tag}B.{topic_name}", 4 + 6 * same, back=True
        )
        monkeypatch.setattr("mirror.recovery.tails.conflicts._MOST_OFFSETS", 5)
        ends = pair.cluster(f"{tag}A"), pair.cluster(f"{tag}B")
        in_passes = conflicts(ends, topic_name, window_ms=60_000, most_unpacked=1 << 20)
        assert sorted(each.key for each in in_passes) == [b"both", b"near"]
    words = ("conflicts", f"{tag}A<->{tag}B", "--topic", topic_name, "-o", "json")
    found = json.loads(command(tmp_path, *words, fails=True))["conflicts"]
    shown = {
        each["key"]["data"]: [
            (record["cluster"], record["offset"], record["time"] - now)
            for record in each["records"]
        ]
        for each in found
    }
    assert len(found) == len(shown)
    assert shown == {
        "both": [(f"{tag}A", 0, 0), (f"{tag}B", 0, 59_000)],
        "near": [(f"{tag}B", 2, 8000), (f"{tag}A", 4, 9000)],
    }
    none = command(tmp_path, *words, "--window", "500ms")
    assert json.loads(none)["conflicts"] == []


def test_away(
    clusters: dict[str, PlaygroundCluster], topic_name: str, tmp_path: Path
) -> None:
    """Only records that were born on the cluster that is not their key's home are
    listed: the longest prefix decides, and copies, records without a key and keys
    without a home do not count.
    """
    ends = ("cfhA", clusters["a"].bootstrap), ("cfhB", clusters["b"].bootstrap)
    keys: dict[str, list[str | None]] = {
        "cfhA": ["eu-1", "us-2", "eu-x-3", "none", None],
        "cfhB": ["us-1", "eu-2"],
    }
    now = int(time.time() * 1000)
    for alias, bootstrap in ends:
        create_topic(bootstrap, topic_name, 1)
        made = producer(bootstrap)
        for key in keys[alias]:
            made.produce(topic_name, key=key, value=b"v", partition=0, timestamp=now)
        copied: Any = [("mirror.via", b"C/c")]
        for key in ("eu-copied", "us-copied"):
            made.produce(topic_name, key=key, value=b"v", partition=0, headers=copied)
        assert made.flush(30) == 0
    homes = {"eu-": "cfhA", "us-": "cfhB", "eu-x-": "cfhB"}
    with Rehearsal(*ends, topic_name, policy="identity") as pair:
        pair.document["recovery"]["cfhA<->cfhB"]["homes"] = homes
        (tmp_path / "mirror.yaml").write_text(yaml.safe_dump(pair.document))
    words = ("conflicts", "cfhA<->cfhB", "--topic", topic_name, "--away", "-o", "json")
    found = json.loads(command(tmp_path, *words, fails=True))["away"]
    assert {each["record"]["time"] for each in found} == {now}
    assert [
        (each["key"]["data"], each["home"], *list(each["record"].values())[:3])
        for each in found
    ] == [
        ("us-2", "cfhB", "cfhA", 0, 1),
        ("eu-x-3", "cfhB", "cfhA", 0, 2),
        ("eu-2", "cfhA", "cfhB", 0, 1),
    ]
