"""The keys of MirrorMaker 2: what mirror serves, and answers to all others.

Each table maps a key to its setting and to a function from the text to what the model
reads, looked up from the settings' traits. There is one for each place that may hold a
key; `properties` knows which overrides which. `answer` is the warning about all other
keys.

Keys of MirrorMaker 2, and of guides to it, that set nothing here: `reason` says why a
key can be ignored, and `refusal` why it cannot: its author expects something that
mirror would not do.

`settle` says how a file names copies, where that is not as its aliases say.
`source.cluster.alias` calls a flow's source something else in the names of copies, and
an empty separator joins alias and topic. What one of mirror's policies does as well is
rewritten so; the rest is refused with what to write.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import permutations
import re
from typing import TYPE_CHECKING, Any

from mirror.config.cluster_settings import ClusterConfig
from mirror.config.mm2 import readers
from mirror.config.schema import FlowConfig
from mirror.config.section import Where, is_list, settings, traits
from mirror.config.service_settings import ServiceConfig
from mirror.config.values import near

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pydantic.fields import FieldInfo

    from mirror.config.document import Findings
    from mirror.config.section import Key


Meaning = tuple[str, Callable[[str], Any]]


def table(where: Where) -> dict[str, Meaning]:
    """The keys that this place may hold, each with how to read its text."""
    return {
        key.name: (
            name,
            key.read or (readers.listed if is_list(info) else readers.text),
        )
        for name, info, key in _declared(where)
    }


def spelled(where: Where) -> dict[str, str]:
    """By setting, today's name of the key that this place may hold for it."""
    found: dict[str, str] = {}
    for name, _, key in _declared(where):
        found.setdefault(name, key.name)
    return found


def _declared(where: Where) -> Iterator[tuple[str, FieldInfo, Key]]:
    for model in (ClusterConfig, FlowConfig, ServiceConfig):
        for name, info in settings(model).items():
            for key in traits(info).mm2:
                if where in key.where:
                    yield name, info, key


CLUSTER = table(Where.CLUSTER)
FLOW = table(Where.FLOW)
FLOW_BELOW_CLUSTER = FROM_SOURCE = table(Where.SOURCE)
FLOW_ONLY = table(Where.ONE_FLOW) | {
    f"source.{key}": meaning for key, meaning in FROM_SOURCE.items()
}
FROM_TARGET = table(Where.TARGET)
TAKEN_AS_MEANT = table(Where.TOP_AS_MEANT)
SERVICE = [
    (key.name, (name, key.read or readers.text))
    for name, _, key in _declared(Where.SERVICE)
]
"""Here one key may set several settings."""
_TOP_ONLY = {"clusters", *(key for key, _ in SERVICE)}
_SERVED = {*CLUSTER, *FLOW, *FLOW_ONLY, *FROM_SOURCE, *FROM_TARGET}
_STORE_TYPES = ("ssl.keystore.type", "ssl.truststore.type")
_CREDENTIALS = {*table(Where.CREDENTIAL), *_STORE_TYPES}
_OF_CLUSTER = {*CLUSTER, *_CREDENTIALS, *FROM_SOURCE, *FROM_TARGET}
_CLUSTER_PREFIX = re.compile(r"((source|target)\.)?cluster\.")

# Right in another format or another place: no misspellings of served ones.
_LOOKALIKES = {"ssl.enabled.protocols", "replication.policy"}


def answer(key: str, rest: str) -> str:
    """The one warning about a key that has no effect here."""
    if place := _place(rest):
        return f"{key}: has no effect here, nor in MirrorMaker 2; write it {place}"
    if rest in FLOW or rest in ALIASES:
        return (
            f"{key}: has no effect with a cluster's alias, nor in MirrorMaker 2; "
            f"write {rest}, or A->B.{rest}"
        )
    if why := reason(rest):
        return f"{key}: not needed, ignored: {why}"
    bare = _CLUSTER_PREFIX.sub("", without_role(rest))
    for name in (bare, f"consumer.{bare}", f"producer.{bare}"):
        if name in _OF_CLUSTER:
            return f"{key}: has no effect here; write it {_with_alias(name)}"
    return f"{key}: unknown, ignored{_near_key(rest)}"


def _place(rest: str) -> str:
    """Where a key has an effect that is served elsewhere; empty for other keys."""
    if rest in FROM_SOURCE or rest in FROM_TARGET:
        return _with_alias(rest)
    if rest in ("use.defaults.from", "enabled"):
        return f"with a flow, as in A->B.{rest}"
    return "without a prefix" if rest in _TOP_ONLY else ""


def _with_alias(name: str) -> str:
    example = "B" if name in FROM_TARGET else "A"
    return f"with a cluster's alias, as in {example}.{name}"


def newest_name(key: str) -> str:
    """The first of the keys that set the same in the same place; itself if none."""
    for known in (FLOW, TAKEN_AS_MEANT):
        if key in known:
            setting, _ = known[key]
            return next(each for each, (name, _) in known.items() if name == setting)
    return key


def _near_key(rest: str) -> str:
    """A misspelling differs by a letter or two; other keys differ by a word."""
    if (bare := rest.strip("\"'")) != rest:
        return f"; without quotes it is {bare}"
    if rest in _LOOKALIKES or "${" in rest:
        return ""
    same_shape = [
        known
        for known in (*_SERVED, *REASONS)
        if known.count(".") == rest.count(".") and abs(len(known) - len(rest)) < 3
    ]
    return near(rest, same_shape, cutoff=0.85)


# ---- keys that set nothing here ----


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

_ANSWERS_OF_CLUSTER = {"bootstrap.servers", "request.timeout.ms"}
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
    **{key: _CLIENT[key] for key in _CLIENT.keys() - _ANSWERS_OF_CLUSTER},
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


# ---- how a file names copies ----


_SOURCE, _TARGET = "source.cluster.alias", "target.cluster.alias"
ALIASES = (_SOURCE, _TARGET)
"""Keys of a connector, also where a cluster is called source or target."""
_SEPARATOR = "replication.policy.separator"
_CLASS = "replication.policy.class"
_IDENTITY = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"
_KEEP = f"to keep names write {_CLASS} = {_IDENTITY}"


def settle(
    settings: Mapping[str, str], aliases: Sequence[str], found: Findings
) -> tuple[dict[str, str], list[str]]:
    """Settings and aliases without the keys that give copies other names than aliases
    and policy do.
    """
    settled = dict(settings)
    called: dict[str, set[str]] = {}
    for source, target in permutations(aliases, 2):
        flow = _Flow(source, target, settings)
        if settings.get(f"{flow.name}.enabled", "").lower() == "true":
            name = flow.get(_SOURCE, source)
            if not _keeps_names(flow, name, settled, found):
                called.setdefault(source, set()).add(name)
            if (other := flow.get(_TARGET, target)) != target:
                found.warnings.append(
                    f"{flow.key(_TARGET)}: not needed, ignored: {target} is not called "
                    f"{other} here, also not in mm2-offset-syncs.{target}.internal"
                )
    for key in settings:
        if key in ALIASES or ("->" in key and key.endswith(ALIASES)):
            del settled[key]
    names = list(aliases)
    for source, others in called.items():
        if others - {source, ""}:
            settled, names = _call(source, others, settled, names, found)
    return settled, names


@dataclass(frozen=True, slots=True)
class _Flow:
    source: str
    target: str
    settings: Mapping[str, str]

    @property
    def name(self) -> str:
        return f"{self.source}->{self.target}"

    def key(self, rest: str) -> str:
        """As the file has it: of the flow, else of all."""
        own = f"{self.name}.{rest}"
        return own if own in self.settings else rest

    def get(self, rest: str, default: str) -> str:
        return self.settings.get(self.key(rest), default)


def _keeps_names(
    flow: _Flow, name: str, settled: dict[str, str], found: Findings
) -> bool:
    """Whether the flow's copies have the names of their topics."""
    separator = flow.get(_SEPARATOR, ".")
    try:
        identity = readers.policy(flow.get(_CLASS, readers.DEFAULT)) == "identity"
    except ValueError:  # where the class is read, it is refused
        if not separator:
            settled.pop(flow.key(_SEPARATOR), None)
        return True
    if not separator:
        settled.pop(flow.key(_SEPARATOR), None)
        if identity or not name:
            settled[f"{flow.name}.{_CLASS}"] = _IDENTITY
            _once(
                f"{flow.key(_SEPARATOR)}: is empty: topics keep their names, as with "
                f"{_IDENTITY}; copies of heartbeats and internal topics have dots in "
                "their names here",
                found.warnings,
            )
            return True
        _once(
            f"{flow.key(_SEPARATOR)}: is empty, so that MirrorMaker 2 calls the copy "
            f"of orders {name}orders; {_KEEP}, else a separator",
            found.problems,
        )
    elif not name and not identity:
        _once(
            f"{flow.key(_SOURCE)}: is empty, so that MirrorMaker 2 calls the copy of "
            f"orders {separator}orders; {_KEEP}",
            found.problems,
        )
    return identity


def _call(
    source: str,
    names: set[str],
    settings: dict[str, str],
    aliases: list[str],
    found: Findings,
) -> tuple[dict[str, str], list[str]]:
    """Call a cluster what its copies are called after."""
    name, *others = sorted(names - {""})
    if others or name in aliases:
        found.problems.append(
            f'{_SOURCE}: copies of {source} are called after "{name}", and mirror '
            "knows a cluster by one name; write that one in clusters and in all keys"
        )
        return settings, aliases
    found.warnings.append(
        f"{_SOURCE}: the cluster {source} is called {name} here, as its copies are; "
        "mirror adopt finds what MirrorMaker 2 has copied with --offsets-topic "
        f"mm2-offsets.{source}.internal"
    )
    starts = {
        f"{source}.": f"{name}.",
        f"{source}->": f"{name}->",
        **{f"{each}->{source}.": f"{each}->{name}." for each in aliases},
    }
    renamed = {}
    for key, value in settings.items():
        start = next((each for each in starts if key.startswith(each)), "")
        renamed[starts.get(start, "") + key.removeprefix(start)] = value
    return renamed, [name if each == source else each for each in aliases]


def _once(text: str, texts: list[str]) -> None:
    if text not in texts:
        texts.append(text)
