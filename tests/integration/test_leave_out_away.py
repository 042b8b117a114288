"""Records written away from the home of their key, which flows may leave out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import yaml

from mirror.proofs.account import FindingKind
from mirror.recovery.stage import StepError
from tests.harness.admin import create_topic
from tests.harness.load import producer
from tests.harness.proofs import proven
from tests.harness.rehearsal import Rehearsal
from tests.harness.slots import copy_until
from tests.harness.switching import command
from tests.harness.witness import Witness, read_topic

if TYPE_CHECKING:
    from pathlib import Path

    from mirror.playground.cluster import PlaygroundCluster
    from mirror.status.values import Counts
    from tests.harness.slots import SparklessFlow

pytestmark = pytest.mark.integration

KEYS: dict[str, list[str | None]] = {
    "lvA": ["eu-1", "us-a", "none", None, "eu-x-a", "us-b", "eu-2"],
    "lvB": ["us-1", "eu-b", "eu-x-1", "us-2"],
}
"""As they are written on each cluster."""
AWAY = {"us-a", "us-b", "eu-x-a", "eu-b"}
PAIR = {
    "homes": {"eu-": "lvA", "us-": "lvB", "eu-x-": "lvB"},
    "leave_out_away": True,
    "both_ways": True,
}


def test_left_out(
    clusters: dict[str, PlaygroundCluster], topic_name: str, tmp_path: Path
) -> None:
    """Both clusters are written, and both flows leave out exactly what was written away
    from home: a witness finds the other records of the other side, in order, the flows
    count what they left out, and proofs explain it; a trace says why, and the pair
    refuses to switch. What was copied before the setting was turned on is no finding.
    Once it is off again, what was left out is MISSING.
    """
    ends = ("lvA", clusters["a"].bootstrap), ("lvB", clusters["b"].bootstrap)
    a, b = (bootstrap for _, bootstrap in ends)
    for bootstrap in (a, b):
        create_topic(bootstrap, topic_name, 1)
    earlier = ["us-earlier", "eu-earlier"]
    with Rehearsal(*ends, topic_name, policy="identity", pair=PAIR) as pair:
        out, back = pair.copying(), pair.copying(back=True)
        _write(a, topic_name, earlier)
        _copied(out, b, topic_name, 2)
        for flow in (out, back):
            (members,) = pair.config.recovery.values()
            homes = members.homes_seen_from(flow.alias)
            flow.settings = {**flow.settings, "homes": homes}
        _write(a, topic_name, KEYS["lvA"])
        _write(b, topic_name, KEYS["lvB"])
        counts = _copied(out, b, topic_name, 2 + 4 + 4)
        assert (counts.records, counts.looped, counts.away) == (4, 0, 3)
        counts = _copied(back, a, topic_name, 2 + 7 + 3)
        assert (counts.records, counts.looped, counts.away) == (3, 6, 1)
        for bootstrap, other, before in ((b, "lvA", earlier), (a, "lvB", [])):
            found = [
                None if (key := each.key()) is None else key.decode()
                for each in read_topic(bootstrap, topic_name)[0]
                if each.headers()
            ]
            assert found == before + [k for k in KEYS[other] if k not in AWAY]
        for flow, filtered, equal in ((out, 3, 2 + 4), (back, 6 + 1, 3)):
            proof = proven(flow)
            assert proof.findings == ()
            (part,) = proof.partitions
            assert (part.account.filtered, part.account.equal) == (filtered, equal)
        with pytest.raises(StepError, match="leave_out_away is on"):
            pair.carry_out()
        out.settings.pop("homes")
        missing = proven(out).findings
        assert [(each.kind, each.source, each.count) for each in missing] == [
            (FindingKind.MISSING, 3, 1), (FindingKind.MISSING, 6, 2),
        ]  # fmt: skip
    (tmp_path / "mirror.yaml").write_text(yaml.safe_dump(pair.document))
    drilled = command(tmp_path, "drill", "lvA->lvB", "-o", "json", fails=True)
    assert "leave_out_away is on" in drilled
    told = command(tmp_path, "trace", "lvA", topic_name, "0", "3", "-o", "json")
    assert "its key has its home elsewhere" in told


def _write(bootstrap: str, topic: str, keys: list[Any]) -> None:
    made = producer(bootstrap)
    for key in keys:
        made.produce(topic, key=key, value=b"v", partition=0)
    assert made.flush(30) == 0


def _copied(flow: SparklessFlow, bootstrap: str, topic: str, count: int) -> Counts:
    """Let a flow copy until the topic has `count` records; returns what it counted."""
    flow.own()
    with flow.slot() as slot, Witness(bootstrap) as witness:
        witness.begin(topic)
        (report,) = copy_until(witness, slot, flow.lease(60), count=count, timeout=60)
    return report.counts
