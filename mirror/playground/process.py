"""A process of this machine that writes a log and ends when we do.

Main types: `LoggedProcess`, which can be started again once it has ended, and `Leash`,
which ties any process to the life of this one.
"""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_WATCH = 'read -r _released || kill -KILL "$0" 2>/dev/null'


class Leash:
    """Ties the process `pid` to the life of this one until released.

    A two-line shell waits on a pipe that only this process holds; when we die, however
    we die, the pipe closes and the shell kills the process. It does not use the
    kernel's PR_SET_PDEATHSIG, which fires when the *thread* that started the process
    ends, and needs `preexec_fn`.
    """

    def __init__(self, pid: int) -> None:
        self._shell = subprocess.Popen(
            ["sh", "-c", _WATCH, str(pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            # Ctrl-C reaches the whole process group; the watch must survive it.
            start_new_session=True,
        )

    def release(self) -> None:
        """Let go; the process is already dead, and its pid may belong to another."""
        self._shell.communicate(input=b"\n")


class LoggedProcess:
    """A process whose output goes to the end of a file; not running at first."""

    def __init__(
        self,
        log: Path,
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self._log = log
        self._cwd, self._env = cwd, env
        self._process: subprocess.Popen[bytes] | None = None
        self._leash: Leash | None = None

    @property
    def pid(self) -> int | None:
        """The process, or None when it does not run."""
        running = self._process is not None and self._process.poll() is None
        return self._process.pid if self._process and running else None

    @property
    def exit_code(self) -> int | None:
        """With which it ended by itself; None while it runs, and before."""
        return None if self._process is None else self._process.poll()

    def start(self, command: Sequence[str | Path]) -> None:
        self._forget()
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._cwd,
                env=self._env,
                # Ctrl-C is for us: we stop processes in our own order.
                start_new_session=True,
            )
        self._leash = Leash(self._process.pid)

    def stop(self, seconds: float) -> int | None:
        """End it cleanly; after these seconds, kill it. Returns its exit code, None if
        it was killed or did not run.
        """
        if self._process is None:
            return None
        self._process.terminate()
        code = None
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._forget()
        return code

    def kill(self) -> None:
        """SIGKILL: it cannot flush or close anything."""
        if self._process is not None:
            self._process.kill()
        self._forget()

    def log_lines(self) -> list[str]:
        """What it wrote."""
        if not self._log.exists():
            return []
        return self._log.read_text(encoding="utf-8", errors="replace").splitlines()

    def _forget(self) -> None:
        if self._process is not None:
            self._process.wait()
        if self._leash is not None:
            self._leash.release()
        self._process = self._leash = None
