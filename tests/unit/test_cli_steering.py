"""`mirror pause`, `resume`, `flow reset`, `loss list`: what is refused, and how."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import PydanticCustomError
import pytest

from mirror.config import values
from tests.harness.commands import config_file, mirror

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.unit


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return config_file(tmp_path)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("pause", "A->C"), 'has no flow "A->C"; did you mean "A->B"?'),
        (("resume", "orders"), 'has no flow "orders"'),
        (("pause", "A->B", "--topic", "*x"), "is not a valid regex"),
        (("flow", "reset", "A->B", "--to", "yesterday"), "cannot read"),
        (("flow", "reset", "A->B", "--to", "1969-01-01"), "before 1970"),
        (("flow", "reset", "A->B"), "--to"),
        (("flow", "remove", "A->C"), 'has no flow "A->C"; did you mean "A->B"?'),
        (("loss", "list", "--flow", "B->A"), 'has no flow "B->A"'),
    ],
)
def test_wrong_words_exit_2(config: Path, words: tuple[str, ...], said: str) -> None:
    """A mistake on the command line is one sentence; no cluster is contacted."""
    result = mirror(*words, "-c", config)
    assert result.exit_code == 2
    assert said in " ".join(result.output.replace("│", " ").split())


@pytest.mark.parametrize(
    ("words", "port"),
    [
        (("pause", "A->B", "--yes"), 2),
        (("resume", "A/B", "--yes"), 2),
        (("flow", "reset", "A/B", "--to", "latest", "--yes"), 1),
        (("flow", "remove", "A/B", "--yes"), 2),
        (("flow", "remove", "B/A", "--without-source", "--yes"), 1),
        (("loss", "list"), 2),
    ],
)
def test_who_does_not_answer_is_named(
    config: Path, words: tuple[str, ...], port: int
) -> None:
    """An unreachable cluster is one sentence and exit code 1, no traceback."""
    result = mirror(*words, "-c", config)
    assert result.exit_code == 1
    assert f"127.0.0.1:{port}" in result.output
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("Earliest", "earliest"),
        ("latest", "latest"),
        ("2026-01-31T08:00:00Z", 1769846400000),
        ("2026-01-31T09:00:00+01:00", 1769846400000),
        ("2026-01-31T08:00:00", 1769846400000),
        ("1769846400000", 1769846400000),
        (1769846400000, 1769846400000),
        (0, 0),
        (datetime(2026, 1, 31, 8, tzinfo=UTC), 1769846400000),
        (date(2026, 1, 31), 1769817600000),
    ],
    ids=lambda value: f"{type(value).__name__}-{value}",
)
def test_start_takes_words_and_moments(written: object, meant: object) -> None:
    """In every form that YAML or a variable gives it, a time means one time in UTC."""
    assert values.start(written) == meant


@pytest.mark.parametrize(
    "written",
    ["none", "yesterday", "2026", 2026, -1, True],
    ids=lambda value: f"{type(value).__name__}-{value}",
)
def test_start_refuses_the_rest(written: object) -> None:
    """Seconds and years are not taken for milliseconds, and 1970 is refused."""
    with pytest.raises(PydanticCustomError):
        values.start(written)


@given(st.integers(10**11, 4 * 10**12))
def test_start_survives_its_own_form(milliseconds: int) -> None:
    """Text and number of one time mean the same."""
    moment = datetime.fromtimestamp(milliseconds // 1000, UTC)
    assert values.start(moment.isoformat()) == values.start(moment)
    assert values.start(str(milliseconds)) == values.start(milliseconds)


@pytest.mark.parametrize(
    ("recovery", "said"),
    [
        ({"A<->B": {"active": "A"}}, "belongs to the pair A<->B"),
        ({"A<->C": {"active": "A", "feeds": ["B"]}}, "A<->C feeds B"),
    ],
)
def test_a_flow_of_a_pair_is_not_removed(
    tmp_path: Path, recovery: dict[str, object], said: str
) -> None:
    """A pair would lose it: the command names the pair, and contacts no cluster."""
    names = (
        ["A->B", "A->C", "C->A", "C->B"] if "C" in str(recovery) else ["A->B", "B->A"]
    )
    flows = {name: {"topics": ["t"], "policy": "identity"} for name in names}
    clusters = {name: {"bootstrap_servers": f"127.0.0.1:{n}"} for n, name in
                enumerate("ABC", 1)}  # fmt: skip
    file = config_file(tmp_path, clusters=clusters, flows=flows, recovery=recovery)
    result = mirror("flow", "remove", "A/B", "--yes", "-c", file)
    assert result.exit_code == 1
    assert said in result.output
