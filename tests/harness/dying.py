"""Commands that get SIGKILL at a chosen point, on a machine of their own.

Main function: `dies`. It is called again and again, with a later request each time,
until a command comes to its end: then every request was the last one of some command.
`dies_after` knows the steps of a switch.
"""

from __future__ import annotations

import os
import signal
import socket
from typing import TYPE_CHECKING

from mirror.cli.main import app
from mirror.clusters.wire.connection import Connection
from mirror.clusters.wire.handshake import QUESTIONS
from mirror.pairs.journal import StepState
from mirror.recovery.runner import Operator
from tests.harness.slot_processes import exit_code_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from mirror.recovery.runner import NewEntry


def dies(
    folder: Path, *words: str, at: int, asks: bool = False, host: str = "first"
) -> bool:
    """Whether a command with this folder's configuration gets as far as the request of
    this number, before which it is killed. Requests that change nothing count only if
    the command just `asks`. `host`: the name of its machine.
    """

    def run() -> None:
        sent, be_sure = 0, Connection._be_sure

        def dying(connection: Connection, api_key: int) -> None:
            nonlocal sent
            sent += asks or api_key not in QUESTIONS
            if sent == at:
                os.kill(os.getpid(), signal.SIGKILL)
            be_sure(connection, api_key)

        setattr(Connection, "_be_sure", dying)  # noqa: B010  of all connections
        _run(folder, words, host)

    code = exit_code_of(run)
    assert code in {0, 1, -signal.SIGKILL}  # 1: it found something
    return code == -signal.SIGKILL


def dies_after(folder: Path, *words: str, step: str, host: str) -> None:
    """A command is killed right after it has noted this step of its switch as done, and
    with that the next one as begun, or the run's end. `host` as for `dies`.
    """

    def run() -> None:
        note = Operator._note

        def dying(operator: Operator, *said: NewEntry) -> None:
            note(operator, *said)
            done = [name for name, state, _ in said if state is StepState.DONE]
            if step in done:
                os.kill(os.getpid(), signal.SIGKILL)

        setattr(Operator, "_note", dying)  # noqa: B010  of all runs
        _run(folder, words, host)

    assert exit_code_of(run) == -signal.SIGKILL


def _run(folder: Path, words: Sequence[str], host: str) -> None:
    setattr(socket, "gethostname", lambda: host)  # noqa: B010  of all callers
    app((*words, "-c", str(folder / "mirror.yaml")))
