"""A real Prometheus and a real service: the alert on lag fires, and is resolved."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import subprocess
from typing import TYPE_CHECKING, Any
from urllib.error import URLError
from urllib.parse import quote
from urllib.request import urlopen

import pytest

from tests import tools
from tests.acceptance.test_alert_rules import RULES
from tests.harness.admin import create_topic
from tests.harness.load import producer
from tests.harness.service import config_for
from tests.harness.suspending import suspended
from tests.harness.waiting import crowd, wait_for
from tests.harness.witness import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from mirror.playground.cluster import PlaygroundCluster
    from tests.harness.standing import StandingMirror

pytestmark = pytest.mark.acceptance

ALERT = "MirrorReplicationLagHigh"
SLA_SECONDS = 5


class Prometheus:
    """A Prometheus that scrapes a service's metrics every second."""

    def __init__(self, folder: Path, target: str) -> None:
        folder.mkdir()
        for rules in RULES:
            # As they are, but without waiting for minutes.
            hasty = re.sub(r"for: \d+[mh]", "for: 4s", rules.read_text())
            (folder / rules.name).write_text(hasty)
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(folder / rules.name) for rules in RULES],
            "scrape_configs": [
                {"job_name": "mirror", "static_configs": [{"targets": [target]}]}
            ],
        }
        (folder / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._address = f"127.0.0.1:{free.getsockname()[1]}"
        self._log = folder / "log"
        self._folder = folder

    @contextlib.contextmanager
    def running(self) -> Iterator[Prometheus]:
        with self._log.open("wb") as log:
            process = subprocess.Popen(
                [
                    tools.path("prometheus"),
                    f"--config.file={self._folder / 'prometheus.yml'}",
                    f"--storage.tsdb.path={self._folder / 'data'}",
                    f"--web.listen-address={self._address}",
                ],
                stdout=log,
                stderr=log,
            )
            try:
                wait_for(self._is_ready, pause=0.2)
                yield self
            finally:
                process.terminate()
                process.wait()

    def _is_ready(self) -> bool:
        try:
            with urlopen(f"http://{self._address}/-/ready", timeout=5) as answer:
                return answer.status == 200
        except (URLError, OSError):
            return False

    def ask(self, path: str) -> Any:
        url = f"http://{self._address}/api/v1/{path}"
        with urlopen(url, timeout=10 * crowd()) as answer:
            return json.load(answer)["data"]

    def state(self, alert: str) -> str:
        """pending, firing, or nothing."""
        for found in self.ask("alerts")["alerts"]:
            if found["labels"]["alertname"] == alert:
                return str(found["state"])
        return ""

    def was_pending(self, alert: str) -> bool:
        """Whether it was in the last minutes, however briefly."""
        pending = f'ALERTS{{alertname="{alert}",alertstate="pending"}}'
        query = quote(f"count_over_time({pending}[10m])")
        return bool(self.ask(f"query?query={query}")["result"])

    def fired(self) -> list[dict[str, str]]:
        """The labels of all alerts that fired so far, however briefly."""
        query = quote('count_over_time(ALERTS{alertstate="firing"}[1h])')
        return [each["metric"] for each in self.ask(f"query?query={query}")["result"]]

    def value(self, name: str) -> float | None:
        """Of the flow from A: the service has another one."""
        query = quote(f'{name}{{source="A"}}')
        result = self.ask(f"query?query={query}")["result"]
        return float(result[0]["value"][1]) if result else None


@pytest.mark.needs("promtool")
def test_a_lag_is_told_and_ends(
    make_clusters: Callable[..., dict[str, PlaygroundCluster]],
    standing: StandingMirror,
    tmp_path: Path,
    topic_name: str,
) -> None:
    """While the source's leader does not answer, the lag grows beyond the SLA and its
    alert is pending and then fires; when the leader answers again, the alert is
    resolved.
    """
    clusters = make_clusters("a", "b")
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    create_topic(source, topic_name)
    config = config_for(
        source, target, topics=[topic_name], tasks=1, sla_seconds=SLA_SECONDS
    )
    config["clusters"]["A"]["request_timeout_seconds"] = 4
    client = producer(source)
    client.produce(topic_name, b"before")
    assert client.flush(30) == 0
    (leader,) = clusters["a"].pids().values()
    with standing.hosting(config) as mirror:
        eventually(target, f"A.{topic_name}", 1)
        address = mirror.url.removeprefix("http://")
        with Prometheus(tmp_path / "prometheus", address).running() as prometheus:

            def is_well() -> bool:
                return (
                    prometheus.value("mirror_flow_lag_seconds") == 0
                    and prometheus.value("mirror_flow_within_sla") == 1
                    and prometheus.state(ALERT) == ""
                )

            wait_for(is_well, pause=0.5)
            with suspended([leader]):
                wait_for(lambda: prometheus.state(ALERT) == "firing", pause=0.2)
                assert prometheus.was_pending(ALERT)
                # A scrape that takes too long leaves no value.
                wait_for(
                    lambda: (
                        (prometheus.value("mirror_flow_lag_seconds") or 0) > SLA_SECONDS
                    )
                )
                wait_for(lambda: prometheus.value("mirror_flow_within_sla") == 0)

            client.produce(topic_name, b"after")
            assert client.flush(60) == 0
            eventually(target, f"A.{topic_name}", 2)
            wait_for(is_well, pause=0.5)
