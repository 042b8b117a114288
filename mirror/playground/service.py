"""The mirror service as a separate process, as a user runs it.

Main type: `ServiceProcess`, a context: it starts `mirror run`, finds the status address
in the log, queries it, and ends the process. `kill_workers` kills on purpose, but only
the Python workers below this process.
"""

from __future__ import annotations

import contextlib
from http.client import HTTPException
import json
import os
from pathlib import Path
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any, Self
from urllib.request import ProxyHandler, build_opener

from mirror.errors import PlaygroundError
from mirror.playground.leash import Leash

if TYPE_CHECKING:
    from types import TracebackType

_PACKAGE_FOLDER = Path(__file__).parents[2]
_LISTENS = "service listens"
_DAEMON = b"mirror.relay.daemon"
_LISTEN_SECONDS = 240.0
"""A new installation compiles kernels at its first start, maybe on a busy machine."""
_STOP_SECONDS = 30.0
_LINE = 300
"""How many characters of a line of its log are shown."""


class ServiceProcess:
    """`mirror run` with one configuration file; its JSON log is in the same folder."""

    def __init__(self, config: Path) -> None:
        self._log = config.with_suffix(".log")
        self._opener = build_opener(ProxyHandler({}))  # never through a proxy
        # Spark leaves files in its working directory, so use the configuration's.
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "mirror", "run", "-c", config],
                cwd=config.parent,
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is ours to pass on
            )
        self._leash = Leash(self._process.pid)
        self.url = ""

    def __enter__(self) -> Self:
        try:
            self.url = self._wait_for_url()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self._end()

    def status(self) -> dict[str, Any]:
        """The answer to `/status`.

        Raises:
            PlaygroundError: the service has ended or does not answer.
        """
        self._check()
        try:
            with self._opener.open(f"{self.url}/status", timeout=10) as response:
                return dict(json.load(response))
        except (OSError, HTTPException) as error:
            self._check()
            raise PlaygroundError(
                f"the service at {self.url} does not answer: {error}"
            ) from error

    def kill_workers(self) -> int:
        """SIGKILL to the Python workers that carry records; how many there were."""
        killed = 0
        for pid in _descendants(self._process.pid):
            with contextlib.suppress(OSError):  # it may end before we get there
                if _is_worker(pid):
                    os.kill(pid, signal.SIGKILL)
                    killed += 1
        return killed

    def stop(self) -> tuple[int, float]:
        """Send SIGTERM; returns the exit code, and how many seconds it took.

        Raises:
            PlaygroundError: it did not end; it is killed then.
        """
        started = time.monotonic()
        self._process.terminate()
        try:
            code = self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise PlaygroundError(
                f"the service did not end within {_STOP_SECONDS:.0f} s of SIGTERM"
                f"\n{self.log_tail()}"
            ) from error
        return code, time.monotonic() - started

    def log_tail(self, lines: int = 20) -> str:
        """The last lines it logged."""
        return "\n".join(line[:_LINE] for line in self._log_lines()[-lines:])

    def _log_lines(self) -> list[str]:
        return self._log.read_text(encoding="utf-8", errors="replace").splitlines()

    def _wait_for_url(self) -> str:
        deadline = time.monotonic() + _LISTEN_SECONDS
        while time.monotonic() < deadline:
            self._check()
            for line in self._log_lines():
                with contextlib.suppress(ValueError):
                    event = json.loads(line)
                    if isinstance(event, dict) and event.get("event") == _LISTENS:
                        return str(event["url"])
            time.sleep(0.05)
        raise PlaygroundError(
            f"the service did not listen within {_LISTEN_SECONDS:.0f} s"
            f"\n{self.log_tail()}"
        )

    def _check(self) -> None:
        code = self._process.poll()
        if code is not None:
            raise PlaygroundError(
                f"the service ended with exit code {code}\n{self.log_tail()}"
            )

    def _end(self) -> None:
        try:
            if self._process.poll() is None:
                self.stop()
        finally:
            if self._process.poll() is None:
                self._process.kill()
                self._process.wait()
            self._leash.release()


def _environment() -> dict[str, str]:
    """Our environment, without variables that would override the demo's own file."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not (name.startswith("MIRROR_") and "__" in name)
    }
    path = [str(_PACKAGE_FOLDER), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**kept, "PYTHONPATH": os.pathsep.join(path)}


def _is_worker(pid: int) -> bool:
    """Whether it is a worker of Spark's, which is in the group of its daemon."""
    # A whole argument: Spark's JVM has the name within one of its own.
    words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    return _DAEMON in words and os.getpgid(pid) != pid


def _descendants(root: int) -> set[int]:
    """All processes below `root`, from /proc; none where there is no /proc."""
    parents = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError):
            # The name, in parentheses, may itself contain blanks and parentheses.
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            parents[int(entry.name)] = int(fields[1])
    found: set[int] = set()
    level = {root}
    while level:
        level = {pid for pid, parent in parents.items() if parent in level} - found
        found |= level
    return found
