"""`mirror lag` and `mirror topology` with a service's answer."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from mirror.cli import status
from mirror.cli.status import Edge, dot, mermaid, terminal
from mirror.observing.server import StatusServer
from mirror.status.states import FlowState
from mirror.status.store import StatusStore
from tests.harness.commands import mirror
from tests.harness.statuses import cluster_status, partition_status, show

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirror.status.values import PartitionStatus

pytestmark = pytest.mark.unit


def partition(topic: str, number: int, seconds: float, records: int) -> PartitionStatus:
    return partition_status(
        topic, number, end_offset=records, lag=records, lag_seconds=seconds
    )


@pytest.fixture
def url() -> Iterator[str]:
    store = StatusStore(("A->B", "A->C"))
    show(
        store,
        "A->B",
        source="A",
        target="B",
        state=FlowState.RUNNING,
        bytes_per_second=2e6,
        partitions=(
            partition("idle", 0, 0.0, 0),
            partition("late", 0, 300.0, 7),
            partition("new", 0, -1.0, 0),
        ),
    )
    show(store, "A->C", source="A", target="C", state=FlowState.RETRYING)
    with StatusServer(store, "127.0.0.1", 0) as server:
        yield server.url


def test_the_latest_come_first(url: str) -> None:
    """The partitions furthest behind are at the top; an unknown lag is not zero."""
    columns, *rows = mirror("lag", "-u", url).stdout.splitlines()

    assert tuple(columns.split()) == status.COLUMNS
    assert [row.split()[1] for row in rows] == ["late", "idle", "new"]
    assert rows[0].split()[4:9] == ["7", "5", "min", "60", "s"]
    assert rows[2].split()[5] == "-"


def test_a_limit(url: str) -> None:
    """A thousand partitions do not fit a screen; 0 shows them all."""
    assert len(mirror("lag", "-u", url, "-n", "1").stdout.splitlines()) == 2
    assert len(mirror("lag", "-u", url, "-n", "0").stdout.splitlines()) == 4


def test_lag_for_programs(url: str) -> None:
    """JSON has every partition, and numbers."""
    answer = json.loads(mirror("lag", "-u", url, "-o", "json").stdout)

    assert answer["format_version"] == 1
    assert [p["lag_seconds"] for p in answer["partitions"]] == [300.0, 0.0, -1.0]


def test_watch_is_for_people(url: str) -> None:
    """A live table has no end, so it is no document."""
    assert mirror("lag", "-u", url, "--watch", "-o", "json").exit_code == 2


def test_topology_in_a_terminal(url: str) -> None:
    """The picture has each source, where its records go, and each flow's state."""
    assert mirror("topology", "-u", url).stdout.splitlines() == [
        "A",
        "├──► B  RUNNING, 2.0 MB/s, 5 min behind",
        "└──► C  RETRYING, 0 B/s",
    ]


@pytest.mark.parametrize("form", ["mermaid", "dot", "json"])
def test_topology_in_every_form(url: str, form: str) -> None:
    """All forms have the flows' states."""
    result = mirror("topology", "-u", url, "-o", form)

    assert result.exit_code == 0
    assert "RETRYING" in result.stdout


def test_topology_with_a_silent_cluster() -> None:
    """The picture marks a cluster that does not answer, and says since when and why;
    for programs each end has its cluster's id.
    """
    store = StatusStore(("A->B",))
    show(store, "A->B", source="A", target="B", state=FlowState.RUNNING)
    store.clusters = (
        cluster_status("A"),
        cluster_status("B", reason="no route to host"),
    )
    with StatusServer(store, "127.0.0.1", 0) as server:
        source, flow, silent = mirror("topology", "-u", server.url).stdout.splitlines()
        answer = json.loads(mirror("topology", "-u", server.url, "-o", "json").stdout)

    assert source == "A"
    assert flow == "└──► B (does not answer)  RUNNING, 0 B/s"
    assert silent.startswith("cluster B does not answer, since 20")
    assert silent.endswith(": no route to host")
    (values,) = answer["flows"]
    assert (values["source_id"], values["target_id"]) == ("id-of-A", "id-of-B")


@pytest.mark.parametrize("form", ["text", "mermaid", "dot"])
def test_topology_leaves_the_terminal_alone(form: str) -> None:
    """What a service answers does not control the terminal."""
    store = StatusStore(("A->B",))
    show(store, "A->B", source="\x1b[2J", target="B")
    store.clusters = (cluster_status("B", reason="\x1b[31m"),)
    with StatusServer(store, "127.0.0.1", 0) as server:
        result = mirror("topology", "-u", server.url, "-o", form)

    assert result.exit_code == 0
    assert "\\x1b[2J" in result.stdout
    assert "\x1b" not in result.stdout


EDGES = [
    Edge(source="us-east", target='eu "west"', state="RUNNING", note="1 s behind"),
    Edge(source='eu "west"', target="us-east", state="FAILED", note=""),
]


def test_mermaid():
    """Names that the language does not allow are in labels only."""
    assert mermaid(EDGES) == [
        "flowchart LR",
        '  c0["us-east"]',
        "  c1[\"eu 'west'\"]",
        '  c0 -->|"RUNNING, 1 s behind"| c1',
        '  c1 -->|"FAILED"| c0',
        "  linkStyle 0 stroke:green",
        "  linkStyle 1 stroke:red",
    ]


def test_dot():
    """Graphviz, where there is one, can draw it."""
    lines = dot(EDGES)
    assert '  c1 -> c0 [label="FAILED", color="red"];' in lines
    if shutil.which("dot"):
        subprocess.run(["dot", "-Tsvg"], input="\n".join(lines).encode(), check=True,
                       capture_output=True)  # fmt: skip


def edges(*flows: str) -> list[Edge]:
    ends = [flow.split(">") for flow in flows]
    return [Edge(source=a, target=b, state="S", note="") for a, b in ends]


def test_a_chain_in_a_terminal():
    """What a target is the source of stands below it, once; circles end."""
    assert terminal(edges("b>c", "a>b", "b>d", "d>b", "x>d")) == [
        "a",
        "└──► b  S",
        "     ├──► c  S",
        "     └──► d  S",
        "          └──► b  S",
        "x",
        "└──► d  S",
    ]


def test_a_long_chain_in_a_terminal():
    """A chain too long for the width goes on at the left; none is left out."""
    lines = terminal(edges(*(f"{n}>{n + 1}" for n in range(2000))))

    assert sum("►" in line for line in lines) == 2000
    assert max(map(len, lines)) < 80


def test_nothing_to_draw():
    """A service without flows has an empty picture."""
    assert terminal([]) == []
