"""Records with schemas under load, copied by services and slots, seen by ordinary
clients.
"""

from __future__ import annotations

from contextlib import ExitStack
import struct
import threading
import time
from typing import TYPE_CHECKING, Any
import uuid

import pytest

from tests.harness import registries
from tests.harness.admin import create_topic
from tests.harness.counters import counter
from tests.harness.load import producer
from tests.harness.registry_proxy import RegistryProxy
from tests.harness.schema_load import Reader, evolve
from tests.harness.schemas import Raw, avro
from tests.harness.service import RunningMirror, config_for
from tests.harness.slots import RunningLease, SparklessFlow
from tests.harness.waiting import wait_for
from tests.harness.witness import read_topic

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mirror.playground.cluster import PlaygroundCluster
    from tests.harness.registry_process import RegistryProcess
    from tests.harness.standing import StandingMirror

    Clusters = dict[str, PlaygroundCluster]

pytestmark = [pytest.mark.integration, pytest.mark.needs("registry")]

OUTAGE_SECONDS = 60
STEP_SECONDS = 0.05


def config_of(
    clusters: Clusters, urls: tuple[str, str], topics: list[str], **settings: Any
) -> dict[str, Any]:
    """A flow of these topics, which keep their names; the job does not look again."""
    mark = uuid.uuid4().hex[:6]
    config = config_for(
        clusters["a"].bootstrap, clusters["b"].bootstrap,
        topics=topics, policy="identity", schemas="require", schemas_seconds=600,
        **settings,
    )  # fmt: skip
    config["clusters"] = {
        f"{alias}{mark}": {**config["clusters"][alias], "schema_registry": {"url": url}}
        for alias, url in zip("AB", urls, strict=True)
    }
    config["flows"] = {f"A{mark}->B{mark}": config["flows"]["A->B"]}
    return config


@pytest.fixture(params=["axonops", pytest.param("apicurio", marks=pytest.mark.full)])
def urls(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, str]]:
    """The source's registry, and one of either make."""
    with (
        registries.running("axonops", tmp_path / "a") as one,
        registries.running(request.param, tmp_path / "b") as other,
    ):
        yield one, other


def test_ids_are_translated(
    clusters: Clusters, standing: StandingMirror, urls: tuple[str, str]
) -> None:
    """While a producer's schemas evolve, a service with `schemas_ids: translate` copies
    into a registry that has given the ids to other schemas; a consumer there decodes
    every record to what was written, the moment it has it, and the metric counts each.
    """
    mark = uuid.uuid4().hex[:6]
    topics = [f"translated-{mark}-{name}" for name in ("a", "proto", "json")]
    for topic in topics:
        create_topic(clusters["a"].bootstrap, topic, 1)
    for number in range(30):
        Raw(urls[1]).register(f"theirs-{number}", avro(f"Theirs{number}", "x"))
    reader = Reader(clusters["b"].bootstrap, topics, urls[1])
    reader.start()
    config = config_of(clusters, urls, topics, schemas_ids="translate")
    with standing.hosting(config) as mirror:
        source, registry = clusters["a"].bootstrap, Raw(urls[0])
        written = evolve(source, registry, topics, versions=5)
        wanted = sum(map(len, written.values()))
        wait_for(
            lambda: (
                sum(map(len, reader.decoded.values())) + len(reader.failed) >= wanted
            )
        )
        name = "mirror_schema_translated_records_total"
        wait_for(lambda: counter(mirror, name) == wanted)
    reader.end()
    assert not reader.failed, reader.failed[:3]
    assert reader.decoded == written


@pytest.mark.full
def test_two_sources_are_read_by_context(clusters: Clusters, tmp_path: Path) -> None:
    """Two sources whose registries gave the same ids to other schemas share a target:
    a consumer of each copy, whose client asks in the source's context, decodes every
    record the moment it has it.
    """
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    mark = uuid.uuid4().hex[:6]
    with ExitStack() as stack:
        into, *urls = (
            stack.enter_context(registries.running("axonops", tmp_path / name))
            for name in ("target", "one", "other")
        )
        readers, written = [], {}
        for url, name in zip(urls, ("avro", "json"), strict=True):
            topic, context = f"context-{mark}-{name}", f".{name}"
            create_topic(source, topic, 1)
            flow = SparklessFlow(
                source={"bootstrap_servers": source, "schema_registry": {"url": url}},
                target={"bootstrap_servers": target, "schema_registry": {"url": into}},
                topic=topic,
                alias=f"{name}{mark}",
                settings={"schemas": "require", "schemas_context": context,
                          "policy": "identity"},
            ).own()  # fmt: skip
            reader = Reader(target, [topic], f"{into}/contexts/{context}")
            reader.start()
            stack.callback(reader.end)
            readers.append(reader)
            slot = stack.enter_context(flow.slot())
            stack.callback(RunningLease(slot, flow.lease(300)).end)
            written |= evolve(source, Raw(url), [topic], versions=3)
        wanted = sum(map(len, written.values()))
        wait_for(
            lambda: (
                sum(
                    len(each.failed) + sum(map(len, each.decoded.values()))
                    for each in readers
                )
                >= wanted
            )
        )
        assert [each.failed for each in readers] == [[], []]
        assert readers[0].decoded | readers[1].decoded == written
        assert Raw(urls[0]).text(2) != Raw(urls[1]).text(2)


@pytest.mark.full
def test_a_registry_is_down_for_a_minute(
    clusters: Clusters,
    standing: StandingMirror,
    processes: tuple[RegistryProcess, RegistryProcess],
) -> None:
    """Under load, with the target's registry failing for a minute: records with a known
    id flow, a partition waits from its first new id on, and afterwards every record is
    there once and in order.
    """
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    registry = Raw(processes[0].url)
    known, new = topics = [f"down-{uuid.uuid4().hex[:6]}-{n}" for n in ("known", "new")]
    for topic in topics:
        create_topic(source, topic, 1)
    sent: dict[str, list[bytes]] = {topic: [] for topic in topics}
    sender = producer(source)
    tick = threading.Event()

    def copied(topic: str) -> list[bytes]:
        found = read_topic(target, topic)
        return [each.value() for each in found.get(0, [])]  # there may be no copy yet

    def write(topic: str, number: int) -> None:
        for _ in range(10):
            each = len(sent[topic])
            value = struct.pack(">bIq", 0, number, each)
            sent[topic].append(value)
            sender.produce(topic, value)

    first = registry.register("o-value", avro("O", "f0"))
    with RegistryProxy(processes[1].url) as before_b:
        config = config_of(clusters, (registry.url, before_b.url), topics)
        with standing.hosting(config):
            for topic in topics:
                write(topic, first)
            assert sender.flush(30) == 0
            wait_for(lambda: all(copied(topic) == sent[topic] for topic in topics))
            before, versions = len(sent[new]), 1
            with before_b.fault(status=503):
                begun = time.monotonic()
                while (at := time.monotonic() - begun) < OUTAGE_SECONDS:
                    if at >= 10 * (versions - 1):  # one more every 10 seconds
                        fields = [f"f{each}" for each in range(versions + 1)]
                        latest = registry.register("o-value", avro("O", *fields))
                        versions += 1
                    write(known, first)
                    write(new, latest)
                    write(new, first)
                    sender.poll(0)
                    tick.wait(STEP_SECONDS)
                assert sender.flush(30) == 0
                wait_for(lambda: copied(known) == sent[known])
                assert copied(new) == sent[new][:before]
            wait_for(lambda: len(copied(new)) >= len(sent[new]))
    assert {topic: copied(topic) for topic in topics} == sent
    assert Raw(processes[1].url).versions() == registry.versions()


@pytest.mark.full
def test_two_services_at_once(
    clusters: Clusters,
    processes: tuple[RegistryProcess, RegistryProcess],
    tmp_path: Path,
) -> None:
    """Two services lead one flow at the same time, since none of them has a group, and
    fence each other again and again while a producer's schemas evolve: a consumer on
    the target decodes every record once, in order, the moment it has it; the target has
    each version once and whole, and every subject is in IMPORT, those of others apart.
    """
    a, b = (Raw(each.url) for each in processes)
    b.set_mode("IMPORT")
    theirs = {"schema": avro("Theirs", "x"), "id": 9000, "version": 1}
    b.ask("POST", "/subjects/theirs/versions", theirs)
    b.set_mode("READWRITE")
    foreign = b.versions()
    topics = [f"twice-{uuid.uuid4().hex[:6]}-{name}" for name in ("a", "json")]
    for topic in topics:
        create_topic(clusters["a"].bootstrap, topic, 1)
    reader = Reader(clusters["b"].bootstrap, topics, b.url)
    reader.start()
    written: dict[str, list[Any]] = {topic: [] for topic in topics}
    config = config_of(clusters, (a.url, b.url), topics, start="earliest")
    config["flows"] = {
        name: {**flow, "schemas_seconds": 1} for name, flow in config["flows"].items()
    }
    config["service"] = {"group": None}

    def write() -> bool:
        """More versions than before; whether both services have been fenced."""
        versions = len(a.versions()) // 4 + 1
        more = evolve(clusters["a"].bootstrap, a, topics, versions=versions)
        for topic, values in more.items():
            written[topic] += values
        return all(each.flow()["restarts"] >= 2 for each in services)

    with ExitStack() as stack:
        services = [
            stack.enter_context(RunningMirror(config, tmp_path / name))
            for name in ("one", "other")
        ]
        wait_for(write)
        assert services[1].terminate() == 0
        wanted = sum(map(len, written.values()))
        wait_for(
            lambda: (
                sum(map(len, reader.decoded.values())) + len(reader.failed) >= wanted
            )
        )
        wait_for(lambda: b.versions() == a.versions() | foreign)
    reader.end()
    assert not reader.failed, reader.failed[:3]
    # What is written again has the latest version, with fields that it does not fill.
    assert written == {
        topic: [
            tuple({n: v for n, v in part.items() if v is not None} for part in each)
            for each in values
        ]
        for topic, values in reader.decoded.items()
    }
    modes = {subject: b.mode(subject) for subject in b.subjects()}
    assert modes.pop("theirs") is None
    assert set(modes.values()) == {"IMPORT"}
