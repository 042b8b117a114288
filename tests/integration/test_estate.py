"""Three services of three sites, as each of them shows all."""

from __future__ import annotations

from contextlib import ExitStack, suppress
import json
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from mirror.cli.main import app
from mirror.playground.ports import free_ports
from tests.harness.admin import create_topic
from tests.harness.load import producer
from tests.harness.service import RunningMirror
from tests.harness.waiting import wait_for
from tests.harness.witness import order_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from mirror.playground.cluster import PlaygroundCluster

pytestmark = [pytest.mark.integration, pytest.mark.full]

_SITES = ("east->hub", "central->west", "west->store")
"""The second site has a name of its own for the first one's target."""
_CHAIN = [
    ("east", "east"),
    ("hub / central", "RUNNING"),
    ("west", "RUNNING"),
    ("store", "RUNNING"),
]
_PATIENCE_SECONDS = 240.0


def test_a_chain_over_three_services(
    make_clusters: Callable[..., dict[str, PlaygroundCluster]], tmp_path: Path
) -> None:
    """A record goes through three services to the fourth cluster. Each service shows
    the whole chain, in which the cluster with two names is one. When the last service
    is killed, the first shows its flow as UNKNOWN, since when and why; when the last
    cluster ends, the others still stand.
    """
    clusters = make_clusters("a", "b", "c", "d")
    ends = {"east": "a", "hub": "b", "central": "b", "west": "c", "store": "d"}
    ports = free_ports(3)
    tokens = [tmp_path / f"token-{number}" for number in range(3)]
    for number, token in enumerate(tokens):
        token.write_text(f"s3cret-{number}")
    peers = [
        {"url": f"http://127.0.0.1:{port}", "token_file": str(token)}
        for port, token in zip(ports, tokens, strict=True)
    ]

    def config(number: int) -> dict[str, Any]:
        aliases = _SITES[number].split("->")
        return {
            "clusters": {
                alias: {"bootstrap_servers": clusters[ends[alias]].bootstrap}
                for alias in aliases
            },
            "flows": {
                _SITES[number]: {
                    "topics": [".*orders"],
                    "policy": "identity",
                    "tasks": 1,
                    "lease_seconds": 2,
                    "refresh_topics_seconds": 1,
                }
            },
            "service": {
                "http_port": ports[number],
                "http_token_file": str(tokens[number]),
                "peers": peers,
            },
        }

    def asked(*command: str, of: int = 0) -> str:
        ended = CliRunner().invoke(
            app,
            [*command, "-u", peers[of]["url"], "--token-file", str(tokens[of])],
            prog_name="mirror",
        )
        assert ended.exit_code == 0, ended.stderr
        return ended.stdout

    def chain(of: int) -> list[tuple[str, str]]:
        lines = asked("topology", of=of).splitlines()
        return [
            (line.strip(" └─►").partition("  ")[0], line.rpartition("  ")[2][:7])
            for line in lines
        ]

    create_topic(clusters["a"].bootstrap, "orders")
    client = producer(clusters["a"].bootstrap)
    client.produce("orders", b"v", key=b"k")
    assert client.flush(30) == 0
    with ExitStack() as stack:
        services = [
            stack.enter_context(RunningMirror(config(n), tmp_path / f"site-{n}"))
            for n in range(3)
        ]
        for number in (0, 2):
            wait_for(lambda n=number: chain(n) == _CHAIN, _PATIENCE_SECONDS, 1)

        def arrived() -> bool:
            with suppress(KeyError):  # not created yet
                return order_of(clusters["d"].bootstrap, "orders")[0] == [b"k"]
            return False

        wait_for(arrived, _PATIENCE_SECONDS, 1)
        services[2].kill_driver()
        wait_for(lambda: "UNKNOWN, since 20" in asked("topology"), 60, 1)
        name = f"127.0.0.1:{ports[2]}"
        assert f"site {name} does not answer, since 20" in asked("topology")
        told = json.loads(asked("status", "--all", "-o", "json"))
        (last,) = [site for site in told["sites"] if site["name"] == name]
        assert not last["answers"]
        assert [flow["state"] for flow in last["flows"]] == ["RUNNING"]
        clusters["c"].stop()
        wait_for(lambda: "cluster west does not answer" in asked("topology"), 60, 1)
