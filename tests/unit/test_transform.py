"""The user's function: found by name, and its answers checked."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
import re
from typing import Any

import pyarrow as pa
import pytest

from mirror.copying.transform import Transform, problems
from mirror.errors import TransformError
from mirror.records.schema import HEADERS, KEPT, SCHEMA
from tests.harness.configurations import config

pytestmark = pytest.mark.unit


def batch(count: int = 4) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [
            {
                "topic": "orders",
                "partition": 3,
                "offset": 10 * n,
                "timestamp": dt.datetime(2026, 1, 1, n),  # noqa: DTZ001  as Arrow gives them
                "key": None,
                "value": b"v",
                "headers": [{"key": "a", "value": None}],
            }
            for n in range(count)
        ],
        schema=SCHEMA,
    )


def answer(what: Any) -> pa.RecordBatch:
    return Transform("tests.functions:answers", {"what": what})(batch())


def with_column(name: str, column: pa.Array) -> pa.RecordBatch:
    given = batch()
    index = given.schema.get_field_index(name)
    return given.set_column(index, name, column)


@pytest.mark.parametrize(
    ("name", "options", "problem"),
    [
        (
            "nowhere:f",
            {},
            (
                "cannot be imported: ModuleNotFoundError: No module named "
                "'tests.nowhere'; install the module next to mirror, or put it in a "
                "folder on PYTHONPATH"
            ),
        ),
        ("functions:nothing", {}, "cannot be found: tests.functions has no nothing"),
        ("functions:NOT_A_FUNCTION", {}, "is not a function but a int"),
        ("functions:Rules", {}, "is not a function but a class"),
        (
            "functions:identity",
            {"salt": "x"},
            (
                "cannot be called with (a record batch, salt=...): got an unexpected "
                "keyword argument 'salt'"
            ),
        ),
        (
            "functions:only",
            {},
            (
                "cannot be called with (a record batch): missing a required argument: "
                "'offsets'"
            ),
        ),
    ],
)
def test_a_function_that_cannot_be_used(
    name: str, options: dict[str, Any], problem: str
) -> None:
    """Before anything runs, one message says what is wrong with a name; the values
    of options, which may be secrets, are not in it.
    """
    name = f"tests.{name}"
    with pytest.raises(TransformError) as caught:
        Transform(name, options)
    assert str(caught.value) == f'"{name}" {problem}'
    flows = {
        "A->B": {"transform": name, "transform_options": options},
        "B->A": {"transform": name, "enabled": False},
    }
    assert problems(config(flows)) == [f'flows."A->B".transform: "{name}" {problem}']


def test_a_module_that_breaks_when_imported(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever a module raises when it is imported becomes a message too."""
    (tmp_path / "broken_masks.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(TransformError, match="ZeroDivisionError: division by zero"):
        Transform("broken_masks:f", {})


@pytest.mark.parametrize(
    "fitting",
    [
        lambda given: given,
        lambda given: given.slice(1, 2),
        lambda given: given.select(KEPT.names),
        lambda given: pa.Table.from_batches([given.slice(0, 1), given.slice(2)]),
        lambda given: pa.Table.from_batches([], schema=SCHEMA),
        lambda given: with_column("value", pa.array(["a", None, "", "b"])),
        lambda given: with_column("key", pa.array([b""] * 4, pa.large_binary())),
        lambda given: with_column("offset", pa.array([0, 10, 20, 30], pa.int32())),
        lambda given: with_column(
            "timestamp",
            pa.array([1_000_000_000] * 4, pa.timestamp("us", "Europe/Paris")),
        ),
        lambda given: with_column("timestamp", pa.array([1, 2, 3, 4])),
        lambda given: with_column("headers", pa.array([[]] * 4, HEADERS)),
    ],
    ids=map(str, range(11)),
)
def test_answers_that_fit(fitting: Any) -> None:
    """Parts, tables, and equivalent types are accepted, and get one schema."""
    found = answer(fitting)
    assert found.schema == KEPT
    found.validate(full=True)


def test_times_keep_their_moment() -> None:
    """A time in another unit and zone is the same moment."""
    times = pa.array([1_500_999] * 4, pa.timestamp("us", "Europe/Paris"))
    found = answer(lambda _: with_column("timestamp", times))
    assert found.column("timestamp").cast(pa.int64()).to_pylist() == [1500] * 4


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        (None, "it returned NoneType instead of a pyarrow.RecordBatch"),
        (
            lambda given: given.to_pylist(),
            "it returned list instead of a pyarrow.RecordBatch",
        ),
        (
            lambda given: given.drop_columns(["offset"]),
            'it returned no column "offset"',
        ),
        (
            lambda given: given.append_column("age", pa.array([1] * 4)),
            'it returned a column "age", which records do not have',
        ),
        (
            lambda _: with_column("topic", pa.array(["orders"] * 3 + ["other"])),
            'it changed the column "topic"; records keep their partition',
        ),
        (
            lambda _: with_column("partition", pa.array([3, 3, None, 3], pa.int32())),
            'it changed the column "partition"; records keep their partition',
        ),
        (
            lambda _: with_column("value", pa.array([1, 2, 3, 4])),
            'the column "value" that it returned is int64 instead of binary',
        ),
        (
            lambda _: with_column("timestamp", pa.array([1, None, 3, 4])),
            'the column "timestamp" that it returned has nulls',
        ),
        (
            lambda _: with_column("headers", pa.array([[], None, [], []], HEADERS)),
            "the headers that it returned are null",
        ),
        (
            lambda _: with_column(
                "headers",
                pa.array([[{"key": None, "value": b""}], [], [], []], HEADERS),
            ),
            "the headers that it returned are null",
        ),
        (
            lambda given: given.take(pa.array([0, 2, 1])),
            "it returned offset 10 after 20: rows must keep their order",
        ),
        (
            lambda given: given.take(pa.array([0, 0, 1])),
            "it returned offset 0 twice",
        ),
        (
            lambda _: with_column("offset", pa.array([0, 10, 20, 25])),
            "it returned offset 25, which its input did not have",
        ),
        (
            lambda _: with_column("offset", pa.array([0, 10, 20, 99])),
            "it returned offset 99, which its input did not have",
        ),
        (
            lambda given: given.column("nothing"),
            "KeyError: 'Field \"nothing\" does not exist in schema'",
        ),
    ],
    ids=map(str, range(15)),
)
def test_answers_that_do_not_fit(wrong: Any, problem: str) -> None:
    """An answer that is not an ordered part of the input is an error that names what is
    wrong, never a copy with other records.
    """
    with pytest.raises(TransformError) as caught:
        answer(wrong)
    assert str(caught.value).startswith(problem)


def test_the_documentation_s_functions_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The documentation's functions do what it says."""
    page = Path(__file__).parents[2] / "docs" / "howto" / "transforms.md"
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    assert len(blocks) == 2
    (tmp_path / "masks_of_the_docs.py").write_text("\n\n".join(blocks))
    monkeypatch.syspath_prepend(tmp_path)

    keys = pa.array([b"test-1", None, b"order-2", b"test-3"])
    found = Transform("masks_of_the_docs:without_tests", {})(with_column("key", keys))
    assert found.column("key").to_pylist() == [None, b"order-2"]
    found = Transform("masks_of_the_docs:without_tests", {"prefix": "order-"})(
        with_column("key", keys)
    )
    assert found.column("offset").to_pylist() == [0, 10, 30]

    values = pa.array([b"paid by 4111111111111234 today", None, b"", b"1234"])
    found = Transform("masks_of_the_docs:without_cards", {})(
        with_column("value", values)
    )
    assert found.column("value").to_pylist() == [
        b"paid by ************1234 today",
        None,
        b"",
        b"1234",
    ]


def test_a_function_that_leaves_is_one_that_fails() -> None:
    """A call of exit() does not end the worker."""

    def leave(_given: pa.RecordBatch) -> None:
        raise SystemExit(3)

    with pytest.raises(TransformError, match="SystemExit: 3"):
        answer(leave)


def test_a_long_error_is_one_line() -> None:
    """A function's own error is shown as one line of bounded length."""

    def fail(_given: pa.RecordBatch) -> None:
        raise ValueError("\nfirst " + "x" * 1000 + "\nsecond")

    with pytest.raises(TransformError) as caught:
        answer(fail)
    said = str(caught.value)
    assert said.startswith("ValueError: first xxx")
    assert len(said) == 300
    assert "\n" not in said
