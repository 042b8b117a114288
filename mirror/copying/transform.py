"""The user's function: finds it by name, calls it, and checks what it returns.

Main type: `Transform`. The function gets a record batch (`schema.SCHEMA`) and returns
the rows to keep, in order, with its changes. Anything else is an error that says what
is wrong. `problems` reports unusable functions before a flow runs. `transforming`
decides what happens to records that fail.
"""

from __future__ import annotations

import importlib
import inspect
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirror.errors import TransformError
from mirror.records.schema import KEPT, SCHEMA

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mirror.config.schema import FlowConfig, MirrorConfig

_LONGEST_TEXT = 300


class Transform:
    """One user function, with the options that the flow passes to it."""

    def __init__(self, name: str, options: Mapping[str, Any]) -> None:
        """Import it.

        Raises:
            TransformError: it cannot be imported or called with these options.
        """
        self.name = name
        self._options = dict(options)
        self._function = _load(name, self._options)

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows to keep, with the schema `KEPT`.

        Raises:
            TransformError: the function failed, or its answer is not a subset.
        """
        try:
            answer = self._function(batch, **self._options)
        except (Exception, SystemExit) as error:
            raise TransformError(one_line(error)) from error
        try:
            return _checked(batch, answer)
        except pa.ArrowException as error:
            raise TransformError(one_line(error)) from error


def transform_of(flow: FlowConfig) -> Transform | None:
    """The flow's function, if it has one. Raises as `Transform` does."""
    if flow.transform is None:
        return None
    return Transform(flow.transform, flow.transform_options)


def problems(config: MirrorConfig) -> list[str]:
    """What is wrong with the functions of enabled flows."""
    found = []
    for name, flow in config.flows.items():
        try:
            if flow.enabled:
                transform_of(flow)
        except TransformError as error:
            found.append(f'flows."{name}".transform: {error}')
    return found


def one_line(error: BaseException) -> str:
    """The type of the error and the first line of its message."""
    said = next((line for line in str(error).splitlines() if line.strip()), "")
    kind = type(error).__name__
    return (f"{kind}: {said.strip()}" if said else kind)[:_LONGEST_TEXT]


def _load(name: str, options: Mapping[str, Any]) -> Callable[..., Any]:
    module_name, _, path = name.partition(":")
    try:
        found: Any = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        hint = ""
        if isinstance(error, ModuleNotFoundError):
            hint = (
                "; install the module next to mirror, or put it in a folder on "
                "PYTHONPATH"
            )
        raise TransformError(
            f'"{name}" cannot be imported: {one_line(error)}{hint}'
        ) from error
    for part in path.split("."):
        if not hasattr(found, part):
            raise TransformError(
                f'"{name}" cannot be found: {module_name} has no {path}'
            )
        found = getattr(found, part)
    if not callable(found) or inspect.isclass(found):
        raise TransformError(f'"{name}" is not a function but a {_kind(found)}')
    try:
        inspect.signature(found).bind(None, **options)
    except TypeError as error:
        given = ", ".join(["a record batch", *(f"{key}=..." for key in options)])
        raise TransformError(
            f'"{name}" cannot be called with ({given}): {error}'
        ) from error
    except ValueError:
        pass  # written in C, without a signature
    callback: Callable[..., Any] = found
    return callback


def _kind(found: Any) -> str:
    return "class" if inspect.isclass(found) else type(found).__name__


def _checked(given: pa.RecordBatch, answer: Any) -> pa.RecordBatch:
    if not isinstance(answer, (pa.RecordBatch, pa.Table)):
        raise TransformError(
            f"it returned {type(answer).__name__} instead of a pyarrow.RecordBatch"
        )
    names = answer.schema.names
    for name in KEPT.names:
        if names.count(name) != 1:
            raise TransformError(
                f'it returned {names.count(name) or "no"} column "{name}"'
            )
    for name in names:
        if name not in SCHEMA.names:
            raise TransformError(
                f'it returned a column "{name}", which records do not have'
            )
        if name not in KEPT.names:
            _same(name, answer.column(name), given)
    arrays = {name: _typed(name, answer.column(name)) for name in KEPT.names}
    _subset(arrays["offset"], given)
    return pa.RecordBatch.from_arrays(list(arrays.values()), schema=KEPT)


def _same(name: str, column: Any, given: pa.RecordBatch) -> None:
    """Records stay in their partition: order and progress depend on it."""
    value = given.column(name)[0]
    if not pc.all(pc.equal(column, value), skip_nulls=False, min_count=0).as_py():
        raise TransformError(
            f'it changed the column "{name}"; records keep their partition'
        )


def _typed(name: str, column: Any) -> pa.Array:
    wanted = SCHEMA.field(name).type
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if array.type != wanted:
        if name == "timestamp" and pa.types.is_timestamp(array.type):
            # A time zone only affects how a time is displayed.
            zoned = pa.timestamp("ms", array.type.tz)
            array = array.cast(zoned, safe=False).cast(pa.int64())
        try:
            array = array.cast(wanted)
        except pa.ArrowException as error:
            raise TransformError(
                f'the column "{name}" that it returned is {column.type} instead of '
                f"{wanted}"
            ) from error
    if name == "headers":
        pairs = array.flatten()
        if array.null_count or pairs.null_count or pairs.field("key").null_count:
            raise TransformError(
                "the headers that it returned are null; use an empty list for no "
                "headers; only a header's value may be null"
            )
    elif array.null_count and name in {"offset", "timestamp"}:
        raise TransformError(f'the column "{name}" that it returned has nulls')
    return array


def _subset(kept: pa.Array, given: pa.RecordBatch) -> None:
    """Check that the offsets are a subset of those given, in order."""
    offered = given.column("offset").to_numpy()
    offsets = kept.to_numpy()
    back = np.flatnonzero(np.diff(offsets) <= 0)
    if len(back):
        first, second = offsets[back[0] : back[0] + 2].tolist()
        raise TransformError(
            f"it returned offset {second} twice"
            if first == second
            else f"it returned offset {second} after {first}: rows must keep "
            "their order"
        )
    if np.array_equal(offered, offsets):
        return
    places = np.minimum(np.searchsorted(offered, offsets), len(offered) - 1)
    strange = offsets[offered[places] != offsets]
    if len(strange):
        raise TransformError(
            f"it returned offset {strange[0]}, which its input did not have: it "
            "cannot add records"
        )
