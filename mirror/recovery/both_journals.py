"""What an operator asks of the journals of both clusters, or writes there, at once.

Main functions: `write`, which returns what went wrong, and `require_place`, whether a
later operator took over. Each journal has a thread, so that one waits for its brokers
while the other one does: producers may be blocked meanwhile.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
import time
from typing import TYPE_CHECKING

from mirror.clusters import patience
from mirror.errors import FencedError, MirrorError, UnreachableError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mirror.recovery.journal import Entry, JournalWriter


def write(
    writers: Sequence[JournalWriter], entries: Sequence[Entry], *, seconds: float
) -> list[MirrorError]:
    """Write the same entries to each, within so many seconds; returns why some could
    not be written, first that a later operator took over.
    """

    def write_to(writer: JournalWriter) -> None:
        with patience.until(time.monotonic() + seconds):
            writer.write(*entries, seconds=seconds)

    return _errors(write_to, writers)


def require_place(writers: Sequence[JournalWriter]) -> None:
    """Before a change that is not noted one by one. A journal that is silent is no
    matter while another one answers: the next note needs it.

    Raises:
        FencedError: a later operator took over.
        ClusterError: no journal answers, or one refuses.
    """
    errors = _errors(lambda writer: writer.require_place(), writers)
    silent = [each for each in errors if isinstance(each, UnreachableError)]
    if len(silent) < len(writers):
        errors = [each for each in errors if each not in silent]
    if errors:
        raise errors[0]


def _errors(
    do: Callable[[JournalWriter], None], writers: Sequence[JournalWriter]
) -> list[MirrorError]:
    def attempt(writer: JournalWriter) -> MirrorError | None:
        try:
            do(writer)
        except MirrorError as error:
            return error
        return None

    if not writers:
        return []
    with ThreadPoolExecutor(len(writers)) as pool:
        # Copied, since for how long brokers are waited for counts here as well.
        begun = [pool.submit(copy_context().run, attempt, each) for each in writers]
    found = [error for each in begun if (error := each.result()) is not None]
    return sorted(found, key=lambda error: not isinstance(error, FencedError))
