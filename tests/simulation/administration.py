"""What a model's broker does for administrators: topics, configs, ACLs, groups.

Handlers fill in the answer and return whether it is to be sent now. Changes go through
the controller, which a broker that is cut off does not reach; brokers learn of them as
of all metadata, each after a while. Mirror's own principal is a super user.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.simulation.groups import coordinates
from tests.simulation.requests import TIMED_OUT, UNKNOWN_TOPIC, not_coordinator

if TYPE_CHECKING:
    from tests.simulation.model import ModelBroker
    from tests.simulation.requests import Request

Acl = tuple[int, str, int, str, str, int, int]
"""Type and name of the resource, pattern, principal, host, operation, permission."""
TOPIC, LITERAL, PREFIXED = 2, 3, 4
WRITE, ALL, ANY = 4, 2, 1
DENY, ALLOW = 2, 3
SECURITY_DISABLED, INVALID_PARTITIONS = 54, 37
_TOPIC_RESOURCE, _BROKER_RESOURCE = 2, 4
_FROM_TOPIC, _DEFAULT = 1, 5
_DISK = 10**12
"""Bytes."""
EVERYTHING = frozenset(range(3, 13))
"""The operations of a super user, on anything."""
_DEFAULTS = {
    "cleanup.policy": "delete",
    "compression.type": "producer",
    "delete.retention.ms": "86400000",
    "max.compaction.lag.ms": "9223372036854775807",
    "max.message.bytes": "1048588",
    "message.timestamp.type": "CreateTime",
    "min.compaction.lag.ms": "0",
    "min.insync.replicas": "1",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
}
_SETTINGS = {
    "allow.everyone.if.no.acl.found": "false",
    "auto.create.topics.enable": "false",
    "default.replication.factor": "1",
    "num.partitions": "1",
    "transaction.max.timeout.ms": "900000",
}


def may_write(broker: ModelBroker, principal: str, topic: str) -> bool:
    """Whether a broker lets an application write to a topic, by the ACLs that it knows.
    Where no ACL is about the topic, nobody may but super users.
    """
    if broker.acls is None:
        return True
    mine = {
        each[6]
        for each in broker.acls
        if each[0] == TOPIC
        and (
            topic.startswith(each[1])
            if each[2] == PREFIXED
            else each[1] in (topic, "*")
        )
        and each[3] in (principal, "User:*")
        and each[5] in (WRITE, ALL)
    }
    return DENY not in mine and ALLOW in mine


# ---- topics ----


def create_partitions(request: Request) -> bool:
    cluster = request.cluster
    entry = request.kind.CreatePartitionsTopicResult
    request.answer.results = []
    for asked in request.body.topics:
        error = _refuses_changes(request, asked.name)
        if not error and asked.count <= len(cluster.topics[asked.name].partitions):
            error = INVALID_PARTITIONS
        elif not error and not request.body.validate_only:
            cluster.grow(asked.name, asked.count)
        request.answer.results.append(
            entry(name=asked.name, error_code=error, error_message=None)
        )
    return True


def _refuses_changes(request: Request, topic: str) -> int:
    """The error of a broker that cannot change this topic; 0 if it can."""
    if not reaches_controller(request):
        return TIMED_OUT
    return 0 if topic in request.cluster.topics else UNKNOWN_TOPIC


# ---- configs ----


def describe_configs(request: Request) -> bool:
    entry = request.kind.DescribeConfigsResult
    request.answer.results = []
    for asked in request.body.resources:
        found, error = _configs(request, asked)
        keys = asked.configuration_keys
        request.answer.results.append(
            entry(
                error_code=error,
                error_message=None,
                resource_type=asked.resource_type,
                resource_name=asked.resource_name,
                configs=[
                    entry.DescribeConfigsResourceResult(
                        name=name, value=value, read_only=False, config_source=source,
                        is_sensitive=False, synonyms=[], config_type=0,
                        documentation=None,
                    )
                    for name, (value, source) in found.items()
                    if keys is None or name in keys
                ],
            )
        )  # fmt: skip
    return True


def _configs(request: Request, asked: Any) -> tuple[dict[str, tuple[str, int]], int]:
    """Each with where its value comes from, and an error."""
    if asked.resource_type == _BROKER_RESOURCE:
        return {name: (value, _DEFAULT) for name, value in _SETTINGS.items()}, 0
    seen = request.broker.view.get(asked.resource_name)
    if seen is None:
        return {}, UNKNOWN_TOPIC
    return {
        **{name: (value, _DEFAULT) for name, value in _DEFAULTS.items()},
        **{name: (value, _FROM_TOPIC) for name, value in seen.configs.items()},
    }, 0


def alter_configs(request: Request) -> bool:
    """Of topics, one config at a time."""
    cluster = request.cluster
    entry = request.kind.AlterConfigsResourceResponse
    request.answer.responses = []
    for asked in request.body.resources:
        error = _refuses_changes(request, asked.resource_name)
        if not error and not request.body.validate_only:
            kept = cluster.topics[asked.resource_name].configs
            for each in asked.configs:
                if each.config_operation:
                    kept.pop(each.name, None)
                else:
                    kept[each.name] = each.value
            cluster.spread()
        request.answer.responses.append(
            entry(
                error_code=error, error_message=None,
                resource_type=asked.resource_type, resource_name=asked.resource_name,
            )
        )  # fmt: skip
    return True


# ---- ACLs ----


def describe_acls(request: Request) -> bool:
    """All of a type of resource, as this broker knows them; mirror filters no more."""
    answer, kind = request.answer, request.kind.DescribeAclsResource
    answer.error_code, answer.error_message, answer.resources = 0, None, []
    if request.broker.acls is None:
        answer.error_code = SECURITY_DISABLED
        return True
    wanted = request.body.resource_type_filter
    by_resource: dict[tuple[int, str, int], list[Acl]] = {}
    for acl in sorted(request.broker.acls):
        if wanted in (ANY, acl[0]):
            by_resource.setdefault(acl[:3], []).append(acl)
    answer.resources = [
        kind(
            resource_type=resource, resource_name=name, pattern_type=pattern,
            acls=[
                kind.AclDescription(
                    principal=each[3], host=each[4], operation=each[5],
                    permission_type=each[6],
                )
                for each in several
            ],
        )
        for (resource, name, pattern), several in by_resource.items()
    ]  # fmt: skip
    return True


def create_acls(request: Request) -> bool:
    cluster, entry = request.cluster, request.kind.AclCreationResult
    error = _refuses_acls(request)
    made: set[Acl] = {
        (
            each.resource_type, each.resource_name, each.resource_pattern_type,
            each.principal, each.host, each.operation, each.permission_type,
        )
        for each in request.body.creations
    }  # fmt: skip
    if not error and cluster.acls is not None:
        cluster.acls |= made
        cluster.spread()
    request.answer.results = [
        entry(error_code=error, error_message=None) for _ in request.body.creations
    ]
    return True


def delete_acls(request: Request) -> bool:
    """Filters name an ACL exactly, as mirror's do."""
    cluster = request.cluster
    entry = request.kind.DeleteAclsFilterResult
    error = _refuses_acls(request)
    for each in () if error else request.body.filters:
        assert cluster.acls is not None
        cluster.acls.discard(
            (
                each.resource_type_filter, each.resource_name_filter,
                each.pattern_type_filter, each.principal_filter, each.host_filter,
                each.operation, each.permission_type,
            )
        )  # fmt: skip
    cluster.spread()
    request.answer.filter_results = [
        entry(error_code=error, error_message=None, matching_acls=[])
        for _ in request.body.filters
    ]
    return True


def _refuses_acls(request: Request) -> int:
    if request.cluster.acls is None:
        return SECURITY_DISABLED
    return 0 if reaches_controller(request) else TIMED_OUT


def reaches_controller(request: Request) -> bool:
    """Whether a broker can have anything changed."""
    return request.cluster.has_controller and not request.broker.isolated


# ---- the cluster and its groups ----


def describe_cluster(request: Request) -> bool:
    answer, cluster, broker = request.answer, request.cluster, request.broker
    answer.error_code, answer.error_message = 0, None
    answer.cluster_id, answer.controller_id = cluster.id, broker.node
    answer.brokers = [
        request.kind.DescribeClusterBroker(
            broker_id=b.node, host=b.address[0], port=b.address[1], rack=None
        )
        for b in cluster.brokers
        if b.up and (broker.isolated or not b.isolated or b is broker)
    ]
    answer.authorized_operations = EVERYTHING
    return True


def describe_log_dirs(request: Request) -> bool:
    """One of each broker, with room; sizes are what its partitions' batches have."""
    kind = request.kind.DescribeLogDirsResult
    topic_kind = kind.DescribeLogDirsTopic
    part = topic_kind.DescribeLogDirsPartition
    node = request.broker.node
    request.answer.error_code = 0
    request.answer.results = [
        kind(
            error_code=0, log_dir="/simulated", total_bytes=_DISK, usable_bytes=_DISK,
            topics=[
                topic_kind(
                    name=name,
                    partitions=[
                        part(
                            partition_index=number,
                            partition_size=sum(len(b.data) for b in each.log.batches),
                            offset_lag=0, is_future_key=False,
                        )
                        for number, each in enumerate(topic.partitions)
                        if each.leader == node
                    ],
                )
                for name, topic in request.cluster.topics.items()
            ],
        )
    ]  # fmt: skip
    return True


def describe_groups(request: Request) -> bool:
    entry = request.kind.DescribedGroup
    broker, cluster = request.broker, request.cluster
    known = broker.old_groups if broker.isolated else cluster.groups
    request.answer.groups = []
    for name in request.body.groups:
        error = 0
        if not coordinates(request, name):
            error = not_coordinator(request, name)
        group = None if error else known.get(name)
        members = [
            entry.DescribedGroupMember(
                member_id=f"{name}-{number}", group_instance_id=None,
                client_id="application", client_host="/simulated",
                member_metadata=b"", member_assignment=b"",
            )
            for number in range(group.members if group is not None else 0)
        ]  # fmt: skip
        state = "Dead" if group is None else "Stable" if members else "Empty"
        request.answer.groups.append(
            entry(
                error_code=error, group_id=name, group_state=state,
                protocol_type="consumer", protocol_data="", members=members,
                authorized_operations=EVERYTHING,
            )
        )  # fmt: skip
    return True
