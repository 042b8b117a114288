"""A process that must not outlive us.

Main type: `Leash`. A two-line shell waits on a pipe that only this process
holds; when we die, however we die, the pipe closes and the shell kills the
process. The kernel's PR_SET_PDEATHSIG is not used: it fires when the *thread*
that started the process ends, and it needs `preexec_fn`.
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
            # Ctrl-C reaches the whole terminal; the watch has to survive it.
            start_new_session=True,
        )

    def release(self) -> None:
        """Let go; the process is dead already, and its pid may be someone else's."""
        self._shell.communicate(input=b"\n")
