"""No record is on the target before its schema: real registries, brokers and slots.

The producers and consumers are confluent-kafka's own with its clients of registries,
which share no code with mirror; what registries hold is read by plain HTTP.
"""

from __future__ import annotations

from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
import struct
import threading
import time
from typing import TYPE_CHECKING, Any
import uuid

import pytest

from mirror.copying.schemas import STRANGE_SECONDS, SchemaInquiry
from mirror.schemas.claims import (
    Before,
    Claim,
    ClaimOf,
    ClaimRecords,
    ClaimState,
    SchemaClaims,
    copied_ids,
)
from mirror.schemas.comparing import RegistryPair
from mirror.schemas.ids import IdSettler
from mirror.schemas.registry.registry import Registry
from mirror.schemas.registry.values import RESERVED, Mode, Subject
from mirror.schemas.sync import sync
from mirror.status.states import PartitionState
from mirror.status.values import WAITS
from tests.harness import registries
from tests.harness.admin import create_topic
from tests.harness.load import producer
from tests.harness.registry_proxy import RegistryProxy
from tests.harness.schema_load import Reader, evolve
from tests.harness.schemas import Raw, avro
from tests.harness.slots import RunningLease, SparklessFlow
from tests.harness.waiting import wait_for
from tests.harness.witness import read_topic

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mirror.copying.lease import PartitionReport
    from mirror.copying.slot import Slot
    from mirror.playground.cluster import PlaygroundCluster
    from mirror.schemas.ids import SettledId

    Clusters = dict[str, PlaygroundCluster]

pytestmark = [pytest.mark.integration, pytest.mark.needs("registry")]

VALUE_HEADER = "__value_schema_id"


class Site:
    """Both clusters, their registries, and one flow between them without Spark."""

    def __init__(self, clusters: Clusters, folder: Path, stack: ExitStack) -> None:
        self.source, self.target = clusters["a"].bootstrap, clusters["b"].bootstrap
        urls = [each.url for each in stack.enter_context(registries.two(folder))]
        self.a, self.b = (Raw(url) for url in urls)
        self.before_b = stack.enter_context(RegistryProxy(urls[1]))
        self.mark = uuid.uuid4().hex[:6]
        self._stack = stack

    def topic(self, name: str, partitions: int = 1) -> str:
        topic = f"barrier-{self.mark}-{name}"
        create_topic(self.source, topic, partitions)
        return topic

    def flow(self, **settings: Any) -> SparklessFlow:
        """Of all topics that there are now."""
        ends = [
            {"bootstrap_servers": bootstrap, "schema_registry": {"url": url}}
            for bootstrap, url in (
                (self.source, self.a.url),
                (self.target, self.before_b.url),
            )
        ]
        return SparklessFlow(
            source=ends[0],
            target=ends[1],
            topic=f"barrier-{self.mark}-.*",
            alias=f"A{self.mark}",
            settings={"schemas": "require", "policy": "identity", **settings},
        ).own()

    @contextmanager
    def running(self, flow: SparklessFlow) -> Iterator[RunningLease]:
        with flow.slot() as slot:
            lease = RunningLease(slot, flow.lease(300))
            try:
                yield lease
            finally:
                lease.end()

    def copied(
        self, slot: Slot, flow: SparklessFlow, wanted: dict[str, int]
    ) -> list[PartitionReport]:
        """The reports of a lease that lasts until copies have so many records."""
        lease = RunningLease(slot, flow.lease(300))
        try:
            wait_for(lambda: {t: self.count(t) for t in wanted} == wanted)
        finally:
            reports = lease.end()
        return reports

    def held(self, slot: Slot, flow: SparklessFlow, count: int = 1) -> dict[str, str]:
        """The topics that are set aside, with the reasons, once there are so many."""
        found: dict[str, str] = {}

        def there() -> bool:
            found.clear()
            found.update(aside(slot.run(flow.lease(3))))
            return len(found) == count

        wait_for(there)
        return found

    def count(self, topic: str) -> int:
        found = read_topic(self.target, topic, **{"fetch.wait.max.ms": 20})
        return sum(map(len, found.values()))


@pytest.fixture
def site(clusters: Clusters, tmp_path: Path) -> Iterator[Site]:
    with ExitStack() as stack:
        yield Site(clusters, tmp_path, stack)


def test_readable_at_once(site: Site) -> None:
    """While a producer brings 50 versions to 10 subjects of keys and values, in Avro,
    JSON and Protobuf and with references, a consumer on the target decodes every record
    the moment it has it, although no job copies schemas: the slot does. Both registries
    then have the same, and a round of the job finds nothing to do.
    """
    topics = [site.topic(name) for name in ("a", "b", "c", "proto", "json")]
    flow = site.flow()
    reader = Reader(site.target, topics, site.b.url)
    reader.start()
    with site.running(flow):
        written = evolve(site.source, site.a, topics, versions=5)
        wanted = sum(map(len, written.values()))
        wait_for(
            lambda: (
                sum(map(len, reader.decoded.values())) + len(reader.failed) >= wanted
            )
        )
    reader.end()
    assert not reader.failed, reader.failed[:3]
    assert reader.decoded == written
    assert site.b.versions() == site.a.versions()


@pytest.mark.full
def test_copy_alone_is_late(site: Site) -> None:
    """With `schemas: copy` the same consumer meets records before their schemas."""
    topics = [site.topic("a")]
    flow = site.flow(schemas="copy")
    reader = Reader(site.target, topics, site.b.url)
    reader.start()
    with site.running(flow):
        evolve(site.source, site.a, topics, versions=2)
        wait_for(lambda: reader.failed)
    reader.end()


def framed(number: int, rest: bytes = b"content") -> bytes:
    """As a registry's serializers do."""
    return struct.pack(">bI", 0, number) + rest


def write(site: Site, topic: str, *records: Any, **settings: Any) -> None:
    """Values, or keywords for a producer."""
    sender = producer(site.source, linger_ms=20, **settings)
    for record in records:
        fields = record if isinstance(record, dict) else {"value": record}
        sender.produce(topic, partition=0, **fields)
    assert sender.flush(30) == 0


def aside(reports: list[PartitionReport]) -> dict[str, str]:
    """Topics whose partition is set aside, with the reason."""
    return {
        each.topic: each.reason
        for each in reports
        if each.state == PartitionState.FAULTED
    }


def values(site: Site, topic: str) -> list[bytes]:
    found = read_topic(site.target, topic, **{"fetch.wait.max.ms": 20})
    return [message.value() for message in found[0]]


def test_registry_down(site: Site) -> None:
    """While the target's registry fails, records with known ids flow; a partition whose
    next record has a new one waits, with a reason that names subject, registry and
    error; once the registry is back, all is there once and in order.
    """
    topic, other = site.topic("new"), site.topic("known")
    known = site.a.register("o-value", avro("O", "a"))
    flow = site.flow()
    sent = [framed(known, b"%d" % n) for n in range(3)]
    write(site, topic, *sent)
    write(site, other, *sent)
    with flow.slot() as slot:
        assert not aside(site.copied(slot, flow, {topic: 3, other: 3}))
        assert values(site, topic) == values(site, other) == sent
        new = site.a.register("o-value", avro("O", "a", "b"))
        later = [framed(known, b"k"), framed(new, b"n"), framed(known, b"l")]
        with site.before_b.fault(status=503):
            write(site, topic, *later)
            write(site, other, later[0])
            site.copied(slot, flow, {topic: 4, other: 4})
            [(waiting, reason)] = site.held(slot, flow).items()
            assert values(site, other) == [*sent, later[0]]
            assert values(site, topic) == [*sent, later[0]]
            # Another process knows no ids, and believes the notes of what was copied.
            write(site, other, framed(known, b"again"))
            with flow.slot() as another:
                site.copied(another, flow, {other: 5})
            assert values(site, other)[-1] == framed(known, b"again")
        assert waiting == topic
        assert reason.startswith(f"{WAITS}{new} of o-value")
        assert "503" in reason
        wait_for(lambda: not aside(slot.run(flow.lease(2))))
    assert values(site, topic) == [*sent, *later]
    assert values(site, other) == [*sent, later[0], framed(known, b"again")]
    assert site.b.versions() == site.a.versions()


@pytest.mark.parametrize(
    "provenance", [pytest.param(True, marks=pytest.mark.full), False]
)
def test_bytes(site: Site, provenance: bool) -> None:
    """What only looks like a registry's record passes as it is, and is counted:
    binary data that begins with a zero, tombstones, null keys, empty values, GUIDs and
    ids in headers. So do large batches that are not unpacked without `require`.
    """
    topic = site.topic("binary")
    number = site.a.register("o-value", avro("O", "a"))
    records: list[dict[str, Any]] = [
        {"key": None, "value": b"\0" * 5},
        {"key": b"\0\0\0\1\0\0", "value": None},
        {"key": None, "value": None},
        {"key": b"", "value": b""},
        {"key": b"k", "value": b"\0"},
        {"key": b"k", "value": framed(2**31 + 5)},
        {"key": framed(number), "value": framed(number)},
        {"key": b"k", "value": b"v",
         "headers": [(VALUE_HEADER, b"\1" + uuid.uuid4().bytes), ("h", None)]},
        {"key": b"k", "value": b"v",
         "headers": [("__key_schema_id", framed(number, b"")), (VALUE_HEADER, b"")]},
        *({"key": b"%d" % n, "value": framed(number, b"x" * 900)} for n in range(99)),
    ]  # fmt: skip
    flow = site.flow(provenance=provenance)
    write(site, topic, *records, compression_type="zstd")
    with flow.slot() as slot:
        reports = site.copied(slot, flow, {topic: len(records)})
    assert not aside(reports)
    found = read_topic(site.target, topic)[0]
    assert [
        (
            each.key(),
            each.value(),
            [h for h in each.headers() or [] if h[0] != "mirror.via"],
        )
        for each in found
    ] == [(r["key"], r["value"], r.get("headers", [])) for r in records]
    assert sum(each.counts.unknown_ids for each in reports) == 3
    assert site.b.text(number) == site.a.text(number)


@pytest.mark.full
def test_relayed_batches_wait(site: Site) -> None:
    """With `provenance: false` a batch that is copied byte for byte waits, too."""
    topic = site.topic("large")
    number = site.a.register("o-value", avro("O", "a"))
    sent = [framed(number, b"%900d" % n) for n in range(99)]
    write(site, topic, *sent)
    flow = site.flow(provenance=False)
    with flow.slot() as slot:
        with site.before_b.fault(status=503):
            assert site.held(slot, flow)
            assert values(site, topic) == []
        wait_for(lambda: not aside(slot.run(flow.lease(2))))
    assert values(site, topic) == sent


@pytest.mark.full
def test_conflict(site: Site) -> None:
    """An id that is another schema on the target, and one that the flow leaves out,
    set their partition aside, each with the way out; neighbours go on.
    """
    topics = {name: site.topic(name) for name in ("taken", "left", "good")}
    ids = {name: site.a.register(name, avro(name, "a")) for name in topics}
    site.b.set_mode("IMPORT", "theirs")
    theirs = {"schema": avro("T"), "id": ids["taken"], "version": 1}
    site.b.ask("POST", "/subjects/theirs/versions", theirs)
    flow = site.flow(schemas_exclude=["left"])
    for name, topic in topics.items():
        write(site, topic, framed(ids[name]))
    with flow.slot() as slot:
        site.copied(slot, flow, {topics["good"]: 1})
        found = site.held(slot, flow, 2)
    assert found.keys() == {topics["taken"], topics["left"]}
    assert "theirs version 1" in found[topics["taken"]]
    assert "schemas_exclude" in found[topics["left"]]
    assert site.count(topics["good"]) == 1
    assert site.b.text(ids["taken"]) == avro("T")
    elsewhere = flow.settings | {"schemas_topics": [topics["good"]]}
    flow = site.flow(**elsewhere)
    with flow.slot() as slot:
        wait_for(lambda: not aside(slot.run(flow.lease(4))))


@pytest.mark.full
def test_id_issued_later(site: Site) -> None:
    """An id that the source did not know passes, and is asked about again later: once
    the source has issued it, its records wait for the schema.
    """
    topic = site.topic("early")
    flow = site.flow()
    with flow.slot() as slot:
        write(site, topic, framed(1, b"early"))
        reports = site.copied(slot, flow, {topic: 1})
        assert sum(r.counts.unknown_ids for r in reports) == 1
        number = site.a.register("o-value", avro("O", "a"))
        assert number == 1
        deadline = time.monotonic() + STRANGE_SECONDS
        wait_for(lambda: time.monotonic() > deadline)
        write(site, topic, framed(number, b"later"))
        reports = site.copied(slot, flow, {topic: 2})
        assert sum(r.counts.unknown_ids for r in reports) == 0
    assert site.b.text(number) == site.a.text(number)


def test_a_fenced_run_writes_no_schemas(site: Site) -> None:
    """A slot that still waits for the registries while another run takes over, as in a
    failover, sets no mode and writes no version there any more: by then the registry
    may be open to applications. The run that took over does.
    """
    site.topic("any")
    number = site.a.register("o-value", avro("O", "a"))
    flow = site.flow()
    inquiry = SchemaInquiry(flow.plan, "test")
    inquiry.begin(flow.generation)
    found: dict[int, SettledId] = {}

    def reason(number: int) -> str:
        inquiry.open(number, b"")
        wait_for(lambda: found.update(inquiry.findings()) or number in found)
        return found.pop(number).reason

    with closing(inquiry):
        now = flow.own().generation
        assert f"{number} of o-value" in (said := reason(number))
        assert "interrupted" in said
        assert site.b.versions() == {}
        assert site.b.mode("o-value") is None
        with flow.connected() as (_source, target):
            noted = SchemaClaims(target, flow.alias, replication_factor=1)
            noted.refresh()
            assert (noted.ours, noted.modes) == ({}, {})
        inquiry.begin(now)
        assert reason(number) == ""
        assert site.b.mode("o-value") == "IMPORT"
        assert site.b.versions() == site.a.versions()


def test_a_reserved_id_is_no_copy(site: Site) -> None:
    """While registries do not answer, notes of what was copied are believed, but not
    those of placeholders: what the source means by such an id is not there.
    """
    site.topic("any")
    flow = site.flow()
    with flow.connected() as (_source, target):
        claims = SchemaClaims(target, flow.alias, replication_factor=1)
        claims.note(
            {
                (Subject("", name), 1): Claim(
                    id=number, target_id=number, sha256="", state=ClaimState.COPIED
                )
                for name, number in (("o-value", 4), (RESERVED, 40))
            }
        )
        assert copied_ids(target, flow.alias, "") == {4}


def test_claims_about_some_subjects(site: Site) -> None:
    """What a slot takes from the notes is the last word of every source about the
    subjects that it needs, and whatever comes later.
    """
    site.topic("any")
    flow = site.flow()
    one, two = (Subject(".c", f"{site.mark}/{name}") for name in ("o", "p"))
    claimed = Claim(id=1, target_id=1, sha256="", state=ClaimState.CLAIMED)
    copied = replace(claimed, state=ClaimState.COPIED)
    mode = Before(before=None, set=Mode.IMPORT)
    with flow.connected() as (_source, target):
        ours, other = (
            SchemaClaims(target, alias, replication_factor=1)
            for alias in (flow.alias, f"{flow.alias}x")
        )
        ours.note({(one, 1): claimed, (two, 1): claimed}, {(one, ClaimOf.MODE): mode})
        ours.note({(one, 1): copied})
        other.note({(one, 2): copied, (two, 2): copied})
        records = ClaimRecords(target)
        found = SchemaClaims.about([one], records, flow.alias, replication_factor=1)
        assert found.ours == {(one, 1): copied}
        assert found.owners == {(one, 2): f"{flow.alias}x"}
        assert found.modes == {one: mode}
        ours.note({(two, 3): copied})
        found.refresh()
        assert found.ours == {(one, 1): copied, (two, 3): copied}


@pytest.mark.full
def test_two_at_once(site: Site) -> None:
    """The job and several slots copy the same versions at the same time: all of them
    succeed, and the target has each once.
    """
    flow = site.flow()
    topic_of_claims = f"mirror-schemas.{flow.alias}.internal"
    for round_ in range(3):
        numbers = [
            site.a.register(f"s{n}", avro(f"S{n}", *(f"f{i}" for i in range(round_))))
            for n in range(4)
        ]
        failed: list[str] = []
        start = threading.Barrier(4)
        threads = [
            threading.Thread(target=one, args=(flow, start, numbers, failed))
            for one in (_slot_copies, _slot_copies, _slot_copies, _job_copies)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failed
        assert site.b.versions() == site.a.versions()
    claimed = {m.key() for m in read_topic(site.target, topic_of_claims)[0]}
    assert len([key for key in claimed if not key.endswith(b"mode")]) == 12


def _slot_copies(
    flow: SparklessFlow,
    start: threading.Barrier,
    numbers: list[int],
    failed: list[str],
) -> None:
    config = flow.config()
    with ExitStack() as stack:
        settler = IdSettler(
            flow=flow.plan.flow,
            source=stack.enter_context(Registry(config.clusters[flow.alias])),
            target=stack.enter_context(Registry(config.clusters[flow.into])),
            cluster=lambda: stack.enter_context(flow.connected())[1],
        )
        start.wait()
        failed += filter(None, (settler.settle(n).reason for n in numbers))


def _job_copies(
    flow: SparklessFlow, start: threading.Barrier, _: list[int], failed: list[str]
) -> None:
    config = flow.config()
    with (
        flow.connected() as (_source, target),
        Registry(config.clusters[flow.alias]) as one,
        Registry(config.clusters[flow.into]) as other,
    ):
        registries = RegistryPair(
            flow=flow.plan.flow,
            source=one,
            target=other,
            claims=SchemaClaims(target, flow.alias, replication_factor=1),
        )
        start.wait()
        failed += sync(registries).problems
