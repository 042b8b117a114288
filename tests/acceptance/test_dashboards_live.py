"""What dashboards and rules ask for, against what a running service answers.

tests/unit/test_dashboards.py holds them against the table of metrics; here a real
Prometheus scrapes a real service of a pair, with groups and heartbeats, and is asked
every query of every dashboard.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING
from urllib.parse import quote
from urllib.request import urlopen

from confluent_kafka import Consumer, TopicPartition
from prometheus_client.parser import text_string_to_metric_families
import pytest

from mirror.observing.catalogue import METRICS, names
from tests.acceptance.test_alerts import Prometheus
from tests.harness.admin import commit_offsets, create_topic
from tests.harness.load import NumberedLoad
from tests.harness.service import RunningMirror, config_for
from tests.harness.waiting import crowd, deadline_in, wait_for
from tests.unit.test_dashboards import OF_THE_PROCESS, queries, rules

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from mirror.playground.cluster import PlaygroundCluster

pytestmark = [pytest.mark.acceptance, pytest.mark.needs("promtool")]

AT_TIMES = {
    "mirror_cluster_errors_total",
    "mirror_failed_records_total",
    "mirror_flow_backfill_remaining_seconds",
    *(name for name in names() if name.startswith("mirror_schema_")),
    "mirror_switch_block_seconds",
    "mirror_tail_records",
    "mirror_writes_on_passive_records_total",
}
"""Without a value while nothing fails or is to be caught up with, before a switch, in
a pair whose flows both copy, and without schema registries.
"""
OF_EACH = {"job", "instance"}
"""Prometheus gives them to every series."""
OF_PODS = {"namespace"}
"""Labels that only series of pods have; rules group by them so as not to mix two
releases.
"""
_SELECTOR = re.compile(
    r"(?<![\w:$\"])((?:mirror|process)_\w+|flow:[\w:]+|kafka_\w+)(\{[^}]*\})?"
)
_GROUPING = re.compile(r"\b(?:by|on|group_left)\s*\(([^)]*)\)")
_EITHER = re.compile(r'"(\w+(?:\|\w+)+)"')


def exposed(mirror: RunningMirror) -> dict[str, set[frozenset[str]]]:
    """The sets of labels of each time series' name."""
    with urlopen(f"{mirror.url}/metrics", timeout=10 * crowd()) as answer:
        text = answer.read().decode()
    found: dict[str, set[frozenset[str]]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, set()).add(frozenset(sample.labels))
    return found


def declared() -> dict[str, frozenset[str]]:
    """The labels that each name has, as the table of metrics says."""
    return {
        name: frozenset({*metric.labels, *(("le",) if "_bucket" in name else ())})
        for metric in METRICS
        for name in metric.sample_names
    }


def chosen(query: str) -> str:
    """A dashboard's query with everything selected, as Grafana would send it."""
    query = query.replace("$__rate_interval", "20s").replace("$__range", "1m")
    query = re.sub(r"\$(price_\w+|replicas)", "2", query)
    return re.sub(r'"\$\w+"', '".+"', query)


def each_of(selector: str) -> list[str]:
    """A selector for each of the values that it allows: any could be a typo."""
    found = _EITHER.search(selector)
    if found is None:
        return [selector]
    return [selector.replace(found[1], value) for value in found[1].split("|")]


def test_what_is_exposed_and_what_is_asked_for_agree(
    make_clusters: Callable[..., dict[str, PlaygroundCluster]],
    tmp_path: Path,
    topic_name: str,
) -> None:
    """A running service exposes every metric of the table with its labels and no
    others; Prometheus answers every query of dashboards and rules, finds series for
    each metric in it, and knows each label by which it groups.
    """
    clusters = make_clusters("a", "b")
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    create_topic(source, topic_name, 2)
    group = f"reads-{topic_name}"
    config = config_for(
        source,
        target,
        flows=("A->B", "B->A"),
        topics=[topic_name],
        groups=[group],
        tasks=1,
        lease_seconds=1,
        emit_heartbeats=True,
        heartbeats_replication=True,
        emit_heartbeats_seconds=1,
        emit_checkpoints_seconds=1,
        verify="new",
        verify_share=1,
        max_bytes_per_second=100_000_000,
    )
    config["flows"]["B->A"]["topics"] = ["nothing-else"]
    config["recovery"] = {
        "A<->B": {"active": "A", "both_ways": True, "drill_every_seconds": 5}
    }
    load = NumberedLoad(source, topic_name, 2)
    load.send(500)
    reader = Consumer({"bootstrap.servers": source, "group.id": group})
    commit_offsets(reader, [TopicPartition(topic_name, 0, 10)])
    reader.close()
    table = declared()

    with RunningMirror(config, tmp_path) as mirror, load.streaming(chunk=50):
        shown: dict[str, set[frozenset[str]]] = {}

        def all_shown() -> bool:
            shown.clear()
            shown.update(exposed(mirror))
            return not names() - AT_TIMES - shown.keys()

        wait_for(all_shown, pause=1)
        ours = {name for name in shown if name.startswith("mirror_")}
        assert ours - names() == set()
        assert shown.keys() >= OF_THE_PROCESS
        for name in ours:
            assert shown[name] == {table[name]}, name

        address = mirror.url.removeprefix("http://")
        with Prometheus(tmp_path / "prometheus", address).running() as prometheus:

            def series(query: str) -> list[dict[str, str]]:
                result = prometheus.ask(f"query?query={quote(query)}")["result"]
                return [each["metric"] for each in result]

            def found(selector: str, query: str) -> list[dict[str, str]]:
                """Some metrics have a value only at times, such as after a lease."""
                deadline = deadline_in()
                while not (there := series(selector)):
                    assert time.monotonic() < deadline, (
                        f"{selector} finds nothing, in {query}"
                    )
                    time.sleep(0.5)
                return there

            recorded = {rule["record"] for rule in rules() if "record" in rule}
            wait_for(lambda: all(map(series, recorded)), pause=1)
            for query in (*queries(), *(rule["expr"] for rule in rules())):
                series(chosen(query))  # it is answered, if only with nothing
                known: set[str] = set()
                for name, matchers in _SELECTOR.findall(chosen(query)):
                    if name in AT_TIMES:
                        known.update(table[name], OF_EACH)
                        continue
                    for selector in each_of(name + matchers):
                        known.update(*found(selector, query))
                for labels in _GROUPING.findall(query):
                    asked = set(re.findall(r"\w+", labels))
                    assert asked <= known | OF_PODS, query
