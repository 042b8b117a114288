"""A copy of schemas whose process is killed or not alone, and registries that fail
meanwhile.

`mirror schema sync` runs in a process of its own; a proxy before the target's registry
kills it with SIGKILL at a chosen request. The witness asks both registries over plain
HTTP.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

from mirror.errors import RegistryError
from tests.harness.registry_proxy import PAGE, RegistryProxy
from tests.harness.schemas import Raw, SchemaSides, avro

if TYPE_CHECKING:
    from pathlib import Path

    from mirror.playground.cluster import PlaygroundCluster
    from tests.harness.registry_process import RegistryProcess

    Clusters = dict[str, PlaygroundCluster]

pytestmark = [pytest.mark.integration, pytest.mark.needs("registry")]


@pytest.fixture
def registries(processes: tuple[RegistryProcess, RegistryProcess]) -> tuple[Raw, Raw]:
    return Raw(processes[0].url), Raw(processes[1].url)


def sides(clusters: Clusters, a: str, b: str) -> SchemaSides:
    return SchemaSides(
        {"A": (clusters["a"].bootstrap, a), "B": (clusters["b"].bootstrap, b)},
        {"A->B": {}},
    )


@pytest.mark.full
def test_killed_between_claim_mode_and_write(
    clusters: Clusters, registries: tuple[Raw, Raw], tmp_path: Path
) -> None:
    """The process dies before and after it sets a mode, and before and after it
    registers or deletes a version: each time the next run ends with what the source
    has, and the subject of others keeps its version and its mode.
    """
    a, b = registries
    b.set_mode("IMPORT")
    b.ask("POST", "/subjects/foreign/versions",
          {"schema": avro("F"), "id": 900, "version": 1})  # fmt: skip
    b.set_mode("READWRITE")
    foreign = b.versions()["foreign", 1]
    with RegistryProxy(b.url) as proxy, sides(clusters, a.url, proxy.url) as made:
        file = tmp_path / "mirror.yaml"
        file.write_text(json.dumps(made.document))
        killed = 0
        for what in ("PUT /mode/", "POST /subjects/", "DELETE /subjects/"):
            for forwarded in (False, True):
                name = f"s{killed}"
                a.register(name, avro(f"S{killed}", "a"))
                a.register(name, avro(f"S{killed}", "b"))
                a.delete(name, 1)
                process = _syncing(file)
                before = len(b.versions())
                with proxy.watched(what, process.kill, forwarded=forwarded):
                    assert process.wait(120) == -signal.SIGKILL, (what, forwarded)
                killed += 1
                if what != "DELETE /subjects/":
                    came = len(b.versions()) - before
                    assert came == (forwarded and what == "POST /subjects/")
        for left in (True, False):
            assert bool(made.sync().writes) is left
        theirs = b.versions()
        assert theirs.pop(("foreign", 1)) == foreign
        assert theirs == a.versions()
        assert b.mode("foreign") is None
        assert {b.mode(f"s{n}") for n in range(killed)} == {"IMPORT"}


@pytest.mark.full
def test_two_processes_at_once(
    clusters: Clusters, registries: tuple[Raw, Raw], tmp_path: Path
) -> None:
    """Two processes copy the schemas of one flow, and both have looked before either
    writes its first version: both end well, the target has each version once and whole,
    and nothing is left to write.
    """
    a, b = registries
    for number in range(10):
        for field in "abc":
            a.register(f"s{number}", avro(f"S{number}", field))
        a.delete(f"s{number}", 1)
    with RegistryProxy(b.url) as proxy, sides(clusters, a.url, proxy.url) as made:
        file = tmp_path / "mirror.yaml"
        file.write_text(json.dumps(made.document))
        both_write = threading.Barrier(3, timeout=120)
        with proxy.watched("POST /subjects/", both_write.wait, forwarded=False):
            processes = [_syncing(file) for _ in range(2)]
            both_write.wait()
        assert [each.wait(120) for each in processes] == [0, 0]
        assert b.versions() == a.versions()
        assert {b.mode(f"s{number}") for number in range(10)} == {"IMPORT"}
        assert made.sync().writes == ()


def _syncing(config: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "mirror", "schema", "sync", "--yes", "-c", str(config)],
        stdout=subprocess.DEVNULL,
    )


_FAULTS: list[dict[str, Any]] = [
    {"status": 503},
    {"status": 429, "body": b'{"error_code": 429, "message": "slow down"}'},
    {"status": 200, "body": PAGE, "headers": {"Content-Type": "text/html"}},
    {"half": True},
]


@pytest.mark.full
@pytest.mark.parametrize("side", ["A", "B"])
def test_a_registry_that_fails_meanwhile(
    clusters: Clusters, registries: tuple[Raw, Raw], side: str
) -> None:
    """Either registry answers 503, 429, a proxy's page or half of its answers, for a
    moment and for good: a turn then copies all or says what came, and once the registry
    is well a turn ends with what the source has, each version once.
    """
    a, b = registries
    behind = a if side == "A" else b
    with RegistryProxy(behind.url) as proxy:
        urls = {"A": a.url, "B": b.url, side: proxy.url}
        with sides(clusters, urls["A"], urls["B"]) as made:
            for number, fault in enumerate(_FAULTS):
                for field in "ab":
                    a.register(f"s{number}", avro(f"S{number}", field))
                with proxy.fault(**fault), pytest.raises(RegistryError, match=side):
                    made.sync()
                assert (f"s{number}", 1) not in b.versions()
                with proxy.fault(times=2, **fault):
                    made.sync()
                assert b.versions() == a.versions()
                assert made.sync().writes == ()
