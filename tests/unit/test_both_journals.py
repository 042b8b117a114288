"""Both journals of a pair at once: neither waits for the other one."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, cast

import pytest

from mirror.errors import ClusterError, FencedError, MirrorError, UnreachableError
from mirror.pairs.journal import JournalWriter
from mirror.recovery import runner

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

pytestmark = pytest.mark.unit

SILENT, FENCED = UnreachableError("silent"), FencedError("a later one")
REFUSED = ClusterError("refused")


class Writer(JournalWriter):
    """One that does what it is given in place of asking a cluster."""

    def __init__(self, act: Callable[[], object], *, tells: bool = True) -> None:
        self._act = act
        self.tells_place = tells

    def write(self, *_entries: Any, **_seconds: Any) -> None:
        self._act()

    def require_place(self) -> None:
        self._act()


def saying(error: MirrorError | None) -> Writer:
    def act() -> None:
        if error is not None:
            raise error

    return Writer(act)


def write(writers: Sequence[Writer]) -> list[MirrorError]:
    return runner.write_journals(writers, cast("Any", ()), seconds=5)


def test_they_are_written_side_by_side() -> None:
    """Each write ends only once the other one has begun."""
    meeting = threading.Barrier(2, timeout=10)

    assert write([Writer(meeting.wait), Writer(meeting.wait)]) == []


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ([None, None], []),
        ([None, SILENT], [SILENT]),
        ([SILENT, FENCED], [FENCED, SILENT]),
        ([FENCED], [FENCED]),
    ],
)
def test_what_went_wrong(
    said: list[MirrorError | None], found: list[MirrorError]
) -> None:
    """Each error is returned, and a later operator comes first."""
    assert write([saying(each) for each in said]) == found


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ([None, None], None),
        ([None, SILENT], None),
        ([SILENT, None], None),
        ([SILENT, SILENT], SILENT),
        ([SILENT], SILENT),
        ([SILENT, FENCED], FENCED),
        ([FENCED, None], FENCED),
        ([REFUSED, SILENT], REFUSED),
        ([REFUSED, FENCED], FENCED),
        ([], None),
    ],
)
def test_a_silent_journal_is_no_matter_while_the_other_answers(
    said: list[MirrorError | None], error: MirrorError | None
) -> None:
    """A later operator is named first; silence only if no other journal answers."""
    writers = [saying(each) for each in said]
    if error is None:
        runner.require_place(writers)
        return
    with pytest.raises(type(error), match=str(error)):
        runner.require_place(writers)


def test_what_does_not_answer_takes_a_note() -> None:
    """Neither an old broker nor one that is silent says who owns the place; a later
    operator is an error.
    """
    assert runner.is_sure_of_place([saying(None), saying(SILENT)])
    assert not runner.is_sure_of_place([saying(SILENT), saying(SILENT)])
    old = Writer(lambda: None, tells=False)
    assert not runner.is_sure_of_place([saying(None), old])
    with pytest.raises(FencedError):
        runner.is_sure_of_place([saying(None), saying(FENCED)])
