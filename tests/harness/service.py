"""The service as its users run it: `mirror run` in a process of its own.

Main type: `RunningMirror`, which reads the service's status and can kill what Spark
starts. `config_for` writes a configuration of two clusters.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any, Self
import urllib.parse
import urllib.request

import psutil

from tests.harness.admin import end_offsets
from tests.harness.waiting import PATIENCE_SECONDS, crowd, deadline_in, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

_DAEMON = "mirror.copying.daemon"
_LISTENS = "service listens"
_HELD_UP = "did not come back after its lease"


class RunningMirror:
    """`mirror run` on a configuration; a context manager that leaves nothing behind."""

    def __init__(
        self,
        config: Mapping[str, Any],
        folder: Path,
        *,
        once: bool = False,
        options: Sequence[str] = (),
    ) -> None:
        """`config`: what the YAML file would say; port and state directory are set.
        `options` of the command, besides.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self.state_dir = folder / "state"
        document = {
            **config,
            "service": {
                "http_port": 0,
                "state_dir": str(self.state_dir),
                **config.get("service", {}),
            },
        }
        file = folder / "mirror.yaml"
        file.write_text(json.dumps(document))  # JSON is YAML
        self.log = folder / "mirror.log"
        self._command = [sys.executable, "-m", "mirror", "run", "-c", str(file)]
        if once:
            self._command.append("--once")
        self._command += options
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._url = ""
        self._family: set[psutil.Process] = set()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def launch(self) -> Self:
        """Start it (again), in a process group of its own."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        return self

    def start(self, *, timeout: float = PATIENCE_SECONDS) -> Self:
        """Start it (again), and wait until its status answers."""
        begins_at = self.log.stat().st_size if self.log.exists() else 0
        self.launch()
        assert self._process is not None
        deadline = deadline_in(timeout)
        while True:
            for line in self.log.read_text()[begins_at:].splitlines():
                if _LISTENS in line:
                    self._url = json.loads(line)["url"]
                    return self
            assert self._process.poll() is None, f"it ended:\n{self.log_tail()}"
            assert time.monotonic() < deadline, f"no status:\n{self.log_tail()}"
            time.sleep(0.1)

    @property
    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def url(self) -> str:
        """Where it listens, without a path."""
        return self._url.removesuffix("/status").rstrip("/")

    def status(self) -> dict[str, Any]:
        url = f"{self.url}/status"
        with urllib.request.urlopen(url, timeout=30 * crowd()) as answer:
            return json.load(answer)

    def flow(self, name: str | None = None) -> dict[str, Any]:
        """The status of a flow; of the only one, if none is named."""
        return _flow(self.status(), name)

    def wait_until(
        self,
        predicate: Callable[[dict[str, Any]], Any],
        timeout: float = PATIENCE_SECONDS,
    ) -> dict[str, Any]:
        """The first status document for which the predicate holds."""
        deadline = deadline_in(timeout)
        while True:
            assert self._process is not None
            assert self._process.poll() is None, f"it ended:\n{self.log_tail()}"
            document = self.status()
            if predicate(document):
                return document
            assert time.monotonic() < deadline, (
                f"not within {timeout} s; last status:\n"
                f"{json.dumps(document, indent=1)[:6000]}\n{self.log_tail()}"
            )
            time.sleep(0.2)

    def wait_running(
        self, name: str | None = None, timeout: float = PATIENCE_SECONDS
    ) -> None:
        """Wait until leases of a flow run."""
        self.wait_until(
            lambda document: (
                _flow(document, name)["state"] == "RUNNING"
                and _flow(document, name)["leases"] > 0
            ),
            timeout,
        )

    def assert_never_failed(self, name: str | None = None) -> None:
        """No run of the flow failed, but for one whose slot this machine held up until
        the driver gave it up: busy machines stand still for ten seconds.
        """
        flow = self.flow(name)
        if count := flow["restarts"]:
            asked = urllib.parse.urlencode(
                {"kind": "flow-failed", "flow": flow["name"]}
            )
            with urllib.request.urlopen(f"{self.url}/events?{asked}") as answer:
                told = [each["text"] for each in json.load(answer)["events"][-count:]]
            assert count == 1, told
            assert _HELD_UP in told[0], f"{told[0]}\n{self.log_tail()}"

    def wait_leases(self, name: str | None = None) -> None:
        """Wait until a whole lease has passed, which could do what it must not do."""
        before = self.flow(name)["leases"]
        self.wait_until(lambda d: _flow(d, name)["leases"] >= before + 2)

    def wait_copied(
        self,
        bootstrap: str,
        topic: str,
        *,
        flow: str | None = None,
        timeout: float = PATIENCE_SECONDS,
    ) -> None:
        """Wait until it reports everything that the topic has now as copied."""
        ends = end_offsets(bootstrap, topic)

        def copied(document: dict[str, Any]) -> bool:
            positions = {
                p["partition"]: p["position"]
                for p in _flow(document, flow)["partitions"]
                if p["topic"] == topic
            }
            return all(positions.get(p, -1) >= end for p, end in ends.items() if end)

        self.wait_until(copied, timeout)

    def wait_checkpoints(self, *names: str) -> None:
        """Wait until a round that began after this moment has ended, in these flows or,
        if none is named, in each.
        """
        for _ in range(2):
            after = time.time()
            self.wait_until(
                lambda document, after=after: all(
                    flow["checkpoint_at"] > after
                    for flow in document["flows"]
                    if not names or flow["name"] in names
                )
            )

    def pids(self) -> list[int]:
        """The service, its JVM, and all workers."""
        assert self._process is not None
        return [self._process.pid, *(p.pid for p in self._tree())]

    def worker_pids(self) -> list[int]:
        """The forked Python workers that copy; not the daemons they come from."""
        return [p.pid for p in self._tree() if is_worker(p)]

    def java_pids(self) -> list[int]:
        """Spark's JVM."""
        java = [p.pid for p in self._tree() if _name(p) == "java"]
        assert java, "no JVM"
        return java

    def kill_workers(self, timeout: float = PATIENCE_SECONDS) -> int:
        """SIGKILL to every worker, as soon as there is one; returns how many."""
        deadline = deadline_in(timeout)
        while not (pids := self.worker_pids()):
            assert time.monotonic() < deadline, f"no workers:\n{self.log_tail()}"
            time.sleep(0.1)
        for pid in pids:
            _kill(pid)
        return len(pids)

    def fail_lease(
        self, name: str | None = None, *, timeout: float = PATIENCE_SECONDS
    ) -> None:
        """SIGKILL to workers until a lease of the flow fails because of it: between two
        leases a worker can die unnoticed.
        """
        before = self.flow(name)["restarts"]
        deadline = deadline_in(timeout)
        while self.flow(name)["restarts"] == before:
            assert time.monotonic() < deadline, f"nothing failed:\n{self.log_tail()}"
            self.kill_workers()
            with contextlib.suppress(AssertionError):
                wait_for(lambda: self.flow(name)["restarts"] > before, timeout=5)

    def kill_driver(self) -> None:
        """SIGKILL to the service and its JVM, not to the workers."""
        assert self._process is not None
        for pid in (self._process.pid, *self.java_pids()):
            _kill(pid)
        self._process.wait(PATIENCE_SECONDS)

    def terminate(self, timeout: float = 60) -> int:
        """SIGTERM; returns the exit code. Units and charts give it a minute."""
        assert self._process is not None
        self._tree()
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(timeout * crowd())

    def signal_group(self, number: signal.Signals) -> None:
        """Send it to the service and all that is in its process group."""
        assert self._process is not None
        self._tree()
        os.killpg(self._process.pid, number)

    def wait(self, timeout: float = PATIENCE_SECONDS) -> int:
        """Wait until it ends by itself; returns the exit code."""
        assert self._process is not None
        deadline = deadline_in(timeout)
        while (code := self._process.poll()) is None:
            self._tree()
            assert time.monotonic() < deadline, f"it goes on:\n{self.log_tail()}"
            time.sleep(0.3)  # looking at all processes takes a while
        return code

    def log_tail(self, lines: int = 40) -> str:
        return "\n".join(self.log.read_text().splitlines()[-lines:])

    def survivors(self) -> list[psutil.Process]:
        """Processes that this service started, as far as seen, and that still run."""
        return [p for p in self._family if p.is_running() and _status(p) != "zombie"]

    def close(self) -> None:
        if self._process is not None:
            self._tree()
            if self._process.poll() is None:
                self._process.terminate()
                try:
                    self._process.wait(15)
                except subprocess.TimeoutExpired:
                    self._process.kill()
                    self._process.wait()
        for process in self.survivors():
            _kill(process.pid)

    def _tree(self) -> list[psutil.Process]:
        assert self._process is not None
        try:
            found = psutil.Process(self._process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []
        self._family.update(found)
        return found


def _flow(document: dict[str, Any], name: str | None) -> dict[str, Any]:
    flows = document["flows"]
    return next(f for f in flows if name is None or f["name"] == name)


def is_worker(process: psutil.Process) -> bool:
    """Whether it is a worker of Spark's, which is in the group of its daemon."""
    try:
        # A whole argument: Spark's JVM has the name within one of its own.
        daemon = _DAEMON in process.cmdline()
        return daemon and os.getpgid(process.pid) != process.pid
    except (psutil.Error, ProcessLookupError):
        return False


def _name(process: psutil.Process) -> str:
    try:
        return process.name()
    except psutil.Error:
        return ""


def _status(process: psutil.Process) -> str:
    try:
        return process.status()
    except psutil.Error:
        return "zombie"


def _kill(pid: int) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(pid).kill()


def config_for(
    source: str,
    target: str,
    *,
    alias: str = "A",
    flows: Sequence[str] = (),
    **settings: Any,
) -> dict[str, Any]:
    """A configuration of clusters A and B; `settings` are those of every flow. `alias`:
    of the source instead of A; `flows`: only that from it to B, if none is named.

    Heartbeats are off: they would be copied beside a test's own records.
    """
    named = flows or (f"{alias}->B",)
    quiet = {"emit_heartbeats": False, "heartbeats_replication": False}
    return {
        "clusters": {
            alias: {"bootstrap_servers": source},
            "B": {"bootstrap_servers": target},
        },
        "flows": {name: {"lease_seconds": 2, **quiet, **settings} for name in named},
    }
