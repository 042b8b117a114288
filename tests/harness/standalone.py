"""A Spark cluster of processes on this machine, and the service submitted to it.

`Standalone` starts a master and workers from the jars of the pyspark wheel, as plain
Java processes on the loopback address, and ends them by their pids; it knows the
executors that the workers start. `SubmittedMirror` is `mirror run` handed to
`spark-submit`, with the relay workers of all executors.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any, Self

import psutil
import pyspark

import mirror
from mirror.host import require_java
from mirror.playground.ports import LOOPBACK, free_ports
from mirror.playground.process import Leash
from mirror.service.session import PROTECTION
from tests.harness.service import RunningMirror, is_worker
from tests.harness.waiting import deadline_in, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_SPARK = Path(pyspark.__file__).parent
_PROGRAM = Path(mirror.__file__).with_name("__main__.py")
_EXECUTOR = "CoarseGrainedExecutorBackend"
_REGISTERED = "Successfully registered with master"
_START_SECONDS = 60.0
_MEMORY = "512m"
QUICK = {
    f"spark.{who}.defaultJavaOptions": "-XX:TieredStopAtLevel=1"
    for who in ("driver", "executor")
}
"""Settings of JVMs that live for a minute."""


class Standalone:
    """A master and workers of one core each, with a secret; a context manager."""

    def __init__(self, folder: Path, *, workers: int = 2) -> None:
        self.master = ""
        self.properties = folder / "spark.conf"
        """What master, workers and driver have in common."""
        shared = {
            **PROTECTION,
            "spark.authenticate.secret": "standal0ne-secret",
            "spark.decommission.enabled": "true",
        }
        self.properties.write_text("".join(f"{k} {v}\n" for k, v in shared.items()))
        self._folder = folder
        self._number = workers
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._leashes: list[Leash] = []

    def __enter__(self) -> Self:
        port, web = free_ports(2)
        self.master = f"spark://{LOOPBACK}:{port}"
        try:
            self._spawn(
                "master", "master.Master", "--port", str(port),
                "--webui-port", str(web),
            )  # fmt: skip
            # A worker that finds no master waits for seconds before it asks again.
            self._wait("master", "I have been elected leader")
            for name in [self.add_worker(wait=False) for _ in range(self._number)]:
                self._wait(name, _REGISTERED)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def pids(self) -> list[int]:
        """Of the master, the workers, and all that these started."""
        return sorted(
            found
            for process in self._processes.values()
            for found in (process.pid, *(p.pid for p in _family(process.pid)))
        )

    def executors(self) -> dict[str, int]:
        """The pids of the executors' JVMs, by the name of the worker they are on."""
        return {
            name: child.pid
            for name, process in self._processes.items()
            for child in _family(process.pid, deep=False)
            if _EXECUTOR in _command(child)
        }

    def relay_workers(self) -> dict[str, list[int]]:
        """The Python workers that copy, by the worker whose executor they serve."""
        found = {}
        for name, pid in self.executors().items():
            found[name] = [p.pid for p in _family(pid) if is_worker(p)]
        return found

    def add_worker(self, *, wait: bool = True) -> str:
        """Returns its name; with `wait` once the master knows it."""
        name = f"worker-{len(self._processes) - 1}"
        [web] = free_ports(1)
        self._spawn(
            name, "worker.Worker", "--cores", "1", "--memory", "1g",
            "--webui-port", str(web),
            "--work-dir", str(self._folder / name), self.master,
        )  # fmt: skip
        if wait:
            self._wait(name, _REGISTERED)
        return name

    def decommission(self, worker: str) -> None:
        """Have a worker leave: its executors take no more tasks, and end."""
        self._processes[worker].send_signal(signal.SIGPWR)

    def close(self) -> None:
        """End everything: workers end their executors, what is left is killed."""
        left = [p for pid in self.pids() for p in _process(pid)]
        for process in reversed(self._processes.values()):
            process.terminate()
        for process in self._processes.values():
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(10)
        for survivor in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                survivor.kill()  # psutil knows a pid that became someone else's
        for leash in self._leashes:
            leash.release()
        self._processes.clear()
        self._leashes.clear()

    def log_tail(self, name: str, lines: int = 30) -> str:
        return "\n".join(self._log(name).read_text().splitlines()[-lines:])

    def _spawn(self, name: str, main: str, *arguments: str) -> None:
        folder = self._folder / name
        folder.mkdir(parents=True)
        with self._log(name).open("ab") as log:
            process = subprocess.Popen(
                [
                    require_java(), "-Xmx256m", "-XX:+UseSerialGC",
                    "-XX:TieredStopAtLevel=1",
                    "-Dspark.master.rest.enabled=false",  # it has a port of its own
                    "-cp", str(_SPARK / "jars" / "*"),
                    f"org.apache.spark.deploy.{main}", "--host", LOOPBACK,
                    "--properties-file", str(self.properties), *arguments,
                ],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=_environment(),
                start_new_session=True,
            )  # fmt: skip
        self._processes[name] = process
        self._leashes.append(Leash(process.pid))

    def _wait(self, name: str, sentence: str) -> None:
        deadline = deadline_in(_START_SECONDS)
        while sentence not in self._log(name).read_text():
            assert self._processes[name].poll() is None, self.log_tail(name)
            assert time.monotonic() < deadline, self.log_tail(name)
            time.sleep(0.1)

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"


@contextlib.contextmanager
def history_server(events: Path, log: Path) -> Iterator[str]:
    """Spark's History Server over a folder of event logs, once it answers; its URL."""
    [port] = free_ports(1)
    command = [
        require_java(), "-Xmx256m", "-XX:+UseSerialGC",
        f"-Dspark.history.fs.logDirectory={events.as_uri()}",
        f"-Dspark.history.ui.port={port}",
        "-cp", str(_SPARK / "jars" / "*"),
        "org.apache.spark.deploy.history.HistoryServer",
    ]  # fmt: skip
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, env=_environment())
    leash = Leash(process.pid)
    try:
        wait_for(lambda: "and started at" in log.read_text(), _START_SECONDS)
        yield f"http://{LOOPBACK}:{port}"
    finally:
        process.kill()
        process.wait()
        leash.release()


class SubmittedMirror(RunningMirror):
    """`mirror run`, handed to the `spark-submit` of the pyspark wheel."""

    def __init__(
        self,
        config: Mapping[str, Any],
        folder: Path,
        cluster: Standalone,
        *,
        executors: int | None = None,
        further: Sequence[str] = (),
    ) -> None:
        """`executors`: the most that start; without it, one on every worker.
        `further`: arguments for `spark-submit`.
        """
        super().__init__(config, folder)
        # It looks for Spark, and lets workers run, with the Python that is named here.
        submit = ["env", f"PYSPARK_PYTHON={sys.executable}"]
        submit += [f"SPARK_LOCAL_IP={LOOPBACK}"]
        submit += [str(Path(sys.executable).with_name("spark-submit"))]
        submit += ["--master", cluster.master, "--driver-memory", _MEMORY]
        submit += ["--properties-file", str(cluster.properties)]
        settings = {
            "spark.executor.cores": 1,
            "spark.executor.memory": _MEMORY,
            **QUICK,
        }
        if executors is not None:
            settings["spark.cores.max"] = executors
        for name, value in settings.items():
            submit += ["--conf", f"{name}={value}"]
        submit += further
        arguments = self._command[self._command.index("run") :]
        self._command = [*submit, str(_PROGRAM), *arguments]
        self._cluster = cluster

    def __enter__(self) -> Self:
        try:
            return super().__enter__()
        except BaseException:
            self.close()
            raise

    def pids(self) -> list[int]:
        """Of `spark-submit`, which is the driver's JVM, and what it started."""
        assert self._process is not None
        return [self._process.pid, *(p.pid for p in self._tree())]

    def worker_pids(self) -> list[int]:
        return [p for pids in self._cluster.relay_workers().values() for p in pids]


def _environment() -> dict[str, str]:
    return {
        **os.environ,
        "SPARK_HOME": str(_SPARK),
        "SPARK_LOCAL_IP": LOOPBACK,
        "SPARK_SCALA_VERSION": _scala_version(),  # Spark's own scripts set it as well
    }


def _scala_version() -> str:
    [core] = (_SPARK / "jars").glob("spark-core_*.jar")
    return core.name.removeprefix("spark-core_").partition("-")[0]


def _process(pid: int) -> list[psutil.Process]:
    try:
        return [psutil.Process(pid)]
    except psutil.NoSuchProcess:
        return []


def _family(pid: int, *, deep: bool = True) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=deep)
    except psutil.NoSuchProcess:
        return []


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""
