"""deploy/compose, as far as it can be checked without Docker."""

from __future__ import annotations

from pathlib import Path
import subprocess
from typing import Any

import pytest
import yaml

import mirror
from mirror.config.load import load
from tests import tools

pytestmark = pytest.mark.unit

FOLDER = Path(__file__).parents[2] / "deploy" / "compose"


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    return yaml.safe_load((FOLDER / "compose.yaml").read_text())["services"]


def test_what_is_mounted_is_there(services: dict[str, Any]) -> None:
    """Every folder and file that a service mounts is in the repository."""
    sources = [
        FOLDER / volume.split(":")[0]
        for service in services.values()
        for volume in service.get("volumes", ())
    ]

    assert sources
    assert [path for path in sources if not path.exists()] == []
    assert (FOLDER / services["mirror"]["build"] / "Dockerfile").is_file()


def test_services_know_each_other(services: dict[str, Any]) -> None:
    """Services wait for services that exist, and call each other by their names."""
    config, warnings = load(FOLDER / "mirror.yaml", environ={})
    brokers = {
        server.split(":")[0]
        for cluster in config.clusters.values()
        for server in cluster.bootstrap_servers
    }
    prometheus = yaml.safe_load((FOLDER / "prometheus.yaml").read_text())
    [target] = prometheus["scrape_configs"][0]["static_configs"][0]["targets"]
    waits = {name for s in services.values() for name in s.get("depends_on", ())}

    assert warnings == ()
    assert brokers == {"kafka-a", "kafka-b"}
    assert waits | brokers | {"mirror"} <= services.keys()
    assert target == f"mirror:{config.service.http_port}"
    for name in brokers:
        advertised = services[name]["environment"]["KAFKA_ADVERTISED_LISTENERS"]
        assert f"INSIDE://{name}:19092" in advertised


def test_images_are_pinned(services: dict[str, Any]) -> None:
    """Every image has a version, and mirror's is that of the source."""
    images = {name: service["image"] for name, service in services.items()}

    assert all(":" in image and "latest" not in image for image in images.values())
    assert images["mirror"] == f"mirror:{mirror.__version__}"


def test_ports_are_for_this_machine_alone(services: dict[str, Any]) -> None:
    """Nothing here has a password, so every port is on localhost only."""
    ports = [port for service in services.values() for port in service.get("ports", ())]

    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_podman_knows_the_options_of_tmpfs(services: dict[str, Any]) -> None:
    """Docker also takes uid and gid, with which podman does not start the container."""
    mounts = [each for it in services.values() for each in it.get("tmpfs", ())]
    options = {
        option.partition("=")[0]
        for each in mounts
        for option in each.partition(":")[2].split(",")
    }
    assert mounts
    assert options <= {"", "mode", "size"}


@pytest.mark.needs("promtool")
def test_prometheus_takes_its_configuration(tmp_path: Path) -> None:
    """Prometheus' own tool accepts the configuration with the project's rules."""
    rules = FOLDER.parents[1] / "dashboards" / "prometheus"
    file = tmp_path / "prometheus.yaml"
    text = (FOLDER / "prometheus.yaml").read_text()
    file.write_text(text.replace("/etc/prometheus/rules", str(rules)))
    ended = subprocess.run(
        [tools.path("promtool"), "check", "config", str(file)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert ended.returncode == 0, ended.stdout + ended.stderr
