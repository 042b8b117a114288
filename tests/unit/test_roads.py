"""Which road to a cluster is taken, and what each refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from testcontainers.core import container

from mirror.errors import PlaygroundError
from mirror.playground import brokers
from mirror.playground.brokers import choose_road, playground
from mirror.playground.cluster import ClusterPlan

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.unit


@pytest.fixture(autouse=True)
def nothing_given(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BROKERS", "BOOTSTRAP_A", "BOOTSTRAP_B"):
        monkeypatch.delenv(f"MIRROR_TEST_{name}", raising=False)
    monkeypatch.setattr(brokers, "docker_answers", lambda: False)


def plan(tmp_path: Path, **wanted: Any) -> ClusterPlan:
    return ClusterPlan(name="a", folder=tmp_path / "a", **wanted)


def test_jars_are_the_last_road(tmp_path: Path) -> None:
    """Without given clusters and without Docker, the jars are left."""
    assert choose_road([plan(tmp_path)]) == "jars"


def test_docker_before_jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Docker daemon that answers is used for plain clusters, and only for those."""
    monkeypatch.setattr(brokers, "docker_answers", lambda: True)

    assert choose_road([plan(tmp_path)]) == "docker"
    assert choose_road([plan(tmp_path, nodes=3)]) == "jars"
    assert choose_road([plan(tmp_path, secured=True)]) == "jars"


def test_given_before_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given clusters are used, unless the test needs to change or kill them."""
    monkeypatch.setenv("MIRROR_TEST_BOOTSTRAP_A", "kafka:9092")

    assert choose_road([plan(tmp_path)]) == "env"
    assert choose_road([plan(tmp_path)], given=False) == "jars"
    assert choose_road([plan(tmp_path, settings={"num.io.threads": "1"})]) == "jars"


def test_forced_road(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """MIRROR_TEST_BROKERS overrides given clusters, and a typo in it is refused."""
    monkeypatch.setenv("MIRROR_TEST_BOOTSTRAP_A", "kafka:9092")
    monkeypatch.setenv("MIRROR_TEST_BROKERS", "jars")
    assert choose_road([plan(tmp_path)]) == "jars"

    monkeypatch.setenv("MIRROR_TEST_BROKERS", "podman")
    with pytest.raises(PlaygroundError, match="'podman': it must be env, docker or"):
        choose_road([plan(tmp_path)])


def test_given_cluster_is_taken_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Settings for a given cluster are refused, not silently dropped."""
    monkeypatch.setenv("MIRROR_TEST_BOOTSTRAP_A", "kafka:9092")

    with (
        pytest.raises(PlaygroundError, match="is used as it is"),
        playground(("a",), root=tmp_path, road="env", settings={"x": "y"}),
    ):
        pass


@pytest.mark.parametrize(
    ("wanted", "answers", "message"),
    [
        ({"nodes": 3}, True, "MIRROR_TEST_BROKERS=jars"),
        ({"secured": True}, True, "MIRROR_TEST_BROKERS=jars"),
        ({}, False, "no Docker daemon answers"),
    ],
)
def test_what_docker_refuses(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    wanted: dict[str, Any],
    answers: bool,
    message: str,
) -> None:
    """What Docker cannot offer is refused, with what to use instead."""
    monkeypatch.setattr(brokers, "docker_answers", lambda: answers)

    with pytest.raises(PlaygroundError, match=message):
        brokers.cluster_in_docker(plan(tmp_path, **wanted))


class FakeContainer:
    """Stands for testcontainers' container, whose constructor needs a daemon."""

    def __init__(self, image: str) -> None:
        self.image = image
        self.ports: dict[int, int] = {}
        self.env: dict[str, str] = {}
        self.calls: list[str] = []

    def with_bind_ports(self, inside: int, outside: int) -> FakeContainer:
        self.ports[inside] = outside
        return self

    def with_env(self, name: str, text: str) -> FakeContainer:
        self.env[name] = text
        return self

    def with_envs(self, **variables: str) -> FakeContainer:
        self.env.update(variables)
        return self

    def start(self) -> None:
        self.calls.append("start")

    def stop(self) -> None:
        self.calls.append("stop")

    def get_wrapped_container(self) -> Any:
        calls = self.calls

        class Wrapped:
            def start(self) -> None:
                calls.append("wrapped start")

            def kill(self) -> None:
                calls.append("wrapped kill")

        return Wrapped()


def test_container_of_a_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container gets the settings in its image's words, and is killed and removed."""
    made: list[FakeContainer] = []

    def make(image: str) -> FakeContainer:
        made.append(FakeContainer(image))
        return made[-1]

    monkeypatch.setattr(container, "DockerContainer", make)
    monkeypatch.setattr(brokers, "docker_answers", lambda: True)
    monkeypatch.setattr(brokers, "wait_until_serving", lambda *_, **__: None)

    cluster = brokers.cluster_in_docker(
        plan(tmp_path, settings={"message.max.bytes": "7", "a-b_c": "d"})
    )
    cluster.start()
    cluster.kill()
    cluster.start()
    cluster.discard()

    (only,) = made
    port = int(cluster.bootstrap.removeprefix("127.0.0.1:"))
    assert only.image == "apache/kafka:4.3.1"
    assert only.ports == {port: port}
    assert only.env["KAFKA_MESSAGE_MAX_BYTES"] == "7"
    assert only.env["KAFKA_A___B__C"] == "d"
    assert only.env["KAFKA_ADVERTISED_LISTENERS"] == f"PLAINTEXT://127.0.0.1:{port}"
    assert only.calls == ["start", "wrapped kill", "wrapped start", "stop"]
