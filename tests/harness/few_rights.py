"""All the work of a flow, once and without Spark, as a user with few rights.

`RestrictedFlow` prepares a source, grants the user ACLs, runs a slot and every job
twice, as before and after a restart, and yields the problems one by one. Each has an
alias of its own, so that everything it creates is new.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any, Self

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from structlog.testing import capture_logs

from mirror.checks.permissions.rights import principal
from mirror.clusters.admin import group_offsets
from mirror.clusters.admin.group_offsets import SHARE_GROUP, CommittedOffset
from mirror.clusters.membership import Membership
from mirror.errors import MirrorError
from mirror.offsets.groups import Copy
from mirror.pairs import selection
from mirror.pairs.control import PausesReader
from mirror.playground.secured import USER
from mirror.service.groups import GroupJobs
from mirror.service.standby import AccessJob, StandbyJob
from mirror.service.topics import TopicJobs
from mirror.status.store import StatusStore
from mirror.topics import topics
from tests.harness.admin import (
    add_partitions,
    alter_topic,
    commit_offsets,
    create_topic,
    delete_topic,
    topic_exists,
)
from tests.harness.connections import connected
from tests.harness.load import producer
from tests.harness.slots import TARGET, SparklessFlow
from tests.harness.waiting import deadline_in, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from mirror.checks.permissions.rights import Right
    from mirror.clusters.cluster import Cluster
    from mirror.playground.cluster import PlaygroundCluster

PRINCIPAL = f"User:{USER}"
RECORDS = 20
_LEASE_SECONDS = 0.2
_BAD = 3
"""The offset on which the flow's function fails."""
_TYPES = {
    "TOPIC": ResourceType.TOPIC,
    "GROUP": ResourceType.GROUP,
    "CLUSTER": ResourceType.BROKER,
    "TRANSACTIONAL_ID": ResourceType.TRANSACTIONAL_ID,
}


def grant(bootstrap: str, rights: Iterable[Right], principal: str = PRINCIPAL) -> None:
    """Give the user these rights, and wait until the broker knows them."""
    bindings = [
        AclBinding(
            _TYPES[each.kind.name],
            each.extent.name,
            ResourcePatternType[each.extent.pattern],
            principal,
            "*",
            AclOperation[each.operation.value],
            AclPermissionType.ALLOW,
        )
        for each in rights
    ]
    if not bindings:
        return
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_acls(bindings).values():
        future.result(30)
    wait_for(lambda: held(bootstrap, principal) >= len(set(bindings)))


def held(bootstrap: str, principal: str = PRINCIPAL) -> int:
    """How many ACLs the user has."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    return len(admin.describe_acls(_all_of(principal)).result(30))


def revoke_all(bootstrap: str, principal: str = PRINCIPAL) -> None:
    """Revoke all the user's rights."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    [future] = admin.delete_acls([_all_of(principal)]).values()
    future.result(30)
    wait_for(lambda: not held(bootstrap, principal))


def _all_of(principal: str) -> AclBindingFilter:
    return AclBindingFilter(
        ResourceType.ANY,
        None,
        ResourcePatternType.ANY,
        principal,
        None,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )


class RestrictedFlow:
    """One flow from the source `alias`."""

    def __init__(
        self,
        source: PlaygroundCluster,
        target: PlaygroundCluster,
        alias: str,
        logins: Sequence[str] = (),
        **settings: Any,
    ) -> None:
        """`logins`: the users, with their names as passwords, that tasks log in as on
        the source and on the target.
        """
        self.admins = {alias: source.admin_bootstrap, TARGET: target.admin_bootstrap}
        self.alias = alias
        self.start = f"rights-{alias}-"
        self.topics = (f"{self.start}orders", f"{self.start}payments")
        self.groups = {f"{self.start}app", f"{self.start}share"}
        """One of each kind: the last one is a share group."""
        self._sparkless = SparklessFlow(
            source={"bootstrap_servers": source.bootstrap, **source.client_config},
            target={"bootstrap_servers": target.bootstrap, **target.client_config},
            topic=f"{self.start}.*",
            alias=alias,
            settings={
                "heartbeats_replication": True,
                "groups": f"{self.start}.*",
                "sync_group_offsets": True,
                "emit_offset_syncs": True,
                "offset_syncs_location": "target",
                "transform": "tests.functions:fails_on",
                "transform_options": {"offsets": [_BAD]},
                "dead_letter_topic": f"dead-{alias}",
                **dict(zip(("source_login", "target_login"), logins, strict=False)),
                **settings,
            },
            service={"group": "mirror"},
            logins={
                login: {
                    "bootstrap_servers": cluster.bootstrap,
                    **cluster.client_config,
                    "sasl_username": login,
                    "sasl_password": login,
                }
                for login, cluster in zip(logins, (source, target), strict=False)
            },
        )
        self.config = self._sparkless.config()
        self.flow = self.config.flows[self._sparkless.name]
        self._told: dict[str, tuple[str, ...]] = {}

    def prepare(self) -> Self:
        """Topics, records, an ACL and a group on the source; nothing on the target."""
        bootstrap = self.admins[self.alias]
        if not topic_exists(bootstrap, "heartbeats"):
            create_topic(bootstrap, "heartbeats")
        for topic in self.topics:
            create_topic(bootstrap, topic, retention_ms="7200000")
        client = producer(bootstrap)
        for number in range(RECORDS):
            for topic in self.topics:
                client.produce(topic, key=b"%d" % number, value=b"v", partition=0)
        client.produce("heartbeats", key=b"k", value=b"v", partition=0)
        assert client.flush(30) == 0
        group, shared = sorted(self.groups)
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
        place = TopicPartition(self.topics[0], 0, RECORDS // 2)
        commit_offsets(consumer, [place])
        consumer.close()
        start = CommittedOffset(RECORDS // 2, SHARE_GROUP)
        with connected(bootstrap) as cluster:
            wanted = {shared: {(self.topics[1], 0): start}}
            assert not group_offsets.commit(cluster, wanted)
        if topic_exists(self.admins[TARGET], "heartbeats"):
            delete_topic(self.admins[TARGET], "heartbeats")
            wait_for(lambda: not topic_exists(self.admins[TARGET], "heartbeats"))
        return self

    @contextlib.contextmanager
    def allowed(self, rights: Sequence[Right]) -> Iterator[None]:
        """Users have these rights while the block runs, and no others."""
        users = {
            (each.login, each.cluster): principal(self.config.clusters[each.login])
            for each in rights
        }
        try:
            for (login, alias), user in users.items():
                listed = [each for each in rights if each.login == login]
                grant(self.admins[alias], listed, user)
            yield
        finally:
            for (_, alias), user in users.items():
                revoke_all(self.admins[alias], user)

    def problems(self) -> Iterator[str]:
        """Do the work, and yield what goes wrong."""
        yield from self._turn(first=True)
        bootstrap = self.admins[self.alias]
        for topic in ("heartbeats", *self.topics):
            count = _partitions(bootstrap, topic) + 1
            add_partitions(bootstrap, topic, count)
            alter_topic(bootstrap, topic, retention_ms=str(3_600_000 + count))
        yield from self._turn(first=False)

    def _turn(self, *, first: bool) -> Iterator[str]:
        """A run of the flow from its beginning."""
        with self._sparkless.connected() as (source, target):
            try:
                PausesReader(target, self.flow).read()
                found = topics.sync(source, target, self.flow)
                yield from found.problems
                seen = {each.topic for each in found.topics}
                for topic in sorted({"heartbeats", *self.topics} - seen):
                    yield f"{topic} is not seen"
                if not first and len(found.grown) < len(found.topics):
                    yield f"not every copy has grown, but {found.grown}"
                self._sparkless.own_copies(found, source, target)
            except MirrorError as error:
                yield str(error)
                return
            yield from self._copy()
            yield from self._jobs(source, target, found)
            yield from self._meet(target)

    def _copy(self) -> Iterator[str]:
        with self._sparkless.slot() as slot:
            deadline = deadline_in(30)
            while time.monotonic() < deadline:
                with capture_logs() as logs:
                    try:
                        reports = slot.run(self._sparkless.lease(_LEASE_SECONDS))
                    except MirrorError as error:
                        yield str(error)
                        return
                wrong = [each["error"] for each in logs if "error" in each]
                wrong += [
                    f"{each.topic}-{each.partition}: {each.reason}"
                    for each in reports
                    if each.reason
                ]
                yield from wrong
                if wrong or all(0 <= e.end_offset <= e.position for e in reports):
                    return
        yield f"not everything is copied: {reports}"

    def _jobs(
        self, source: Cluster, target: Cluster, found: topics.TopicsResult
    ) -> Iterator[str]:
        store = StatusStore((self.flow.name,))
        copies = {
            each.topic: Copy(topic=each.target_topic, partitions=each.partitions)
            for each in found.topics
        }
        # ACLs come last: among those of the source are the user's own, and with them
        # it would get the missing rights.
        jobs = [
            *GroupJobs(self.flow, lambda: copies, store=store, tell=self._tell).jobs(),
            *TopicJobs(self.flow, self.config, store=store, tell=self._tell).jobs(),
            StandbyJob(
                self.flow,
                copies.keys,
                store=store,
                notes=lambda: selection.noted(self.config, self.flow.name),
            ).job(),
            AccessJob(self.flow).job(),
        ]
        for job in jobs:
            with capture_logs() as logs:
                try:
                    job.work(source, target)
                except MirrorError as error:
                    yield f"{job.name}: {error}"
            yield from (
                f"{job.name}: {each['reason']}" for each in logs if "reason" in each
            )
        for whose, texts in self._told.items():
            yield from (f"{whose}: {text}" for text in texts)
        status = store.flow(self.flow.name)
        yield from (f"{each.group}: {each.reason}" for each in status.groups
                    if each.reason)  # fmt: skip
        unseen = self.groups - {each.group for each in status.groups}
        yield from (f"group {each} is not seen" for each in sorted(unseen))
        if not status.heartbeat_at:
            yield "no heartbeat is written"

    def _meet(self, target: Cluster) -> Iterator[str]:
        def share(said: Any) -> Any:
            return dict.fromkeys(said, b"all")

        group = self.config.service.group or ""
        membership = Membership(target, group, share=share)
        try:
            membership.join(b"me")
            membership.heartbeat()
            membership.leave()
        except MirrorError as error:
            yield str(error)

    def _tell(self, whose: str, problems: Sequence[str]) -> None:
        self._told[whose] = tuple(problems)


def _partitions(bootstrap: str, topic: str) -> int:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    return len(admin.list_topics(topic, timeout=30).topics[topic].partitions)
