"""Counts what goes wrong between this process and its brokers.

Functions: `note_answer` finds the error codes in a decoded answer, `note` counts one
code, `broke` a connection that failed; `counted` has the totals by cluster, API and
error. Names are Kafka's own, as in its brokers' metric ErrorsPerSec, so their number is
limited. A slot's process reports its totals, with the name of the `process`, to the
driver.
"""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
import os
import threading
from typing import TYPE_CHECKING, Any, cast
import uuid

from mirror.clusters import codes
from mirror.errors import AuthenticationError, UnreachableError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mirror.clusters.wire.fetch import Fetched

Named = tuple[tuple[str, int], ...]
Key = tuple[str, str, str]
"""Cluster, API and error."""

CONNECT = "Connect"
"""No API of Kafka's: the connection itself, with TLS."""
UNREACHABLE, TIMEOUT = "UNREACHABLE", "TIMEOUT"
DISCONNECTED, TLS = "DISCONNECTED", "TLS"
"""Errors that no broker answers."""
FETCH = "Fetch"

_lock = threading.Lock()
_counts: Counter[Key] = Counter()
_process: list[str] = []


def _begin_again() -> None:
    """A forked process counts for itself."""
    global _lock  # noqa: PLW0603  another thread may have held it
    _lock = threading.Lock()
    _counts.clear()
    _process[:] = [uuid.uuid4().hex]


_begin_again()
os.register_at_fork(after_in_child=_begin_again)


def process() -> str:
    """A name for this process that no other one has."""
    return _process[0]


def counted() -> dict[Key, int]:
    """All errors since the process started."""
    with _lock:
        return dict(_counts)


def named() -> Named:
    """The same for a report, with the keys as text."""
    return tuple((" ".join(key), count) for key, count in counted().items())


def note(cluster: str, api: str, code: int) -> None:
    """Count an error code, unless it is none."""
    if code != codes.NONE:
        _add(cluster, api, codes.name_of(code))


def note_answer(cluster: str, answer: Any) -> None:
    """Count every error code of a decoded answer."""
    kind: type = type(answer)
    if (place := _place(kind)) is not None:
        for code in _codes(answer, place):
            note(cluster, api_of(kind), code)


def noting(cluster: str, parts: Iterable[Fetched]) -> Iterator[Fetched]:
    """The parts of a Fetch response, while their error codes are counted."""
    for part in parts:
        note(cluster, FETCH, part.error)
        yield part


@contextmanager
def connecting(cluster: str) -> Iterator[None]:
    """Count it if no connection comes about."""
    try:
        yield
    except UnreachableError:
        _add(cluster, CONNECT, UNREACHABLE)
        raise
    except AuthenticationError:
        _add(cluster, CONNECT, TLS)
        raise


def broke(cluster: str, api: str, cause: OSError) -> None:
    """Count a connection that ended while this API's answer was due."""
    error = TIMEOUT if isinstance(cause, TimeoutError) else DISCONNECTED
    _add(cluster, api, error)


def api_of(answer_class: Any) -> str:
    """The name of an answer's API; None is that of bulk answers."""
    if answer_class is None:
        return FETCH
    return str(answer_class.name).removesuffix("Response")


def _add(cluster: str, api: str, error: str) -> None:
    with _lock:
        _counts[cluster, api, error] += 1


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a kind of answer keeps error codes."""

    codes: tuple[str, ...]
    below: tuple[tuple[str, _Place], ...]
    """Fields that hold further structures."""


@cache
def _place(answer_class: type) -> _Place | None:
    return _found(cast("Any", answer_class).fields)


def _found(fields: Any) -> _Place | None:
    below = [
        (name, place)
        for name, field in fields.items()
        if (field.is_struct() or field.is_struct_array())
        and (place := _found(field.fields)) is not None
    ]
    own = [name for name in fields if name.endswith("error_code")]
    return _Place(tuple(own), tuple(below)) if own or below else None


def _codes(value: Any, place: _Place) -> Iterator[int]:
    for name in place.codes:
        if code := getattr(value, name):
            yield code
    for name, under in place.below:
        found = getattr(value, name)
        for each in found if isinstance(found, list) else [found]:
            if each is not None:
                yield from _codes(each, under)
