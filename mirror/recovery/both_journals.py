"""What an operator does with the journals of both clusters, at once.

Main functions: `read`; `take_over`, which makes it the only one; `write`, which returns
what went wrong; and `require_place`, whether a later operator took over. Each journal
has a thread, so that one waits for its brokers while the other one does: producers may
be blocked meanwhile.
"""

from __future__ import annotations

from functools import partial
import time
from typing import TYPE_CHECKING

from mirror import patience
from mirror.clusters.at_once import at_once
from mirror.errors import FencedError, MirrorError, UnreachableError
from mirror.recovery.journal import JournalReader, JournalWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mirror.clusters.cluster import Cluster
    from mirror.recovery.journal import Entry


def read(readers: Sequence[JournalReader]) -> list[tuple[Entry, ...]]:
    """What each says now, without waiting for an operator. Raises as its `read`."""
    begun = at_once([partial(each.read, wait=False) for each in readers])
    return [each.result() for each in begun]


def take_over(
    pair: str, clusters: Sequence[Cluster], readers: Sequence[JournalReader]
) -> list[JournalWriter]:
    """A writer for each cluster. Raises as `JournalWriter`."""
    ends = zip(clusters, readers, strict=True)
    begun = at_once([partial(JournalWriter, c, pair, reader) for c, reader in ends])
    return [each.result() for each in begun]


def entries(
    writers: Sequence[JournalWriter], *, seconds: float
) -> list[tuple[Entry, ...]]:
    """What each says now. Raises as its `entries`."""
    begun = at_once([partial(each.entries, seconds=seconds) for each in writers])
    return [each.result() for each in begun]


def write(
    writers: Sequence[JournalWriter], entries: Sequence[Entry], *, seconds: float
) -> list[MirrorError]:
    """Write the same entries to each, within so many seconds; returns why some could
    not be written, first that a later operator took over.
    """

    def write_to(writer: JournalWriter) -> None:
        with patience.until(time.monotonic() + seconds):
            writer.write(*entries, seconds=seconds)

    return _errors([partial(write_to, each) for each in writers])


def require_place(writers: Sequence[JournalWriter]) -> None:
    """Before a change that is not noted one by one. A journal that is silent is no
    matter while another one answers: the next note needs it.

    Raises:
        FencedError: a later operator took over.
        ClusterError: no journal answers, or one refuses.
    """
    errors = _errors([each.require_place for each in writers])
    silent = [each for each in errors if isinstance(each, UnreachableError)]
    if len(silent) < len(writers):
        errors = [each for each in errors if each not in silent]
    if errors:
        raise errors[0]


def is_sure_of_place(writers: Sequence[JournalWriter]) -> bool:
    """The same in one round trip, where that is enough: if not, only a note tells, as
    brokers are too old or none answers now. Raises as `require_place` otherwise.
    """
    if not all(each.tells_place for each in writers):
        return False
    try:
        require_place(writers)
    except UnreachableError:
        return False
    return True


def _errors(work: Sequence[Callable[[], None]]) -> list[MirrorError]:
    found = []
    for each in at_once(work):
        try:
            each.result()
        except MirrorError as error:
            found.append(error)
    return sorted(found, key=lambda error: not isinstance(error, FencedError))
