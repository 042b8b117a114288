"""Messages about keys of MirrorMaker 2, and of guides to it, that set nothing here.

Main functions: `reason`, why a key can be ignored, and `refusal`, why it cannot: its
author expects something that mirror would not do. Keys that set something are in the
traits of settings, for `keys`. Pure tables of texts.
"""

from __future__ import annotations

import re

_BATCHES = "batches go through as they are, up to the target's limit on messages"
_FETCHES = "mirror sizes its requests itself, and asks ahead while it works"
_MEMORY = "a transaction takes about 16 MiB, which bounds the memory"
_PROVIDERS = "config.providers at the top of the file serves all keys"
_PARTITION = "records keep their partition"
_OWN = "mirror sets this for its own connections"
_PROGRESS = "progress is written together with the data, on the target"
_GROUPLESS = "mirror reads without a consumer group"
_CONNECT = "mirror is not a Connect worker"
_HTTP = "status is served at service.http_host and service.http_port of a YAML file"
_TOGETHER = "instances share flows by the consumer group that service.group names"
_METRICS = "metrics are at /metrics of the service, for Prometheus"
_BYTES = "records are copied as bytes, never converted"
_RETRY = "what fails is tried again with growing pauses, and shown by mirror status"
_STORAGE = "internal topics of Connect are not needed"
_LOGIN = "mirror logs in by itself, without Java's classes"
_TICKETS = "libkrb5 renews tickets from the keytab, at half of their life"
_TLS = "Python's TLS decides this, from the system's OpenSSL"

_CLIENT: dict[str, str] = {
    **dict.fromkeys(
        (
            "max.partition.fetch.bytes", "fetch.max.bytes", "fetch.min.bytes",
            "fetch.max.wait.ms", "max.poll.records", "send.buffer.bytes",
            "receive.buffer.bytes",
        ),
        _FETCHES,
    ),
    **dict.fromkeys(("batch.size", "max.request.size"), _BATCHES),
    **dict.fromkeys(
        ("buffer.memory", "max.in.flight.requests.per.connection"), _MEMORY
    ),
    "linger.ms": "what was read is written at once; linger_ms of a flow says how long "
    "the source's brokers wait for more when few records come",
    "config.providers": _PROVIDERS,
    "bootstrap.servers": "A.bootstrap.servers names a cluster's brokers",
    "acks": "mirror always waits until all replicas in sync have a record, as acks = "
    "all says; with fewer it could lose records that it counts as copied",
    **dict.fromkeys(
        (
            "partitioner.class", "partitioner.ignore.keys",
            "partitioner.adaptive.partitioning.enable",
            "partitioner.availability.timeout.ms",
        ),
        _PARTITION,
    ),
    **dict.fromkeys(
        (
            "compression.level", "compression.gzip.level", "compression.lz4.level",
            "compression.zstd.level",
        ),
        "mirror packs at the codec's usual level",
    ),
    **dict.fromkeys(
        (
            "session.timeout.ms", "heartbeat.interval.ms", "max.poll.interval.ms",
            "enable.auto.commit", "auto.commit.interval.ms", "group.id",
            "group.instance.id", "partition.assignment.strategy", "group.protocol",
            "allow.auto.create.topics", "exclude.internal.topics",
            "group.remote.assignor", "share.acquire.mode",
            "share.acknowledgement.mode",
        ),
        _GROUPLESS,
    ),
    **dict.fromkeys(
        (
            "client.id", "client.dns.lookup",
            "connections.max.idle.ms", "metadata.max.age.ms",
            "reconnect.backoff.ms", "reconnect.backoff.max.ms", "retry.backoff.ms",
            "retry.backoff.max.ms", "socket.connection.setup.timeout.ms",
            "socket.connection.setup.timeout.max.ms", "request.timeout.ms",
            "default.api.timeout.ms", "retries", "delivery.timeout.ms", "max.block.ms",
            "check.crcs", "poll.timeout.ms", "metadata.recovery.strategy",
            "metadata.recovery.rebootstrap.trigger.ms", "metadata.max.idle.ms",
            "bootstrap.controllers",
        ),
        _OWN,
    ),
    "client.rack": "consumer.client.rack says which replicas are read; leaders are "
    "written to",
    **dict.fromkeys(
        ("key.serializer", "value.serializer", "key.deserializer",
         "value.deserializer"),
        _BYTES,
    ),
    **dict.fromkeys(
        ("enable.idempotence", "transactional.id", "transaction.timeout.ms",
         "transaction.two.phase.commit.enable"),
        "exactly_once decides this",
    ),
    **dict.fromkeys(
        ("metric.reporters", "metrics.num.samples", "metrics.recording.level",
         "metrics.sample.window.ms", "interceptor.classes", "enable.metrics.push",
         "auto.include.jmx.reporter"),
        _METRICS,
    ),
}  # fmt: skip

_OF_CLUSTER = {"bootstrap.servers", "request.timeout.ms"}
REASONS: dict[str, str] = {
    "offset.lag.max": "offsets are translated exactly, for any lag",
    "refresh.groups.enabled": "groups are looked for with every round of checkpoints",
    "refresh.groups.interval.seconds": "groups are looked for with every round of "
    "checkpoints; emit.checkpoints.interval.seconds says how often",
    "refresh.topics.enabled": "new topics are always looked for; "
    "refresh.topics.interval.seconds says how often",
    **dict.fromkeys(
        ("admin.timeout.ms", "metadata.request.timeout.ms"),
        "request.timeout.ms with a cluster's alias says how long an answer may take",
    ),
    "use.incremental.alter.configs": "configs are always changed one by one",
    "add.source.alias.to.metrics": _METRICS,
    "connector.client.config.override.policy": _CONNECT,
    "connector.plugin.version": _CONNECT,
    "topic.tracking.enable": _CONNECT,
    "topic.tracking.allow.reset": _CONNECT,
    "consumer.poll.timeout.ms": _OWN,
    "dedicated.mode.enable.internal.rest": _TOGETHER,
    "metric.names.formats": _METRICS,
    "metrics.reporters": _METRICS,
    "metric.reporters": _METRICS,
    "num.stream.threads": "tasks.max says how many tasks copy in parallel",
    "name": "a flow is named after its clusters",
    "connector.class": _CONNECT,
    "tasks.max.enforce": "tasks is never exceeded",
    "config.action.reload": _CONNECT,
    "transaction.boundary": "mirror ends transactions by size and time",
    "transaction.boundary.interval.ms": "mirror ends transactions by size and time",
    "offset.flush.interval.ms": _PROGRESS,
    "offset.flush.timeout.ms": _PROGRESS,
    "offsets.storage.topic": _PROGRESS,
    "task.shutdown.graceful.timeout.ms": "running transactions are finished first",
    "scheduled.rebalance.max.delay.ms": _CONNECT,
    "rebalance.timeout.ms": _CONNECT,
    "connect.protocol": _CONNECT,
    "worker.sync.timeout.ms": _CONNECT,
    "worker.unsync.backoff.ms": _CONNECT,
    "plugin.path": "a function of your own is named by transform in a YAML file",
    "plugin.discovery": _CONNECT,
    "ssl.client.auth": _HTTP,
    "target.topic.creation.enable": "missing copies are always created",
    **{key: _CLIENT[key] for key in _CLIENT.keys() - _OF_CLUSTER},
}

_FAMILIES: tuple[tuple[str, str], ...] = (
    (r"rest\.advertised\..*|inter\.worker\..*", _TOGETHER),
    (
        (
            r"rest\..*|access\.control\..*|response\.http\..*|admin\.listeners.*|"
            r"listeners\.https\..*"
        ),
        _HTTP,
    ),
    (r"errors\..*", _RETRY),
    (r"(key|value|header|internal\.\w+)\.converter.*", _BYTES),
    (r"internal\..*", _OWN),
    (r"config\.providers\..*", _PROVIDERS),
    (r"(offset|config|status)\.storage\..*", _STORAGE),
    (r"topic\.creation\..*", "copies are created as their topics are"),
    (r"metrics\..*|metric\..*", _METRICS),
    (r"sasl\.kerberos\..*", _TICKETS),
    (r"sasl\.(client\.callback|login|server|oauthbearer).*", _LOGIN),
    (
        (
            r"ssl\.(protocol|provider|cipher\.suites|enabled\.protocols|.*manager"
            r"\.algorithm|secure\.random.*|engine\.factory.*)|security\.providers"
        ),
        _TLS,
    ),
)

_ROLE = re.compile(
    r"(?:(?:source|target)\.)?(?:consumer|producer|admin)\.(?:override\.)?(.+)"
)
_STANDARD = {
    "topic.filter.class": "org.apache.kafka.connect.mirror.DefaultTopicFilter",
    "group.filter.class": "org.apache.kafka.connect.mirror.DefaultGroupFilter",
    "config.property.filter.class": "org.apache.kafka.connect.mirror."
    "DefaultConfigPropertyFilter",
    "forwarding.admin.class": "org.apache.kafka.clients.admin.ForwardingAdmin",
}
_ACKS = ("all", "-1")
_ASSERTION = "sasl.oauthbearer.assertion."


def is_default(rest: str, value: str) -> bool:
    """Whether the key has the value that mirror uses anyway."""
    return (
        _STANDARD.get(rest) == value
        or (rest == "target.topic.creation.enable" and value.lower() == "true")
        or (without_role(rest) == "acks" and value in _ACKS)
    )


def refusal(key: str, rest: str, value: str) -> str:
    """Why a key cannot be ignored; empty if it can."""
    if not value or is_default(rest, value):
        return ""
    if rest.partition(".")[0] in {"transforms", "predicates"}:
        # Records that a transform should mask must not be copied as they are.
        return (
            f"{key}: Connect's transforms are Java classes, which cannot run here; "
            "write a function and name it as transform in a YAML configuration"
        )
    if rest in _STANDARD:
        return (
            f'{key}: "{value}" is a Java class, which cannot run here; use '
            f"{_INSTEAD.get(rest, 'other settings')} for what it does, or remove it"
        )
    if without_role(rest).startswith(_ASSERTION):
        return (
            f"{key}: signed assertions are not supported; use a client's secret or a "
            "token's file, or sasl_token_provider in a YAML file"
        )
    if rest == "target.topic.creation.enable":
        return (
            f"{key}: missing copies are always created; revoke the right to "
            "create topics on the target, or remove this line"
        )
    return ""


_INSTEAD = {
    "topic.filter.class": "topics and topics.exclude",
    "group.filter.class": "groups and groups.exclude",
    "config.property.filter.class": "config.properties.exclude",
}


def reason(rest: str) -> str:
    """Why a key without its owner's prefix is not needed; empty if it is unknown."""
    if found := REASONS.get(rest) or _of_family(rest):
        return found
    bare = without_role(rest)
    return (_CLIENT.get(bare) or _of_family(bare)) if bare != rest else ""


def without_role(rest: str) -> str:
    """A client's key without `producer.` and the like before it."""
    match = _ROLE.fullmatch(rest)
    return match[1] if match else rest


def _of_family(rest: str) -> str:
    return next((text for form, text in _FAMILIES if re.fullmatch(form, rest)), "")
