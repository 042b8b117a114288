"""The demo: two clusters, a flow between them, broken workers, a count, a failover.

Main function: `show`, the whole demo from start to end. Everything it reports is
measured from outside: an ordinary Kafka client produces and counts the records, and the
service is a real `mirror run` process.
"""

from __future__ import annotations

from collections import Counter
import contextlib
from contextlib import ExitStack, closing
from dataclasses import dataclass
from http.client import HTTPException
import json
import os
from pathlib import Path
import signal
import subprocess
import sys
import tempfile
import threading
import time
from typing import TYPE_CHECKING, Any, Self
from urllib.request import ProxyHandler, build_opener

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from mirror.errors import PlaygroundError
from mirror.host import require_java
from mirror.playground.brokers import playground
from mirror.playground.process import LoggedProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mirror.playground.cluster import PlaygroundCluster

TOPICS = {"orders": 4, "payments": 2}
"""Partitions by topic."""
_CONFIG = """\
clusters:
  A: {{bootstrap_servers: "{a}"}}
  B: {{bootstrap_servers: "{b}"}}
defaults: {{policy: identity}}
flows:
  A->B: {{topics: [{topics}], groups: [{group}], emit_checkpoints_seconds: 1,
         tasks: 2, lease_seconds: 2}}
  B->A: {{topics: [{topics}], groups: [{group}], tasks: 1}}
recovery:
  A<->B: {{active: A, fence: confirmed}}
service:
  http_port: 0
  log_format: json
  state_dir: {state}
"""
_BACKLOG = 1 / 3
"""The share of records produced before the service starts."""
_PRODUCE_SECONDS = 15.0
_KILL_AFTER = 1 / 3
"""The share of the records produced while it runs."""
_PATIENCE_SECONDS = 240.0
_QUIET_SECONDS = 2.0
_REFRESH_SECONDS = 0.25


def show(*, records: int, keep: bool) -> bool:
    """Run the demo on stdout; returns whether each record was copied exactly once, and
    the group read each one once.

    Raises:
        JavaMissingError: there is no Java to run anything on.
        PlaygroundError: something did not even start.
    """
    require_java()
    with ExitStack() as stack:
        screen = Screen()
        stack.callback(screen.freeze)
        folder = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="mirror-demo-"))
        )
        screen.say("starting two Kafka clusters, A and B")
        # Clusters given by the environment may have topics with these names.
        clusters = stack.enter_context(playground(("A", "B"), root=folder, given=False))
        for cluster in clusters.values():
            _create_topics(cluster)
        producing = stack.enter_context(closing(Producing(clusters["A"].bootstrap)))
        backlog = int(records * _BACKLOG)
        producing.produce(backlog)
        screen.say(f"produced {backlog} records on A; starting the mirror service")
        config = _write_config(folder, clusters)
        service = stack.enter_context(ServiceProcess(config))
        story = _Story(screen, service, producing)
        counting = stack.enter_context(
            closing(Counting(clusters["B"].bootstrap, story.copies()))
        )
        verdict, recovery = story.break_and_recover(counting, records)
        screen.freeze()
        _tell(screen, verdict, recovery)
        if keep:
            _keep(screen, clusters, service, config)
            exact = True
        else:
            handover = fail_over(
                screen, clusters, config, verdict.on_target, story.await_checkpoint
            )
            _tell_handover(screen, handover)
            exact = handover.exact
        screen.say("stopping the service with SIGTERM")
        code, seconds = service.stop()
        screen.say(f"it ended with exit code {code} after {seconds:.1f} s")
    return verdict.exactly_once and exact and code == 0


class _Story:
    """The part of the demo during which the service runs."""

    def __init__(
        self, screen: Screen, service: ServiceProcess, producing: Producing
    ) -> None:
        self._screen = screen
        self._service = service
        self._producing = producing

    def copies(self) -> list[tuple[str, int]]:
        """Wait until the service copies; the partitions that it copies into."""

        def ours(flow: dict[str, Any]) -> list[dict[str, Any]]:
            # Heartbeats of the flow that rests are copied, too.
            return [each for each in flow["partitions"] if each["topic"] in TOPICS]

        flow = self._watch(
            lambda now: len(ours(now)) == sum(TOPICS.values()),
            "the service did not start copying",
        )
        self._screen.say(f"the service copies; its status is at {self._service.url}")
        return [(each["target_topic"], each["partition"]) for each in ours(flow)]

    def break_and_recover(
        self, counting: Counting, records: int
    ) -> tuple[TrafficVerdict, float]:
        """Kill the workers while producing; the count, and how long recovery took."""
        first = self._producing.produced
        self._producing.start(records - first, seconds=_PRODUCE_SECONDS)
        self._screen.say(
            f"producing {records - first} more records in {_PRODUCE_SECONDS:.0f} s"
        )
        break_at = first + (records - first) * _KILL_AFTER
        self._watch(
            lambda _: self._producing.produced >= break_at, "producing has stalled"
        )
        killed = self._service.kill_workers()
        if not killed:
            raise PlaygroundError("the service has no worker process to kill")
        killed_at, began = time.time(), time.monotonic()
        self._screen.say(
            f"killed the service's {killed} worker processes (SIGKILL) in the middle "
            "of their transactions; producing continues"
        )
        self._watch(
            lambda _: counting.all_newer_than(killed_at), "the flow did not recover"
        )
        recovery = time.monotonic() - began
        self._screen.say(
            f"recovered: {recovery:.1f} s after the kill, new records of every "
            "partition are committed on B"
        )
        self._watch(lambda _: self._producing.done, "producing does not end")
        self._await_rest(counting)
        return counting.verdict(self._producing.produced), recovery

    def await_checkpoint(self, since: float) -> None:
        """Wait for a checkpoint of the groups that is newer, in epoch seconds."""
        self._watch(
            lambda flow: flow["checkpoint_at"] > since and flow["group_count"],
            "no checkpoint was written",
        )

    def _await_rest(self, counting: Counting) -> None:
        """Until all have arrived, or no more do; then a little longer."""

        def settled(flow: dict[str, Any]) -> bool:
            complete = counting.distinct >= self._producing.produced
            silence = _QUIET_SECONDS if complete and not flow["lag"] else 20.0
            return counting.quiet_for() > silence

        self._watch(settled, "records keep arriving")

    def _watch(
        self, reached: Callable[[dict[str, Any]], bool], failure: str
    ) -> dict[str, Any]:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while time.monotonic() < deadline:
            status = self._service.status()
            self._screen.show(status)
            flow = next(each for each in status["flows"] if each["name"] == "A->B")
            if reached(flow):
                return dict(flow)
            time.sleep(_REFRESH_SECONDS)
        raise PlaygroundError(
            f"{failure} within {_PATIENCE_SECONDS:.0f} s\n{self._service.log_tail()}"
        )


def _create_topics(cluster: PlaygroundCluster) -> None:
    try:
        with closing(KafkaAdminClient(bootstrap_servers=cluster.bootstrap)) as admin:
            admin.create_topics(
                {name: {"num_partitions": count} for name, count in TOPICS.items()}
            )
            admin.wait_for_topics(list(TOPICS))
    except KafkaError as error:
        raise PlaygroundError(
            f"topics cannot be created on {cluster.name}: {error}"
        ) from error


def _write_config(folder: Path, clusters: dict[str, PlaygroundCluster]) -> Path:
    config = folder / "mirror.yaml"
    config.write_text(
        _CONFIG.format(
            a=clusters["A"].bootstrap,
            b=clusters["B"].bootstrap,
            topics=", ".join(TOPICS),
            group=GROUP,
            state=json.dumps(str(folder / "state")),
        ),
        encoding="utf-8",
    )
    return config


def _tell(screen: Screen, verdict: TrafficVerdict, recovery: float) -> None:
    result = "exactly once" if verdict.exactly_once else "NOT exactly once"
    screen.say(f"counted on B by an ordinary read_committed consumer: {result}")
    screen.count(
        {
            "records produced on A": verdict.produced,
            "records on B": verdict.on_target,
            "duplicates": verdict.duplicates,
            "missing": verdict.missing,
            "changed": verdict.changed,
            "out of order": verdict.out_of_order,
            "seconds to recover": f"{recovery:.1f}",
        }
    )


def _tell_handover(screen: Screen, handover: Handover) -> None:
    result = "at the very next record" if handover.exact else "NOT where it was"
    screen.say(f"group {GROUP} goes on at B, {result}")
    screen.count(
        {
            "read on A": handover.on_a,
            "read on B": handover.on_b,
            "read twice": handover.twice,
            "never read": handover.never,
            "seconds without A": f"{handover.seconds:.1f}",
        }
    )


def _keep(
    screen: Screen,
    clusters: dict[str, PlaygroundCluster],
    service: ServiceProcess,
    config: Path,
) -> None:
    for name, cluster in clusters.items():
        screen.say(f"cluster {name}: {cluster.bootstrap}")
    screen.say(f"status: {service.url}/status, or mirror status -u {service.url}")
    screen.say(f"configuration: {config}")
    screen.say("everything keeps running; Ctrl-C stops it")
    try:
        while True:
            time.sleep(1)
            service.status()
    except KeyboardInterrupt:
        screen.say("cleaning up")


# ---- the mirror service as a separate process, as a user runs it ----


_PACKAGE_FOLDER = Path(__file__).parents[2]
_LISTENS = "service listens"
_DAEMON = b"mirror.copying.daemon"
_LISTEN_SECONDS = 240.0
"""A new installation compiles kernels at its first start, maybe on a busy machine."""
_STOP_SECONDS = 30.0
_LINE = 300
"""How many characters of a line of its log are shown."""


class ServiceProcess:
    """`mirror run` with one configuration file; its JSON log is in the same folder."""

    def __init__(self, config: Path) -> None:
        self._opener = build_opener(ProxyHandler({}))  # never through a proxy
        # Spark leaves files in its working directory, so use the configuration's.
        self._process = LoggedProcess(
            config.with_suffix(".log"), cwd=config.parent, env=_environment()
        )
        self._process.start([sys.executable, "-m", "mirror", "run", "-c", config])
        self.url = ""

    def __enter__(self) -> Self:
        try:
            self.url = self._wait_for_url()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
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
        if (code := self._process.stop(_STOP_SECONDS)) is None:
            raise PlaygroundError(
                f"the service did not end within {_STOP_SECONDS:.0f} s of SIGTERM"
                f"\n{self.log_tail()}"
            )
        return code, time.monotonic() - started

    def log_tail(self, lines: int = 20) -> str:
        """The last lines it logged."""
        return "\n".join(line[:_LINE] for line in self._process.log_lines()[-lines:])

    def _wait_for_url(self) -> str:
        deadline = time.monotonic() + _LISTEN_SECONDS
        while time.monotonic() < deadline:
            self._check()
            for line in self._process.log_lines():
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
        code = self._process.exit_code
        if code is not None:
            raise PlaygroundError(
                f"the service ended with exit code {code}\n{self.log_tail()}"
            )

    def _end(self) -> None:
        if self._process.pid is None:
            self._process.kill()  # lets go of what has ended
        else:
            self.stop()


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


def _descendants(root: int | None) -> set[int]:
    """All processes below `root`, from /proc; none where there is no /proc."""
    parents = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError):
            # The name, in parentheses, may itself contain blanks and parentheses.
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            parents[int(entry.name)] = int(fields[1])
    found: set[int] = set()
    level: set[int] = set() if root is None else {root}
    while level:
        level = {pid for pid, parent in parents.items() if parent in level} - found
        found |= level
    return found


# ---- the end of the demo: cluster A dies, and a group goes on at B ----
#
# Main function: `fail_over`. The group reads with an ordinary Kafka client, so what
# it got, twice or never, is counted from outside; the failover is the command that
# people type.


GROUP = "billing"
_COMMAND_SECONDS = 120.0
_READ_SECONDS = 60.0
_POLL_MS = 500
_QUIET_POLLS = 10
"""So many polls without a record: the group has read everything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Handover:
    """What the group read of the records that were copied."""

    on_a: int
    on_b: int
    twice: int
    never: int
    seconds: float
    """From the death of A to the group's first record on B."""

    @property
    def exact(self) -> bool:
        return self.on_b > 0 and not (self.twice or self.never)


def fail_over(
    screen: Screen,
    clusters: dict[str, PlaygroundCluster],
    config: Path,
    records: int,
    await_checkpoint: Callable[[float], object],
) -> Handover:
    """Let the group read half of the records on A, kill A, fail over, read on at B.

    `records` were copied; `await_checkpoint` waits for a checkpoint that is newer than
    this time, in epoch seconds.

    Raises:
        PlaygroundError: the group cannot read, or the failover fails.
    """
    on_a, _ = _read(clusters["A"], most=records // 2)
    screen.say(f"group {GROUP} has read {on_a.total()} of {records} records on A")
    await_checkpoint(time.time())
    clusters["A"].kill()
    died = time.monotonic()
    screen.say("killed cluster A (SIGKILL); mirror failover 'A->B' says:")
    _command(screen, config)
    on_b, arrived = _read(clusters["B"], most=records)
    read = on_a + on_b
    return Handover(
        on_a=on_a.total(),
        on_b=on_b.total(),
        twice=read.total() - len(read),
        never=records - len(read),
        seconds=(arrived or died) - died,
    )


def _command(screen: Screen, config: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "mirror", "failover", "A/B", "-c", config, "--yes"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None, "it is a pipe"
        for line in process.stdout:
            screen.say(f"  {line.rstrip()}")
        code = process.wait(_COMMAND_SECONDS)
    if code:
        raise PlaygroundError(f"mirror failover ended with exit code {code}")


def _read(cluster: PlaygroundCluster, *, most: int) -> tuple[Counter[bytes], float]:
    """The keys that the group reads until nothing more comes, or at least `most`; they
    are committed. And when the first one came, monotonic; 0: none did.
    """
    keys: Counter[bytes] = Counter()
    began, quiet, arrived = time.monotonic(), 0, 0.0
    try:
        with closing(
            KafkaConsumer(
                *TOPICS,
                bootstrap_servers=cluster.bootstrap,
                group_id=GROUP,
                isolation_level="read_committed",
                auto_offset_reset="earliest",
                enable_auto_commit=False,
            )
        ) as consumer:
            while sum(keys.values()) < most and quiet < _QUIET_POLLS:
                polled = consumer.poll(_POLL_MS)
                if polled:
                    arrived = arrived or time.monotonic()
                # Before the group has its partitions, silence says nothing.
                quiet = 0 if polled or not consumer.assignment() else quiet + 1
                for batch in polled.values():
                    keys.update(record.key for record in batch)
                if time.monotonic() - began > _READ_SECONDS:
                    raise PlaygroundError(f"group {GROUP} reads too slowly")
            consumer.commit()
    except KafkaError as error:
        raise PlaygroundError(f"group {GROUP} cannot read: {error}") from error
    return keys, arrived


# ---- what the demo shows: a live table on a terminal, plain lines elsewhere ----


_COLUMNS = ("FLOW", "TOPIC", "PARTITION", "LAG", "RECORDS", "LATENCY")
_LINE_EVERY_SECONDS = 2.0


class Screen:
    """stdout, in the form that fits it."""

    def __init__(self) -> None:
        self._console = Console(file=sys.stdout, highlight=False, soft_wrap=True)
        self._started = time.monotonic()
        self._line_at = 0.0
        self._live: Live | None = None

    def say(self, text: str) -> None:
        """Print a line with the seconds since the start; above a live table."""
        passed = time.monotonic() - self._started
        self._console.print(f"{passed:6.1f}s  {text}", markup=False)
        sys.stdout.flush()

    def count(self, figures: Mapping[str, object]) -> None:
        """Print figures below each other, by name."""
        for name, figure in figures.items():
            self.say(f"  {name:<22}{figure:>8}")

    def show(self, status: dict[str, Any]) -> None:
        """Show this status instead of the last one."""
        if self._console.is_terminal:
            self._draw(status)
        elif time.monotonic() - self._line_at >= _LINE_EVERY_SECONDS:
            self._line_at = time.monotonic()
            for flow in status["flows"]:
                self.say(_line(flow))

    def freeze(self) -> None:
        """Leave the live table as it is; lines go below it from now on."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _draw(self, status: dict[str, Any]) -> None:
        if self._live is None:
            self._live = Live(console=self._console, refresh_per_second=5)
            self._live.start()
        parts: list[Table | Text] = [_table(status)]
        parts += [Text(_line(flow), style="dim") for flow in status["flows"]]
        self._live.update(Group(*parts))


def _table(status: dict[str, Any]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0))
    for column in _COLUMNS:
        table.add_column(column, justify="left" if column in _COLUMNS[:2] else "right")
    for flow in status["flows"]:
        for partition in flow["partitions"]:
            table.add_row(
                flow["name"],
                partition["topic"],
                str(partition["partition"]),
                str(partition["lag"]),
                str(partition["records"]),
                _milliseconds(partition["latency_p50_ms"]),
            )
    return table


def _line(flow: dict[str, Any]) -> str:
    latencies = sorted(
        partition["latency_p50_ms"]
        for partition in flow["partitions"]
        if partition["latency_p50_ms"] >= 0
    )
    latency = _milliseconds(latencies[len(latencies) // 2] if latencies else -1)
    line = (
        f"{flow['name']} {flow['state']}, lag {flow['lag']}, records "
        f"{flow['records']}, latency {latency}"
    )
    return f"{line}: {flow['reason']}" if flow["reason"] else line


def _milliseconds(value: float) -> str:
    return f"{value:.0f} ms" if value >= 0 else "-"


# ---- produces records on the source, and counts what arrives on the target ----
#
# Main types: `Producing`, a thread that writes numbered records at a steady pace, and
# `Counting`, a thread that reads their copies with an ordinary read_committed
# consumer. Both use kafka-python, not our own connections, to be independent
# witnesses.


_TICK_SECONDS = 0.1
_CHUNK = 1000
_ACK_SECONDS = 60.0
_COUNT_POLL_MS = 200


def key_of(number: int) -> bytes:
    """The key of a record, which is unique."""
    return b"%08d" % number


def value_of(number: int) -> bytes:
    """The value of a record, which its copy must have too."""
    return b'{"number": %d, "amount": %d.%02d, "currency": "EUR"}' % (
        number,
        number % 499,
        number % 97,
    )


class Producing:
    """Writes a number of records, in rounds; each round is acknowledged at its end."""

    def __init__(self, bootstrap: str) -> None:
        self.produced = 0
        # kafka-python's producer is idempotent: it writes no record twice itself.
        self._producer = KafkaProducer(
            bootstrap_servers=bootstrap, acks="all", linger_ms=5
        )
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None

    def produce(self, count: int) -> None:
        """Write records at full speed.

        Raises:
            PlaygroundError: the cluster does not accept them.
        """
        try:
            while count and not self._ending.is_set():
                self._send(min(count, _CHUNK))
                count -= min(count, _CHUNK)
        except KafkaError as error:
            raise PlaygroundError(f"producing failed: {error}") from error

    def start(self, count: int, *, seconds: float) -> None:
        """Write records in the background, evenly over these seconds."""
        self._thread = threading.Thread(
            target=self._keep_pace, args=(count, seconds), name="demo-producing"
        )
        self._thread.start()

    @property
    def done(self) -> bool:
        """Whether all records are acknowledged.

        Raises:
            PlaygroundError: producing has failed.
        """
        if self._error is not None:
            raise PlaygroundError(f"producing failed: {self._error}") from self._error
        return self._thread is not None and not self._thread.is_alive()

    def close(self) -> None:
        self._ending.set()
        if self._thread is not None:
            self._thread.join()
        self._producer.close()

    def _keep_pace(self, count: int, seconds: float) -> None:
        first, started = self.produced, time.monotonic()
        try:
            while (sent := self.produced - first) < count:
                passed = time.monotonic() - started
                due = min(count, int(count * passed / seconds) + 1) - sent
                if due > 0:
                    self._send(min(due, _CHUNK))
                elif self._ending.wait(_TICK_SECONDS):
                    return
        except KafkaError as error:
            self._error = error

    def _send(self, count: int) -> None:
        topics = tuple(TOPICS)
        sent = [
            self._producer.send(
                topics[number % len(topics)], key=key_of(number), value=value_of(number)
            )
            for number in range(self.produced, self.produced + count)
        ]
        for each in sent:
            each.get(timeout=_ACK_SECONDS)
        self.produced += count


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficVerdict:
    """The result for the records that were produced."""

    produced: int
    on_target: int
    duplicates: int
    missing: int
    changed: int
    """Copies with a wrong value, or of records that were never produced."""
    out_of_order: int

    @property
    def exactly_once(self) -> bool:
        return self.on_target == self.produced and not (
            self.duplicates or self.missing or self.changed or self.out_of_order
        )


class Counting:
    """Reads the copies from the start, without a pause, until closed."""

    def __init__(self, bootstrap: str, partitions: Sequence[tuple[str, int]]) -> None:
        self._consumer = KafkaConsumer(
            bootstrap_servers=bootstrap,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        self._partitions = [TopicPartition(*partition) for partition in partitions]
        self._consumer.assign(self._partitions)
        self._seen: Counter[bytes] = Counter()
        self._changed = self._out_of_order = 0
        self._newest_key: dict[TopicPartition, bytes] = {}
        self._newest_ms = dict.fromkeys(self._partitions, 0)
        self._arrived_at = time.monotonic()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._read, name="demo-counting")
        self._thread.start()

    @property
    def distinct(self) -> int:
        """How many different records have arrived."""
        return len(self._seen)

    def quiet_for(self) -> float:
        """Seconds since a record arrived."""
        return time.monotonic() - self._arrived_at

    def all_newer_than(self, epoch_seconds: float) -> bool:
        """Whether each partition has a copy of a record produced after that time."""
        return min(self._newest_ms.values()) > epoch_seconds * 1000

    def verdict(self, produced: int) -> TrafficVerdict:
        """Compare with what was produced, numbered from zero."""
        missing = sum(key_of(number) not in self._seen for number in range(produced))
        strangers = len(self._seen) - (produced - missing)
        on_target = self._seen.total()
        return TrafficVerdict(
            produced=produced,
            on_target=on_target,
            duplicates=on_target - len(self._seen),
            missing=missing,
            changed=self._changed + strangers,
            out_of_order=self._out_of_order,
        )

    def close(self) -> None:
        self._ending.set()
        self._thread.join()
        self._consumer.close()

    def _read(self) -> None:
        while not self._ending.is_set():
            for partition, records in self._consumer.poll(_COUNT_POLL_MS).items():
                newest = self._newest_key.get(partition, b"")
                for record in records:
                    self._seen[record.key] += 1
                    self._changed += record.value != value_of(int(record.key))
                    self._out_of_order += record.key <= newest
                    newest = record.key
                self._newest_key[partition] = newest
                self._newest_ms[partition] = records[-1].timestamp
                self._arrived_at = time.monotonic()
