"""Ctrl-C and SIGTERM, which end a command alike: with exit code 130.

Main functions: `listen`, for a process of its own; `raising`, around the command, in
which the first signal raises `KeyboardInterrupt` and a second one ends the process at
once; and `telling`, which says what the interrupt means. `mirror run` has handlers of
its own.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import FrameType

EXIT_INTERRUPTED = 130
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Told(KeyboardInterrupt):
    """Somebody interrupted the command, and it has said what that means."""


class _State:
    heard: tuple[signal.Signals, ...] = ()
    """The signals to which this process listens."""
    caught = False
    """Whether one came while the command ran."""


def listen() -> None:
    """Take over the signals, but those that this process ignores, as under `nohup`."""
    _State.heard = tuple(
        each for each in _SIGNALS if signal.getsignal(each) is not signal.SIG_IGN
    )
    _handle(_leave)


@contextlib.contextmanager
def _unwrapped() -> Iterator[None]:
    """Python 3.11 makes a RuntimeError of an interrupt that comes while a module makes
    a class; here it is an interrupt again.
    """
    try:
        yield
    except RuntimeError as error:
        if isinstance(error.__cause__, KeyboardInterrupt):
            raise KeyboardInterrupt from error
        raise


@contextlib.contextmanager
def raising() -> Iterator[None]:
    """While the command runs."""
    _handle(_raise)
    try:
        with _unwrapped():
            yield
    finally:
        if not _State.caught:
            _handle(_leave)


def caught() -> bool:
    """Whether the command was interrupted."""
    return _State.caught


@contextlib.contextmanager
def telling(lines: Callable[[], Iterable[str]]) -> Iterator[None]:
    """Around what a command does: if it is interrupted there, say this."""
    try:
        with _unwrapped():
            yield
    except KeyboardInterrupt as stop:
        from mirror.cli.output import complain

        complain(*lines())
        raise Told from stop


def typed() -> list[str]:
    """The words of the command line."""
    return ["mirror", *sys.argv[1:]]


def end(code: object) -> None:
    """Leave at once with this exit code if the command was interrupted: threads that
    still wait for brokers do nothing more, as if they were killed.
    """
    if not _State.caught:
        return
    for each in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            each.flush()
    os._exit(code if isinstance(code, int) else EXIT_INTERRUPTED)


def _handle(action: object) -> None:
    for each in _State.heard:
        signal.signal(each, action)  # type: ignore[arg-type]


def _leave(_number: int, _frame: FrameType | None) -> NoReturn:
    """Before a command is known, or once it has ended: there is nothing to say."""
    os.write(2, b"interrupted\n")
    os._exit(EXIT_INTERRUPTED)


def _raise(_number: int, _frame: FrameType | None) -> NoReturn:
    _State.caught = True
    _handle(signal.SIG_DFL)
    raise KeyboardInterrupt
