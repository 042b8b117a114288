"""One schema registry as a process of this machine.

Main type: `RegistryProcess`, which starts it, waits until it answers, and stops or
kills it. What it keeps in memory is gone then.
"""

from __future__ import annotations

from dataclasses import dataclass, field
import http.client
import os
import signal
import socket
import subprocess
import time
from typing import TYPE_CHECKING, Self

from mirror.errors import PlaygroundError
from mirror.playground.node import Leash
from mirror.playground.ports import LOOPBACK

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_START_SECONDS = 120.0
_STOP_SECONDS = 10.0
_PAUSE_SECONDS = 0.05
_LOG_TAIL = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryPlan:
    """All that a registry needs to know before it starts."""

    name: str
    """Its make, for people."""
    command: Sequence[str]
    folder: Path
    port: int
    path: str = ""
    """Where Confluent's API is."""
    tls: bool = False
    environ: Mapping[str, str] = field(default_factory=dict)


class RegistryProcess:
    """A registry; as a context manager it runs while the block does."""

    def __init__(self, plan: RegistryPlan) -> None:
        self._plan = plan
        self._log = plan.folder / "registry.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._leash: Leash | None = None

    @property
    def name(self) -> str:
        return self._plan.name

    @property
    def url(self) -> str:
        scheme = "https" if self._plan.tls else "http"
        return f"{scheme}://{LOOPBACK}:{self._plan.port}{self._plan.path}"

    def start(self) -> None:
        """Start it, and wait until it answers.

        Raises:
            PlaygroundError: it ended, or does not answer in time.
        """
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                list(self._plan.command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._plan.folder,
                env={**os.environ, **self._plan.environ},
                start_new_session=True,
            )
        self._leash = Leash(self._process.pid)
        deadline = time.monotonic() + _START_SECONDS
        while not self._answers():
            if self._process.poll() is not None:
                raise PlaygroundError(f"{self.name} ended: {self.log_tail()}")
            if time.monotonic() > deadline:
                raise PlaygroundError(f"{self.name} does not answer: {self.log_tail()}")
            time.sleep(_PAUSE_SECONDS)

    def stop(self) -> None:
        """End it, by force if it takes long."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._forget()

    def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None:
            self._process.kill()
        self._forget()

    def freeze(self) -> None:
        """Let it accept connections and answer nothing, until `thaw`."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        # On a busy machine its threads go on for a while.
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED)

    def thaw(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def log_tail(self) -> str:
        return self._log.read_text(errors="replace")[-_LOG_TAIL:]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def _answers(self) -> bool:
        if self._plan.tls:  # it may ask for a certificate that we do not have
            return _accepts(self._plan.port)
        line = http.client.HTTPConnection(LOOPBACK, self._plan.port, timeout=5)
        try:
            line.request("GET", f"{self._plan.path}/subjects")
            return line.getresponse().status < http.client.INTERNAL_SERVER_ERROR
        except (OSError, http.client.HTTPException):
            return False
        finally:
            line.close()

    def _forget(self) -> None:
        if self._process is not None:
            self._process.wait()
            self._process = None
        if self._leash is not None:
            self._leash.release()
            self._leash = None


def _accepts(port: int) -> bool:
    try:
        socket.create_connection((LOOPBACK, port), timeout=0.5).close()
    except OSError:
        return False
    return True
