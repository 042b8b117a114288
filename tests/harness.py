"""What the tests of the data path share: the service as a process, and witnesses.

`RunningMirror` runs `mirror run` as its users do and can kill what Spark starts.
The witnesses (`read_topic`, `order_of`) are ordinary consumers of confluent-kafka,
which shares no code with mirror; `NumberedLoad` produces records that tell their
place, so that `assert_exactly_once` sees every loss, repeat and disorder.
"""

from __future__ import annotations

from collections import Counter
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Self
import urllib.request

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)
import psutil

from mirror.machine import usable_cores

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_DAEMON = "mirror.relay.daemon"
PATIENCE_SECONDS = 120.0
"""How long to wait for what comes in seconds on a machine with nothing else to do."""
_LISTENS = "service listens"

Order = dict[int, list[bytes]]
"""The keys of each partition, in the order a consumer saw them."""


class RunningMirror:
    """`mirror run` on a configuration; a context manager that leaves nothing behind."""

    def __init__(
        self, config: Mapping[str, Any], folder: Path, *, once: bool = False
    ) -> None:
        """`config`: what the YAML file would say; port and state directory are set."""
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
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._url = ""
        self._family: set[psutil.Process] = set()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self, *, timeout: float = PATIENCE_SECONDS) -> Self:
        """Start it (again), and wait until its status can be asked for."""
        begins_at = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + timeout
        while True:
            for line in self.log.read_text()[begins_at:].splitlines():
                if _LISTENS in line:
                    self._url = json.loads(line)["url"]
                    return self
            assert self._process.poll() is None, f"it ended:\n{self.log_tail()}"
            assert time.monotonic() < deadline, f"no status:\n{self.log_tail()}"
            time.sleep(0.1)

    @property
    def url(self) -> str:
        """Where it listens, without a path."""
        return self._url.removesuffix("/status").rstrip("/")

    def status(self) -> dict[str, Any]:
        url = f"{self.url}/status"
        with urllib.request.urlopen(url, timeout=5) as answer:
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
        deadline = time.monotonic() + timeout
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
            time.sleep(0.1)

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

    def wait_copied(
        self,
        bootstrap: str,
        topic: str,
        *,
        flow: str | None = None,
        timeout: float = PATIENCE_SECONDS,
    ) -> None:
        """Wait until it says that it copied all that the topic holds at this moment."""
        ends = end_offsets(bootstrap, topic)

        def copied(document: dict[str, Any]) -> bool:
            positions = {
                p["partition"]: p["position"]
                for p in _flow(document, flow)["partitions"]
                if p["topic"] == topic
            }
            return all(positions.get(p, -1) >= end for p, end in ends.items() if end)

        self.wait_until(copied, timeout)

    def pids(self) -> list[int]:
        """The service, its JVM, and all workers."""
        assert self._process is not None
        return [self._process.pid, *(p.pid for p in self._tree())]

    def worker_pids(self) -> list[int]:
        """The forked Python workers that copy; not the daemons they come from."""
        daemons = {p.pid for p in self._tree() if _is_daemon(p)}
        workers = []
        for process in self._tree():
            try:
                if process.pid in daemons and process.ppid() in daemons:
                    workers.append(process.pid)
            except psutil.NoSuchProcess:
                continue
        return workers

    def kill_workers(self, timeout: float = PATIENCE_SECONDS) -> int:
        """SIGKILL to every worker, as soon as there is one; returns how many."""
        deadline = time.monotonic() + timeout
        while not (pids := self.worker_pids()):
            assert time.monotonic() < deadline, f"no workers:\n{self.log_tail()}"
            time.sleep(0.05)
        for pid in pids:
            _kill(pid)
        return len(pids)

    def fail_lease(
        self, name: str | None = None, *, timeout: float = PATIENCE_SECONDS
    ) -> None:
        """SIGKILL to workers until a lease of the flow fails of it: those of which
        none was at work, as between two leases, are not missed by anyone.
        """
        before = self.flow(name)["restarts"]
        deadline = time.monotonic() + timeout
        while self.flow(name)["restarts"] == before:
            assert time.monotonic() < deadline, f"nothing failed:\n{self.log_tail()}"
            self.kill_workers()
            with contextlib.suppress(AssertionError):
                wait_for(lambda: self.flow(name)["restarts"] > before, timeout=5)

    def kill_driver(self) -> None:
        """SIGKILL to the service and its JVM; workers are left to their own devices."""
        assert self._process is not None
        java = [p.pid for p in self._tree() if _name(p) == "java"]
        assert java, "no JVM to kill"
        for pid in (self._process.pid, *java):
            _kill(pid)
        self._process.wait(10)

    def terminate(self, timeout: float = 15) -> int:
        """SIGTERM; returns the exit code."""
        assert self._process is not None
        self._tree()
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(timeout)

    def wait(self, timeout: float = PATIENCE_SECONDS) -> int:
        """Wait until it ends by itself; returns the exit code."""
        assert self._process is not None
        deadline = time.monotonic() + timeout
        while (code := self._process.poll()) is None:
            self._tree()
            assert time.monotonic() < deadline, f"it goes on:\n{self.log_tail()}"
            time.sleep(0.1)
        return code

    def log_tail(self, lines: int = 40) -> str:
        return "\n".join(self.log.read_text().splitlines()[-lines:])

    def survivors(self) -> list[psutil.Process]:
        """What this service started, as far as it was seen, and still runs."""
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
                    self._process.wait(10)
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


def _is_daemon(process: psutil.Process) -> bool:
    try:
        # A whole argument: Spark's JVM has the name within one of its own.
        return _DAEMON in process.cmdline()
    except psutil.Error:
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


# ---- Topics -------------------------------------------------------------------------


def create_topic(
    bootstrap: str, topic: str, partitions: int = 1, **configs: str
) -> None:
    """Create a topic; config names with underscores for dots."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    new = NewTopic(
        topic,
        num_partitions=partitions,
        config={name.replace("_", "."): value for name, value in configs.items()},
    )
    admin.create_topics([new])[topic].result(30)
    deadline = time.monotonic() + 30
    while True:
        shown = admin.list_topics(topic, timeout=10).topics[topic].partitions
        if len(shown) == partitions and all(p.leader >= 0 for p in shown.values()):
            return
        assert time.monotonic() < deadline, f"{topic} has no leaders"
        time.sleep(0.05)


def add_partitions(bootstrap: str, topic: str, total: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_partitions([NewPartitions(topic, total)])[topic].result(30)
    deadline = time.monotonic() + 30
    while len(admin.list_topics(topic, timeout=10).topics[topic].partitions) < total:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def alter_topic(bootstrap: str, topic: str, **configs: str) -> None:
    """Set some configs of a topic, leaving the others; underscores for dots."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    entries = [
        ConfigEntry(
            name.replace("_", "."),
            value,
            incremental_operation=AlterConfigOpType.SET,
        )
        for name, value in configs.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    admin.incremental_alter_configs([resource])[resource].result(30)


def delete_topic(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([topic])[topic].result(30)


def topic_exists(bootstrap: str, topic: str) -> bool:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    return topic in admin.list_topics(timeout=10).topics


def end_offsets(bootstrap: str, topic: str) -> dict[int, int]:
    """The high watermark of each partition; none, if there is no such topic."""
    consumer = _consumer(bootstrap)
    deadline = time.monotonic() + 15
    try:
        while True:
            try:
                shown = consumer.list_topics(timeout=30).topics.get(topic)
                return {
                    p: consumer.get_watermark_offsets(TopicPartition(topic, p), 30)[1]
                    for p in (shown.partitions if shown else ())
                }
            except KafkaException:  # a topic just created, a broker just started
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
    finally:
        consumer.close()


# ---- Producing ----------------------------------------------------------------------


def producer(bootstrap: str, **settings: Any) -> Producer:
    """An idempotent producer; setting names with underscores for dots."""
    return Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "queue.buffering.max.messages": 200_000,
            "linger.ms": 5,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
    )


class NumberedLoad:
    """Records whose keys say partition and number: `<partition>:<number>`."""

    def __init__(
        self, bootstrap: str, topic: str, partitions: int, *, seed: int = 0
    ) -> None:
        self._topic = topic
        self._sent = dict.fromkeys(range(partitions), 0)
        self._random = random.Random(seed)
        # Half of it compresses well, half not at all.
        noise = self._random.randbytes(4096)
        self._content = noise + b"mirror " * 600
        self._bootstrap = bootstrap
        self._producers = self._connect()

    def _connect(self) -> dict[str, Producer]:
        return {
            codec: producer(self._bootstrap, compression_type=codec) for codec in CODECS
        }

    def send(
        self, count: int, *, largest: int = 2048, partition: int | None = None
    ) -> None:
        """Send so many records with all codecs in turn, and wait for the brokers; to
        all partitions, if none is named.
        """
        choice = range(len(self._sent)) if partition is None else (partition,)
        block = max(1, min(4000, count // len(CODECS)))
        codec = 0
        failures: list[KafkaError] = []

        def delivered(error: KafkaError | None, _message: Message) -> None:
            if error is not None:
                failures.append(error)

        while count > 0:
            client = self._producers[CODECS[codec % len(CODECS)]]
            codec += 1
            for _ in range(min(block, count)):
                to = self._random.choice(choice)
                number = self._sent[to]
                self._sent[to] = number + 1
                size = int(largest * self._random.random() ** 3)  # small ones abound
                at = self._random.randrange(len(self._content) - size)
                client.produce(
                    self._topic,
                    key=b"%d:%d" % (to, number),
                    value=self._content[at : at + size],
                    partition=to,
                    on_delivery=delivered,
                )
            count -= block
            # The next codec is another producer: order holds only between flushes.
            assert client.flush(120) == 0
        assert not failures, failures[0]

    @contextlib.contextmanager
    def streaming(self, *, chunk: int = 1000, pause: float = 0.1) -> Iterator[None]:
        """Go on sending while the block runs, so that a copy has no end."""
        stop = threading.Event()
        failures: list[BaseException] = []

        def run() -> None:
            try:
                while not stop.wait(pause):
                    self.send(chunk)
            except BaseException as error:  # noqa: BLE001  told to the test's thread
                failures.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
        if failures:
            raise failures[0]

    def reconnect(self, bootstrap: str) -> None:
        """Go on by asking other brokers."""
        self._bootstrap = bootstrap
        self._producers = self._connect()

    def add_partition(self) -> None:
        """Use one partition more, which must exist by now."""
        self._sent[len(self._sent)] = 0
        self._producers = self._connect()  # the old ones have not heard of it yet

    @property
    def total(self) -> int:
        return sum(self._sent.values())

    @property
    def order(self) -> Order:
        return {
            partition: [b"%d:%d" % (partition, number) for number in range(count)]
            for partition, count in self._sent.items()
        }


# ---- Witnesses ----------------------------------------------------------------------


def _consumer(bootstrap: str, **settings: Any) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "witness",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "check.crcs": True,
            **settings,
        }
    )


def read_topic(
    bootstrap: str, topic: str, *, timeout: float = 120, **settings: Any
) -> dict[int, list[Message]]:
    """What an ordinary read_committed consumer finds from beginning to end."""
    consumer = _consumer(bootstrap, **settings)
    try:
        partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
        consumer.assign(
            [TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions]
        )
        found: dict[int, list[Message]] = {number: [] for number in partitions}
        open_ends = set(partitions)
        deadline = time.monotonic() + timeout
        while open_ends:
            assert time.monotonic() < deadline, f"{topic} has no end"
            for message in consumer.consume(5000, 0.5):
                error = message.error()
                if error is None:
                    found[message.partition()].append(message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    open_ends.discard(message.partition())
                else:
                    raise AssertionError(error)
        return found
    finally:
        consumer.close()


def order_of(bootstrap: str, topic: str) -> Order:
    """The keys of each partition, as a read_committed consumer sees them."""
    return {
        partition: [message.key() for message in messages]
        for partition, messages in read_topic(bootstrap, topic).items()
    }


def count_keys(bootstrap: str, topic: str) -> tuple[Counter[bytes], Order]:
    """How often each key is there, and in which order per partition."""
    order = order_of(bootstrap, topic)
    return Counter(key for keys in order.values() for key in keys), order


def assert_exactly_once(found: Order, expected: Order) -> None:
    """Every key once, none besides, in order; else says what is wrong."""
    if found == expected:
        return
    wrong = []
    for partition in sorted(found.keys() | expected.keys()):
        got, wanted = found.get(partition, []), expected.get(partition, [])
        if got == wanted:
            continue
        counts = Counter(got)
        repeated = [key for key, count in counts.items() if count > 1]
        missing = [key for key in wanted if key not in counts]
        foreign = counts.keys() - set(wanted)
        first = next(
            (
                at
                for at, pair in enumerate(zip(got, wanted, strict=False))
                if pair[0] != pair[1]
            ),
            min(len(got), len(wanted)),
        )
        wrong.append(
            f"partition {partition}: {len(got)} records instead of {len(wanted)}; "
            f"{len(missing)} missing {missing[:5]}, {len(repeated)} repeated "
            f"{repeated[:5]}, {len(foreign)} foreign; first difference at {first}: "
            f"{got[first : first + 3]} instead of {wanted[first : first + 3]}"
        )
    raise AssertionError("\n".join(wrong))


def assert_at_least_once(found: Order, expected: Order) -> None:
    """No key is missing and none is foreign; repeats are allowed."""
    for partition, wanted in expected.items():
        assert set(found[partition]) == set(wanted), f"partition {partition}"


def copied_records(bootstrap: str, topic: str) -> int:
    """How far the target's log has grown, markers included; zero without topic."""
    return sum(end_offsets(bootstrap, topic).values())


def crowd() -> float:
    """How many times slower all goes by the clock on a machine that others use, too:
    each waits for its turn. 1 on a quiet one.
    """
    return max(1.0, os.getloadavg()[0] / usable_cores())


def wait_for(
    condition: Callable[[], Any], timeout: float = PATIENCE_SECONDS, pause: float = 0.05
) -> None:
    """Wait until a condition outside of mirror holds."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout} s"
        time.sleep(pause)


def config_for(
    source: str, target: str, *, flows: Sequence[str] = ("A->B",), **settings: Any
) -> dict[str, Any]:
    """A configuration of clusters A and B; `settings` are those of every flow.

    Heartbeats are off: they would be copied beside a test's own records.
    """
    quiet = {"emit_heartbeats": False, "heartbeats_replication": False}
    return {
        "clusters": {
            "A": {"bootstrap_servers": source},
            "B": {"bootstrap_servers": target},
        },
        "flows": {name: {"lease_seconds": 2, **quiet, **settings} for name in flows},
    }


def eventually(
    bootstrap: str, topic: str, count: int, *, timeout: float = PATIENCE_SECONDS
) -> dict[int, list[Message]]:
    """What a consumer finds, as soon as it finds at least so many records."""
    deadline = time.monotonic() + timeout
    while True:
        found = read_topic(bootstrap, topic)
        have = sum(map(len, found.values()))
        if have >= count:
            return found
        assert time.monotonic() < deadline, (
            f"{topic}: {have} records of {count} within {timeout} s"
        )
        time.sleep(0.2)


def keys_of(found: Mapping[int, Sequence[Message]]) -> Order:
    return {
        partition: [message.key() for message in messages]
        for partition, messages in found.items()
    }
