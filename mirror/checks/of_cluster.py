"""Checks of one cluster: does it answer, is it suitable, does it accept us?

Main type: `Reached`, a context manager that connects to every cluster of a
configuration's enabled flows at the same time, and as every user that their tasks log
in as. A cluster that does not answer costs its timeout once, and delays no other.
Main functions: `findings`; `right_findings`, of the rights that we have there; and
`own_topic_findings`, of mirror's own topics. `of_flow` checks what flows need of their
clusters.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
import contextlib
from itertools import chain, groupby
from typing import TYPE_CHECKING, Self

from mirror.checks.finding import fail, ok, some, warn
from mirror.checks.permissions.rights import commands, principal
from mirror.checks.permissions.table import LITERAL, Extent, Operation, ResourceKind
from mirror.clusters import codes
from mirror.clusters.admin import acls, allowed, brokers
from mirror.clusters.admin.acls import NoAuthorizerError
from mirror.clusters.cluster import Cluster
from mirror.clusters.reach import Reach
from mirror.clusters.wire.connection import Connection
from mirror.config import own_topics
from mirror.config.schema import login_ends
from mirror.errors import (
    AuthenticationError,
    AuthorizationError,
    ClusterError,
    UnsupportedBrokerError,
)
from mirror.topics import guarding

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from mirror.checks.finding import Finding
    from mirror.checks.permissions.rights import Right
    from mirror.config.cluster_settings import ClusterConfig
    from mirror.config.schema import FlowConfig, MirrorConfig


REPLICAS, IN_SYNC = "default.replication.factor", "min.insync.replicas"
LARGEST = "message.max.bytes"
_LONGEST = "transaction.max.timeout.ms"
_FORMAT = "log.message.format.version"
_MANAGED = {"sync_topic_configs": "topic configs", "sync_topic_acls": "ACLs"}
"""What some services manage outside of Kafka's protocol, by the setting for it."""
_SETTINGS = (REPLICAS, IN_SYNC, LARGEST, _LONGEST, _FORMAT)
_CLIENT = "mirror.check"
_BROKERS_AT_ONCE = 16


class Reached(Reach):
    """Clusters by alias, and by login, all connected when it is entered."""

    def __init__(self, config: MirrorConfig) -> None:
        wanted = dict.fromkeys(
            alias
            for flow in config.flows.values()
            if flow.enabled
            for alias in chain(*login_ends(flow))
            if alias is not None
        )
        configs = {alias: config.clusters[alias] for alias in wanted}
        super().__init__(configs, client_id=_CLIENT)

    def __enter__(self) -> Self:
        def connect(alias: str) -> None:
            with contextlib.suppress(ClusterError):  # `failures` has it
                self(alias)

        with ThreadPoolExecutor(max_workers=max(1, len(self._configs))) as pool:
            list(pool.map(connect, self._configs))
        return self

    @property
    def clusters(self) -> dict[str, Cluster]:
        """Those that answered."""
        answers = ((alias, self._reached[alias]) for alias in self._configs)
        return {alias: each for alias, each in answers if isinstance(each, Cluster)}

    @property
    def failures(self) -> dict[str, ClusterError]:
        """Why the others did not."""
        answers = ((alias, self._reached[alias]) for alias in self._configs)
        return {alias: e for alias, e in answers if isinstance(e, ClusterError)}

    def silent_brokers(self, alias: str) -> dict[int, ClusterError]:
        """Brokers of a cluster that do not answer at their advertised address."""
        config, addresses = self._configs[alias], self(alias).addresses

        def ask(node: int) -> ClusterError | None:
            try:
                Connection(config, *addresses[node], client_id=_CLIENT).close()
            except ClusterError as error:
                return error
            return None

        with ThreadPoolExecutor(max_workers=_BROKERS_AT_ONCE) as pool:
            answers = dict(zip(addresses, pool.map(ask, addresses), strict=True))
        return {node: error for node, error in answers.items() if error is not None}


def unreached(config: ClusterConfig, error: ClusterError) -> Finding:
    """The finding for a cluster that did not answer, or refused us."""
    place = f"clusters.{config.alias}"
    servers = ",".join(config.bootstrap_servers)
    reason = str(error).replace(f"cluster {config.alias}: ", "")
    if not reason.startswith(servers):
        reason = f"{servers}: {reason}"
    fix = (
        f"check the credentials and certificates of {place}, and the brokers' log"
        if isinstance(error, AuthenticationError)
        else "check that the address is right, that brokers run there and that this "
        "machine can reach them"
    )
    return fail(
        f"cluster {config.alias}", "connection",
        f"{place}.bootstrap_servers: {reason}", fix,
    )  # fmt: skip


def broker_settings(cluster: Cluster) -> tuple[dict[str, str], str]:
    """The settings that matter here; or why they are not known.

    Raises:
        ClusterError: the cluster does not answer.
    """
    try:
        return brokers.settings(cluster, _SETTINGS), ""
    except AuthorizationError as error:
        return {}, str(error)


def findings(
    config: ClusterConfig,
    reached: Reached,
    flows: Sequence[FlowConfig],
    settings: Mapping[str, str],
) -> list[Finding]:
    """The findings for a cluster that answers.

    `flows`: those that write to it; `settings`: its brokers', as far as known.

    Raises:
        ClusterError: it no longer answers.
    """
    cluster = reached(config.alias)
    where = f"cluster {config.alias}"
    count = cluster.brokers
    some_brokers = "1 broker" if count == 1 else f"{count} brokers"
    found = [
        ok(where, "connection", f"{some_brokers}, cluster id {cluster.cluster_id}")
    ]
    silent = reached.silent_brokers(config.alias)
    found += [
        fail(
            where, "brokers", f"broker {node}: {error}",
            "this machine, and Spark's executors, must reach every broker at the "
            "address in its advertised.listeners",
        )
        for node, error in silent.items()
    ]  # fmt: skip
    if not silent:
        found.append(ok(where, "brokers", "each answers at its advertised address"))
    found += security(config, where)
    found += _version(cluster, where)
    if flows:
        found += _format(where, settings)
        found.append(_transactions(cluster, where, flows, settings))
        found += _same_offsets(cluster, where, flows)
        found += _unoffered(cluster, where, flows)
    return found


def security(config: ClusterConfig, where: str) -> Iterator[Finding]:
    """What could be read, or who could pose as a broker, on the way to it."""
    protocol, mechanism = config.security_protocol, config.sasl_mechanism
    shown = protocol if mechanism is None else f"{protocol}, {mechanism}"
    place = f"clusters.{config.alias}"
    endpoint = config.sasl_oauthbearer_token_endpoint_url or ""
    shows = {"PLAIN": "password", "OAUTHBEARER": "token"}.get(mechanism or "")
    if protocol == "SASL_PLAINTEXT" and shows:
        yield warn(
            where, "security", f"{shown}: the {shows} is sent in clear text",
            f"set {place}.security_protocol to SASL_SSL"
            + (", or use SCRAM" if mechanism == "PLAIN" else ""),
        )  # fmt: skip
    elif protocol.endswith("SSL") and not config.ssl_check_hostname:
        yield warn(
            where, "security", f"{shown}: a server with any trusted certificate can "
            "pose as a broker", f"turn {place}.ssl_check_hostname on",
        )  # fmt: skip
    else:
        yield ok(where, "security", shown)
    if endpoint.startswith("http:"):
        yield warn(
            where, "token endpoint",
            f"{place}.sasl_oauthbearer_token_endpoint_url: the client secret is sent, "
            "and the token comes, in clear text", "use the endpoint's https:// address",
        )  # fmt: skip


def _version(cluster: Cluster, where: str) -> Iterator[Finding]:
    found = brokers.version(cluster)
    shown = ".".join(map(str, found))
    oldest = ".".join(map(str, brokers.OLDEST))
    if found < brokers.OLDEST:
        yield fail(
            where, "version", f"Kafka {shown}, judging by its API versions",
            f"mirror supports {oldest} and newer: upgrade the brokers",
        )  # fmt: skip
        return
    yield ok(where, "version", f"Kafka {shown} or newer; supported from {oldest}")
    for text in brokers.missing(cluster):
        if text == brokers.NO_TOPIC_IDS:
            yield warn(
                where, "older brokers", text,
                "upgrade the brokers, or pause flows before a topic is created again",
            )  # fmt: skip
        else:
            yield ok(where, "older brokers", text)


def _format(where: str, settings: Mapping[str, str]) -> Iterator[Finding]:
    """Copies are written in format v2, by idempotent producers."""
    format_ = settings.get(_FORMAT, "")
    if format_.startswith(("0.8", "0.9", "0.10")):
        yield fail(
            where, "message format",
            f"{_FORMAT} is {format_}: brokers refuse idempotent and transactional "
            "writes to topics of this format",
            f"raise {_FORMAT} to 0.11.0 or more, and message.format.version of topics "
            "that set it",
        )  # fmt: skip


def _unoffered(
    cluster: Cluster, where: str, flows: Sequence[FlowConfig]
) -> Iterator[Finding]:
    """What a service does not offer that flows are to do on it."""
    for setting, what in _MANAGED.items():
        lacks = brokers.lacking(cluster, setting)
        names = [each.name for each in flows if getattr(each, setting)]
        if lacks and names:
            yield warn(
                where, what, f"the brokers do not offer {' or '.join(lacks)}",
                f"set {setting}: false for {some(names)}, and manage them elsewhere",
            )  # fmt: skip


def _transactions(
    cluster: Cluster,
    where: str,
    flows: Sequence[FlowConfig],
    settings: Mapping[str, str],
) -> Finding:
    exact = [flow for flow in flows if flow.exactly_once]
    if not exact:
        return ok(where, "transactions", "not used, since exactly_once is off")
    if lacks := brokers.lacking(cluster, "exactly_once"):
        return fail(
            where, "transactions", f"the brokers do not offer {' or '.join(lacks)}",
            f"set exactly_once: false for {some([each.name for each in exact])}, which "
            "then may copy records twice after a failure",
        )  # fmt: skip
    longest = int(settings.get(_LONGEST, "0"))
    over = [
        flow.name
        for flow in exact
        if longest and flow.transaction_timeout_seconds * 1000 > longest
    ]
    if over:
        return fail(
            where, "transactions",
            f"transaction_timeout_seconds of {some(over)} is more than the brokers' "
            f"{_LONGEST}, {longest}",
            f"set it to at most {longest // 1000}, or raise {_LONGEST}",
        )  # fmt: skip
    kind = (
        "v2 (KIP-890)"
        if brokers.has_transactions_v2(cluster)
        else "v1; v2 comes with Kafka 4.0 and transaction.version 2"
    )
    return ok(where, "transactions", kind)


def _same_offsets(
    cluster: Cluster, where: str, flows: Sequence[FlowConfig]
) -> Iterator[Finding]:
    same = [flow.name for flow in flows if flow.offsets == "same"]
    if same and (lacks := brokers.lacking(cluster, "offsets")):
        yield fail(
            where, "same offsets",
            f"the brokers do not offer {' or '.join(lacks)}, as Kafka since 2.8",
            f"set offsets: translated for {some(same)}",
        )  # fmt: skip
    elif same:
        yield ok(
            where, "same offsets",
            "possible; mirror plan says which copies have the source's offsets",
        )  # fmt: skip


# ---- which of the required rights we have ----
#
# `permissions` says what is required. A right for a name prefix is checked for the
# names that exist now, or for one that could.


RIGHTS = "rights"
_COULD_BE = "mirror-check"
_WORDS = {
    ResourceKind.TOPIC: "topic",
    ResourceKind.GROUP: "group",
    ResourceKind.TRANSACTIONAL_ID: "transactional id",
}


def right_findings(
    cluster: Cluster,
    config: MirrorConfig,
    needed: Sequence[Right],
    copied: Mapping[str, Iterable[str]],
) -> list[Finding]:
    """One for each resource to which rights are missing; a single one if none is.

    `needed`: by the user that is connected; `copied`: by flow, its topics on this
    cluster, sources or copies.

    Raises:
        ClusterError: the cluster does not answer.
    """
    where = f"cluster {cluster.alias}"
    if without := _without_acls(cluster):
        for pair in config.recovery.values():
            if cluster.alias in pair.members and pair.fence == "acl":
                return [
                    fail(
                        where, RIGHTS,
                        "no authorizer, so ACLs keep no one from writing, and "
                        f"recovery.{pair.name}.fence is acl",
                        "set it to hook or confirmed", mistake=True,
                    )
                ]  # fmt: skip
        return [ok(where, RIGHTS, without)]
    asked = _AskedRights(cluster, needed, copied)
    found, untold = [], 0
    for _, rights in groupby(
        needed, key=lambda each: (each.login, each.kind, each.extent)
    ):
        missing: dict[Right, list[str]] = {}
        for right in rights:
            answers = {name: asked.may(right, name) for name in asked.names[right]}
            refused = [name for name, held in answers.items() if held is False]
            untold += not refused and None in answers.values()
            if refused:
                missing[right] = refused
        if missing:
            found.append(_missing(where, config, missing))
    if not found:
        # WRITE on a transactional id shows only when it is used.
        not_told = f"; brokers do not tell about {untold} others" if untold else ""
        detail = f"{len(needed) - untold} needed, all granted{not_told}"
        found.append(ok(where, RIGHTS, detail))
    return found


def _missing(
    where: str, config: MirrorConfig, missing: Mapping[Right, list[str]]
) -> Finding:
    """About one resource, by each right to it the names that lack it."""
    right = next(iter(missing))
    names = list(dict.fromkeys(name for each in missing.values() for name in each))
    features = dict.fromkeys(name for each in missing for name in each.features)
    return fail(
        where, RIGHTS,
        f"{principal(config.clusters[right.login])} has no "
        f"{', '.join(each.operation for each in missing)} on {_what(right, names)}, "
        f"needed for {', '.join(features)}",
        commands(config, missing, {})[0],
    )  # fmt: skip


def _without_acls(cluster: Cluster) -> str:
    """Why there are no ACLs to go by, in words; empty if there are."""
    try:
        acls.describe(cluster)
    except NoAuthorizerError as error:
        if isinstance(error.__cause__, UnsupportedBrokerError):
            return "not checked: the brokers do not show them"
        return "no authorizer: everything is allowed"
    except AuthorizationError:
        pass  # it refuses us, so it has some
    return ""


def _what(right: Right, missing: list[str]) -> str:
    if right.kind is ResourceKind.CLUSTER:
        return "the cluster"
    if right.extent.pattern != LITERAL or right.extent.name == "*":
        names = "" if missing == [_could_be(right)] else f" ({some(missing)})"
        return f"{_WORDS[right.kind]} {right.extent}{names}"
    return f"{_WORDS[right.kind]} {right.extent}"


def _could_be(right: Right) -> str:
    start = "" if right.extent.name == "*" else right.extent.name
    return f"{start}{_COULD_BE}"


class _AskedRights:
    """The brokers' answers, asked once for all rights."""

    def __init__(
        self,
        cluster: Cluster,
        needed: Sequence[Right],
        copied: Mapping[str, Iterable[str]],
    ) -> None:
        self._cluster = cluster
        self.names = {right: _names(right, copied) for right in needed}
        by_kind: dict[ResourceKind, dict[str, None]] = {
            kind: {} for kind in ResourceKind
        }
        for right, names in self.names.items():
            by_kind[right.kind].update(dict.fromkeys(names))
        self._of_cluster = allowed.of_cluster(cluster)
        topics = list(by_kind[ResourceKind.TOPIC])
        self._of_topics = allowed.of_topics(cluster, topics)
        self._there = {
            name
            for name, topic in cluster.topics(topics).items()
            if topic.error == codes.NONE
        }
        self._of_groups = allowed.of_groups(cluster, by_kind[ResourceKind.GROUP])
        self._sees = {
            name: allowed.sees_transactional_id(cluster, name)
            for name in by_kind[ResourceKind.TRANSACTIONAL_ID]
        }

    def may(self, right: Right, name: str) -> bool | None:
        """None: brokers do not tell."""
        if right.kind is ResourceKind.TRANSACTIONAL_ID:
            return self._sees.get(name)
        told = {
            ResourceKind.CLUSTER: {name: self._of_cluster},
            ResourceKind.TOPIC: self._of_topics,
            ResourceKind.GROUP: self._of_groups,
        }[right.kind].get(name)
        if told is None:
            return None
        if right.kind is ResourceKind.TOPIC and right.operation is Operation.CREATE:
            everywhere = self._of_cluster or frozenset()
            return (
                name in self._there
                or right.operation in told
                or right.operation in everywhere
            )
        return right.operation in told


def _names(right: Right, copied: Mapping[str, Iterable[str]]) -> tuple[str, ...]:
    """The names to ask about."""
    extent = right.extent
    if right.kind is ResourceKind.CLUSTER or (
        extent.pattern == LITERAL and extent.name != "*"
    ):
        return (extent.name,)
    if right.kind is ResourceKind.TRANSACTIONAL_ID:
        return (f"{extent.name}0.0",)
    found: tuple[str, ...] = ()
    if right.kind is ResourceKind.TOPIC:
        found = tuple(
            dict.fromkeys(
                name
                for flow in right.flows
                for name in copied.get(flow, ())
                if extent.covers(Extent(name=name))
            )
        )
    return found or (_could_be(right),)


# ---- may one of mirror's own topics lose what mirror keeps there? ----
#
# What a run would correct is a warning, what mirror cannot correct a failure, with the
# command that does.


OWN_TOPICS = "own topics"


def own_topic_findings(
    cluster: Cluster, config: MirrorConfig, flows: Iterable[FlowConfig]
) -> list[Finding]:
    """Those of the topics of these flows that are on the cluster.

    Raises:
        ClusterError: it no longer answers.
    """
    topics = {
        each.name: each
        for flow in flows
        for each in own_topics.of_flow(config, flow)
        if each.alias == cluster.alias
    }
    seen = guarding.look(cluster, tuple(topics.values()))
    refused = guarding.alter(cluster, seen.wrong, validate_only=True)
    where = f"cluster {cluster.alias}"
    left = (*guarding.refusals(cluster, refused).values(),
            *guarding.beyond(cluster, seen))  # fmt: skip
    found = [fail(where, OWN_TOPICS, each.text, each.remedy) for each in left]
    found += [
        warn(
            where, OWN_TOPICS, f"{each.topic.name}: {each.config} is {each.now}",
            f"a run sets {each.config} to {each.then}",
        )
        for each in seen.wrong
        if each not in refused
    ]  # fmt: skip
    return found or [ok(where, OWN_TOPICS, "none may lose what mirror keeps there")]
