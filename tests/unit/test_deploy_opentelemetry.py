"""deploy/opentelemetry: a Collector would start with it, and find mirror."""

from __future__ import annotations

from pathlib import Path
import subprocess
from typing import Any

import pytest
import yaml

from mirror.config.service_settings import HttpSettings
from tests import tools

pytestmark = pytest.mark.unit

FILE = Path(__file__).parents[2] / "deploy" / "opentelemetry" / "collector.yaml"


@pytest.fixture
def collector() -> dict[str, Any]:
    return yaml.safe_load(FILE.read_text())


def test_pipelines_are_whole(collector: dict[str, Any]) -> None:
    """A pipeline's parts are set up, and what is set up is used."""
    [pipeline] = collector["service"]["pipelines"].values()

    for kind in ("receivers", "processors", "exporters"):
        assert set(pipeline[kind]) == collector[kind].keys()


def test_it_scrapes_mirror(collector: dict[str, Any]) -> None:
    """The target is where mirror listens when nothing else is set, and its path is
    Prometheus' own.
    """
    [scrape] = collector["receivers"]["prometheus"]["config"]["scrape_configs"]
    settings = HttpSettings()

    assert scrape["static_configs"] == [
        {"targets": [f"{settings.http_host}:{settings.http_port}"]}
    ]
    assert scrape.get("metrics_path", "/metrics") == "/metrics"


@pytest.mark.needs("promtool")
def test_prometheus_takes_what_the_receiver_is_given(
    collector: dict[str, Any], tmp_path: Path
) -> None:
    """The receiver reads Prometheus' own configuration, which its own tool accepts."""
    file = tmp_path / "prometheus.yaml"
    file.write_text(yaml.safe_dump(collector["receivers"]["prometheus"]["config"]))
    ended = subprocess.run(
        [tools.path("promtool"), "check", "config", str(file)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert ended.returncode == 0, ended.stdout + ended.stderr
