"""`mirror verify` as a person types it, on Spark."""

from __future__ import annotations

from functools import partial
import json
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.harness.admin import create_topic
from tests.harness.commands import typed
from tests.harness.load import producer
from tests.harness.slots import SparklessFlow, copy_until
from tests.harness.witness import Witness, read_topic

if TYPE_CHECKING:
    from pathlib import Path

    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.acceptance

_RECORDS = 500


@pytest.mark.full
def test_it_proves_and_finds(
    clusters: dict[str, PlaygroundCluster], topic_name: str, tmp_path: Path
) -> None:
    """A right copy: a table, exit code 0, by content too, and the next run has nothing
    left to prove.
    With a record that claims to be a copy and is none: exit code 1, a row with its
    place, and a report that only its owner may read. A wrong command line: 2.
    """
    a, b = clusters["a"].bootstrap, clusters["b"].bootstrap
    alias = f"V{topic_name[-8:]}"
    create_topic(a, topic_name, partitions=2)
    client = producer(a)
    for number in range(_RECORDS):
        client.produce(topic_name, key=b"%d" % number, value=b"v", partition=number % 2)
    assert client.flush(30) == 0
    flow = SparklessFlow(source=a, target=b, topic=topic_name, alias=alias).own()
    with Witness(b) as witness, flow.slot() as slot:
        witness.begin(flow.copy)
        copy_until(witness, slot, flow.lease(60), count=_RECORDS, timeout=60)
    file = tmp_path / "mirror.yaml"
    file.write_text(
        yaml.safe_dump(
            {
                "clusters": {
                    alias: {"bootstrap_servers": a},
                    "B": {"bootstrap_servers": b},
                },
                "flows": {flow.name: {"topics": [topic_name]}},
            }
        )
    )

    verify = partial(typed, "verify", "-c", file)
    right = verify()
    assert right.returncode == 0, right.stdout + right.stderr
    heading, line = right.stdout.splitlines()
    assert heading.split()[:4] == ["FLOW", "TOPIC", "RECORDS", "BYTES"]
    assert line.split()[:3] == [flow.name, topic_name, str(_RECORDS)]

    again = verify("--by", "content", "--since", "begin")
    assert again.returncode == 0, again.stdout + again.stderr
    assert again.stdout.splitlines()[1].split()[2] == str(_RECORDS)

    claim = read_topic(b, flow.copy)[0][0].headers()
    client = producer(b)
    client.produce(flow.copy, key=b"?", value=b"v", partition=1, headers=claim)
    assert client.flush(30) == 0
    report = tmp_path / "proof.json"
    wrong = verify("-o", "json", "--report", str(report))
    assert wrong.returncode == 1, wrong.stdout + wrong.stderr
    (told,) = json.loads(wrong.stdout)["flows"]
    (found,) = told["findings"]
    assert (found["kind"], found["source"]) == ("UNEXPECTED", None)
    assert (found["topic"], found["key"]) == (topic_name, "?")
    assert told["topics"][0]["records"] == 0  # all of it is proven already
    assert json.loads(report.read_text())["flows"] == [told]
    for each in (report, report.with_suffix(".html")):
        assert each.stat().st_mode & 0o777 == 0o600

    nameless = verify("-o", "json", "--no-keys", "--since", "begin")
    assert nameless.returncode == 1, nameless.stdout + nameless.stderr
    (told,) = json.loads(nameless.stdout)["flows"]
    assert [each["kind"] for each in told["findings"]] == ["UNEXPECTED"]
    assert '"?"' not in nameless.stdout

    refused = verify("--since", "2999-01-01T00:00:00Z")
    assert refused.returncode == 2
    assert "2999-01-01T00:00:00Z is in the future" in refused.stderr
    unknown = verify("--flow", "B/A")
    assert unknown.returncode == 2
    assert "there is no enabled flow" in unknown.stderr
