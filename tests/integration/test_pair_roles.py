"""A service follows the roles of a pair: one flow copies, the other one rests."""

from __future__ import annotations

import json
import struct
import time
from typing import TYPE_CHECKING
import urllib.error
import urllib.request

import pytest

from tests.harness.admin import create_topic, topic_exists
from tests.harness.load import NumberedLoad
from tests.harness.service import RunningMirror
from tests.harness.switching import make_active
from tests.harness.waiting import crowd, wait_for
from tests.harness.witness import assert_exactly_once, eventually, keys_of, read_topic

if TYPE_CHECKING:
    from pathlib import Path

    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration

PAIR = "RA<->RB"


def answers(mirror: RunningMirror, cluster: str) -> int:
    """The status of `/active` for a cluster."""
    try:
        with urllib.request.urlopen(f"{mirror.url}/active/{PAIR}/{cluster}") as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def beats(bootstrap: str, source: str, target: str, since: float) -> int:
    """How many heartbeats of a flow a client finds that are newer than this."""
    text = (struct.pack(">h", len(each)) + each.encode() for each in (source, target))
    key = b"".join(text)
    found = [
        struct.unpack(">hq", each.value())[1] / 1000
        for each in read_topic(bootstrap, "heartbeats").get(0, [])
        if each.key() == key
    ]
    return sum(at > since for at in found)


def told_end(bootstrap: str, source: str, topic: str) -> int:
    """Where a partition ends, by what a client finds in the standby topic; -1 while it
    does not say that.
    """
    messages = read_topic(bootstrap, f"mirror-standby.{source}.internal").get(0, [])
    newest = {each.key(): each.value() for each in messages}
    told = newest.get(f"ends/{topic}".encode())
    return -1 if told is None else int(json.loads(told)["ends"][0])


@pytest.mark.full
def test_the_flow_out_of_the_active_cluster_copies(
    clusters: dict[str, PlaygroundCluster], topic_name: str, tmp_path: Path
) -> None:
    """Of a pair, only the flow out of the active cluster copies. When a journal says
    that the other cluster is active, the flows change places within seconds, and back,
    with nothing lost or copied twice; `/active` answers for each cluster. The one that
    rests writes heartbeats, and where its source ends, and nothing else. A service that
    starts later, with a file that still names the first cluster, follows the journals.
    """
    ends = {"RA": clusters["a"].bootstrap, "RB": clusters["b"].bootstrap}
    for bootstrap in ends.values():
        create_topic(bootstrap, topic_name, 1)
    document = {
        "clusters": {a: {"bootstrap_servers": b} for a, b in ends.items()},
        "defaults": {
            "topics": [topic_name],
            "tasks": 1,
            "lease_seconds": 2,
            "heartbeats_replication": False,
        },
        "flows": {"RA->RB": {}, "RB->RA": {}},
        "recovery": {PAIR: {"active": "RA"}},
    }

    def settled(mirror: RunningMirror, copies: str, rests: str) -> None:
        mirror.wait_running(copies)
        mirror.wait_until(lambda _: mirror.flow(rests)["state"] == "RESTING")

    def copies(source: str, target: str, count: int) -> None:
        found = eventually(ends[target], f"{source}.{topic_name}", count)
        expected = {0: loads[source].order[0][:count]}
        assert_exactly_once(keys_of(found), expected)

    loads = {a: NumberedLoad(b, topic_name, 1, seed=5) for a, b in ends.items()}
    started = time.time()
    with RunningMirror(document, tmp_path) as mirror:
        settled(mirror, "RA->RB", "RB->RA")
        for load in loads.values():
            load.send(20)
        copies("RA", "RB", 20)
        wait_for(lambda: (answers(mirror, "RA"), answers(mirror, "RB")) == (200, 503))
        begun = [("RA", 1, "")]
        mirror.wait_until(
            lambda document: (
                [(p["active"], p["epoch"], p["run"]) for p in document["pairs"]]
                == begun
            )
        )
        wait_for(lambda: told_end(ends["RA"], "RB", topic_name) == 20)
        wait_for(lambda: beats(ends["RA"], "RB", "RA", started) > 1)
        names = {job["name"] for job in mirror.flow("RB->RA")["jobs"]}
        assert names == {"heartbeats", "own-topics", "standby"}
        assert not topic_exists(ends["RA"], f"RB.{topic_name}")
        assert not topic_exists(ends["RA"], "mirror-progress.RB.internal")

        make_active(document, "RA", "RB", 2)
        changed, began = time.time(), time.monotonic()
        settled(mirror, "RB->RA", "RA->RB")
        assert time.monotonic() - began < 15 * crowd(), (
            "well within a failure's restart"
        )
        wait_for(lambda: (answers(mirror, "RA"), answers(mirror, "RB")) == (503, 200))
        for load in loads.values():
            load.send(20)
        copies("RB", "RA", 40)
        copies("RA", "RB", 20)
        wait_for(lambda: told_end(ends["RB"], "RA", topic_name) == 40)
        wait_for(lambda: beats(ends["RB"], "RA", "RB", changed + 10) > 1)

    with RunningMirror(document, tmp_path / "later") as mirror:
        settled(mirror, "RB->RA", "RA->RB")
        make_active(document, "RB", "RA", 3)
        settled(mirror, "RA->RB", "RB->RA")
        copies("RA", "RB", 40)
        copies("RB", "RA", 40)
