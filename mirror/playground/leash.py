"""Kills a process when we die.

Main type: `Leash`. A two-line shell waits on a pipe that only this process holds; when
we die, however we die, the pipe closes and the shell kills the process. It does not use
the kernel's PR_SET_PDEATHSIG, which fires when the *thread* that started the process
ends, and needs `preexec_fn`.
"""

from __future__ import annotations

import subprocess

_WATCH = 'read -r _released || kill -KILL "$0" 2>/dev/null'


class Leash:
    """Ties the process `pid` to the life of this one until released."""

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
