"""`mirror group`: the file for kafka-consumer-groups, also when several flows have an
answer, and which maps answer.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import typer

from mirror.cli.group import ResetLine, _joint, write
from mirror.topics.merging import Merging
from tests.harness.configurations import configuration

pytestmark = pytest.mark.unit


def line(offset: int, *, partition: int = 0, cluster: str = "B") -> ResetLine:
    return ResetLine(cluster, "orders", partition, offset, f"orders-{partition}")


def test_the_smallest_answer_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    """If two flows have an offset for a partition, the file has it once, with the
    smaller offset, so that nothing is skipped; unknown ones are reported.
    """
    write([line(9), line(7), line(3, partition=1), line(-1, partition=2)])
    shown = capsys.readouterr()
    assert shown.out == "orders,0,7\norders,1,3\n"
    left_out, several = shown.err.splitlines()
    assert left_out == "left out: orders-2 has no answer yet"
    assert several.startswith(
        "orders-0: several flows have an offset, this is the smallest"
    )


def test_equal_answers_are_one(capsys: pytest.CaptureFixture[str]) -> None:
    """If flows agree, there is one line and no message."""
    write([line(9), line(9)])
    assert capsys.readouterr() == ("orders,0,9\n", "")


def test_two_clusters_make_no_file(capsys: pytest.CaptureFixture[str]) -> None:
    """Topics of one name on two clusters are not mixed: the user must choose a flow."""
    with pytest.raises(typer.BadParameter, match=r"lead to A, B: choose with --flow"):
        write([line(9), line(7, cluster="A")])
    assert capsys.readouterr().out == ""


def test_a_flow_that_copies_back_is_asked_for_its_map() -> None:
    """Of two flows that copy a topic there and back, both maps answer; that of a flow
    which never ran is not read.
    """
    clusters = {alias: {"bootstrap_servers": "h:1"} for alias in "AB"}
    flows = {name: {"topics": ["orders"]} for name in ("A->B", "B->A")}
    config = configuration(
        {"clusters": clusters, "defaults": {"policy": "identity"}, "flows": flows}
    )
    known: Any = SimpleNamespace(followed=lambda: [("orders", 0), ("orders", 1)])
    asked: list[str] = []
    reach: Any = lambda _: SimpleNamespace(topic=asked.append)  # noqa: E731
    writers = Merging(config.enabled_flows)

    assert _joint(config.flows["A->B"], reach, writers, known, reverse=True) is None
    assert asked == ["B.offset-map.internal"]
