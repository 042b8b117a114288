"""What carries out the tasks of a proof.

Main types: `Runner`, and `InProcess`, which needs nothing else and is enough for a few
records; `spark_runner` has the one for whole logs. A task is a call without arguments
that can be pickled; its result is a value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


class Runner(Protocol):
    """Carries out tasks somewhere."""

    def results(self, tasks: Iterable[Callable[[], Any]]) -> Iterator[Any]:
        """What the tasks return, as they end."""


class InProcess:
    """Carries them out here, one by one."""

    def results(self, tasks: Iterable[Callable[[], Any]]) -> Iterator[Any]:
        """What the tasks return, in order."""
        for task in tasks:
            yield task()
