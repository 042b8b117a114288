"""Producers and consumers of applications, with a login, that say what they may do.

`Client` is a user of a secured cluster; `Going` writes or reads all the time, and keeps
what was refused. They are confluent-kafka's, which shares no code with mirror.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, Self

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
)
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tests.harness.waiting import PATIENCE_SECONDS, deadline_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from mirror.playground.cluster import PlaygroundCluster
    from tests.harness.security import Doors

_PAUSE_SECONDS = 0.02
Settings = dict[str, Any]


def scram(cluster: PlaygroundCluster, user: str, password: str) -> Settings:
    """A client's settings to log in with a password."""
    assert cluster.sasl is not None
    return {
        "bootstrap.servers": cluster.sasl.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": user,
        "sasl.password": password,
    }


def mutual_tls(
    cluster: PlaygroundCluster, doors: Doors, user: str, folder: Path
) -> Settings:
    """A client's settings to log in with a certificate of its own."""
    assert cluster.mutual_tls is not None
    bundle = folder / f"{user}.pem"
    bundle.write_text(doors.authority.issue(user, hosts=(user,)).bundle_pem)
    return {
        "bootstrap.servers": cluster.mutual_tls.bootstrap,
        "security.protocol": "SSL",
        "ssl.ca.location": str(doors.ca),
        "ssl.certificate.location": str(bundle),
        "ssl.key.location": str(bundle),
    }


def add_users(cluster: PlaygroundCluster, names: Iterable[str]) -> None:
    """Users whose passwords are their names."""
    admin = AdminClient({"bootstrap.servers": cluster.admin_bootstrap})
    for name in names:
        made = UserScramCredentialUpsertion(
            name,
            ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096),
            name.encode(),
        )
        for future in admin.alter_user_scram_credentials([made]).values():
            future.result(30)


def write(settings: Mapping[str, Any], topic: str) -> str:
    """Write one record; returns why it was refused, empty if it was not."""
    client = Producer({**settings, "message.timeout.ms": 60_000, "linger.ms": 0})
    return _send(client, topic)


def _send(client: Producer, topic: str) -> str:
    said: list[KafkaError | None] = []
    try:
        client.produce(topic, b"v", on_delivery=lambda error, _: said.append(error))
    except KafkaException as error:  # it remembers what it was refused
        return error.args[0].name()
    assert client.flush(PATIENCE_SECONDS) == 0
    return "" if said[0] is None else said[0].name()


def read(settings: Mapping[str, Any], topic: str, group: str) -> str:
    """Read a record as a group; returns why it was refused, empty if it was not."""
    client = Consumer({**settings, "group.id": group, "auto.offset.reset": "earliest"})
    client.subscribe([topic])
    end = deadline_in(30)
    try:
        while time.monotonic() < end:
            try:
                message = client.poll(0.1)
            except KafkaException as error:
                return error.args[0].name()
            error = None if message is None else message.error()
            if error is not None and "AUTHORIZATION" in error.name():
                return error.name()
            if message is not None and error is None:
                return ""
    finally:
        client.close()
    return "nothing came"


def all_acls(bootstrap: str) -> set[tuple[Any, ...]]:
    """Every ACL of a cluster, of any kind."""
    every = AclBindingFilter(
        ResourceType.ANY,
        None,
        ResourcePatternType.ANY,
        None,
        None,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    admin = AdminClient({"bootstrap.servers": bootstrap})
    return {
        (
            acl.restype.name,
            acl.name,
            acl.resource_pattern_type.name,
            acl.principal,
            acl.host,
            acl.operation.name,
            acl.permission_type.name,
        )
        for acl in admin.describe_acls(every).result(30)
    }


class _Running:
    """Runs functions in threads of their own until the block ends."""

    def __init__(self, *each: Callable[[], None]) -> None:
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=one) for one in each]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()


class Going(_Running):
    """Clients that write to topics, or read them, without a pause; a context manager.

    `refused`: when (monotonic), which topic, and why, for each time one was.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        *,
        writes: Iterable[str] = (),
        reads: Iterable[str] = (),
    ) -> None:
        self.refused: list[tuple[float, str, str]] = []
        self.done = 0
        self._settings = settings
        self._writes, self._reads = tuple(writes), tuple(reads)
        wanted = ((self._write, writes), (self._read, reads))
        super().__init__(*(each for each, topics in wanted if topics))

    def _write(self) -> None:
        client = Producer({**self._settings, "linger.ms": 0})
        while not self._stopping.wait(_PAUSE_SECONDS):
            for topic in self._writes:
                self._note(topic, _send(client, topic))

    def _read(self) -> None:
        client = Consumer(
            {
                **self._settings,
                "group.id": "going",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 10,  # rights are looked at for each request
            }
        )
        client.assign([Place(topic, 0, OFFSET_BEGINNING) for topic in self._reads])
        while not self._stopping.is_set():
            try:
                message = client.poll(_PAUSE_SECONDS)
            except KafkaException as error:
                self._note("", error.args[0].name())
                continue
            if message is not None:
                error = message.error()
                self._note(message.topic() or "", error.name() if error else "")
        client.close()

    def _note(self, topic: str, refusal: str) -> None:
        if "AUTHORIZATION" in refusal or (refusal and topic in self._writes):
            self.refused.append((time.monotonic(), topic, refusal))
        elif not refusal:
            self.done += 1


class Persistent(_Running):
    """A producer that writes on while its cluster is gone; a context manager.

    It never learns of a switch: what it was told, `acknowledged` or refused, has the
    time (monotonic). A thread beside it notes when the cluster first answered anyone.
    """

    def __init__(self, settings: Mapping[str, Any], bootstrap: str, topic: str) -> None:
        """`settings` are the producer's; `bootstrap` is for a test that asks if the
        cluster answers.
        """
        self.acknowledged: list[float] = []
        self.refused: list[tuple[float, str]] = []
        self.answered: list[float] = []
        quick = {"reconnect.backoff.ms": 50, "reconnect.backoff.max.ms": 100}
        self._settings = {**settings, **quick, "message.timeout.ms": 2000}
        self._admin = AdminClient({"bootstrap.servers": bootstrap, **quick})
        self._topic = topic
        super().__init__(self._write, self._ask)

    def _write(self) -> None:
        client = Producer({**self._settings, "linger.ms": 0})

        def told(error: KafkaError | None, _: object) -> None:
            now = time.monotonic()
            if error is None:
                self.acknowledged.append(now)
            elif "AUTHORIZATION" in error.name():
                self.refused.append((now, error.name()))

        while not self._stopping.wait(_PAUSE_SECONDS):
            try:
                client.produce(self._topic, b"v", on_delivery=told)
            except KafkaException as error:  # it remembers what it was refused
                told(error.args[0], None)
            client.flush(30)

    def _ask(self) -> None:
        while not self._stopping.wait(_PAUSE_SECONDS):
            try:
                self._admin.list_topics(timeout=0.5)
            except KafkaException:
                continue
            self.answered.append(time.monotonic())
