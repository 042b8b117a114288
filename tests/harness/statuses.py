"""Statuses for tests that only care for some of their fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass, replace
from enum import StrEnum
from itertools import count
import time
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_origin, get_type_hints

from mirror.status import states, values
from mirror.status.states import PartitionState
from mirror.status.values import NAMES, ClusterStatus, Counts, PartitionStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirror.status.store import StatusStore

T = TypeVar("T")
_NAMES = {**vars(states), **vars(values), "Mapping": Mapping}


def sample(kind: type[T], /, **given: Any) -> T:
    """One of these, with nothing in the fields that have to have a value."""
    required = [
        field.name
        for field in fields(kind)  # type: ignore[arg-type]
        if field.default is MISSING and field.default_factory is MISSING
    ]
    hints = get_type_hints(kind, _NAMES)
    return kind(**{name: _some(hints[name], int) for name in required} | given)


def whole(kind: type[T], /, **given: Any) -> T:
    """One with something in every field: one of everything that it may have, and a
    number of its own for each figure.
    """
    numbers = count(1)
    return _whole(kind, lambda: next(numbers), **given)


def _whole(kind: type[T], number: Callable[[], int], /, **given: Any) -> T:
    hints = get_type_hints(kind, _NAMES)
    names = [each.name for each in fields(kind)]  # type: ignore[arg-type]
    return kind(**{name: _some(hints[name], number) for name in names} | given)


def _some(hint: Any, number: Callable[[], int]) -> Any:
    """A value of this type; `int` as the source of numbers gives nothing, or zero."""
    origin, kinds = get_origin(hint), get_args(hint)
    if hint in {int, float, bool}:
        return hint(number())
    if hint is str:
        return "" if number is int else "x"
    if origin in {tuple, Mapping} and number is int:
        return origin() if origin is tuple else {}
    if origin is tuple:
        several = kinds[:1] if kinds[-1] is ... else kinds
        return tuple(_some(each, number) for each in several)
    if origin is Mapping:
        return {_some(kinds[0], number): _some(kinds[1], number)}
    if kinds:  # or None
        return None if number is int else _some(kinds[0], number)
    if issubclass(hint, StrEnum):
        return next(iter(hint))
    assert is_dataclass(hint)
    return sample(hint) if number is int else _whole(hint, number)


def counted(values: dict[str, Any]) -> dict[str, Any]:
    """The same, with the fields that `Counts` declares moved into `counts`."""
    counts = {name: values[name] for name in values.keys() & set(NAMES)}
    rest = {name: each for name, each in values.items() if name not in counts}
    return {**rest, "counts": Counts(**counts)}


def partition_status(topic: str, number: int, **changes: Any) -> PartitionStatus:
    """A running partition that has nothing to do, except for the changes."""
    known: dict[str, Any] = {
        "topic": topic,
        "partition": number,
        "target_topic": f"A.{topic}",
        "state": "RUNNING",
        "latency_p50_ms": -1.0,
        "latency_p99_ms": -1.0,
        **changes,
    }
    known["state"] = PartitionState(known["state"])
    return sample(PartitionStatus, **counted(known))


def cluster_status(alias: str, *, reason: str = "") -> ClusterStatus:
    """A cluster that answers, or does not for this reason."""
    return ClusterStatus(
        alias=alias,
        sides=("source",),
        answers=not reason,
        since=time.time(),
        reason=reason,
        cluster_id=f"id-of-{alias}",
    )


def show(store: StatusStore, flow: str, **changes: Any) -> None:
    """Change some fields of a flow's status."""
    store.update(flow, lambda old: replace(old, **changes))
