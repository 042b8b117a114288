"""Checks of one cluster: does it answer, is it suitable, does it accept us?

Main function: `findings`. `of_flow` checks what flows need of their clusters,
`held_rights` what we may do there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror.checks.finding import fail, ok, some, warn
from mirror.clusters.admin import brokers
from mirror.errors import AuthenticationError, AuthorizationError, ClusterError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from mirror.checks.finding import Finding
    from mirror.checks.reached import Reached
    from mirror.clusters.cluster import Cluster
    from mirror.config.cluster_settings import ClusterConfig
    from mirror.config.schema import FlowConfig

REPLICAS, IN_SYNC = "default.replication.factor", "min.insync.replicas"
LARGEST = "message.max.bytes"
_LONGEST = "transaction.max.timeout.ms"
_FORMAT = "log.message.format.version"
_MANAGED = {"sync_topic_configs": "topic configs", "sync_topic_acls": "ACLs"}
"""What some services manage outside of Kafka's protocol, by the setting for it."""
_SETTINGS = (REPLICAS, IN_SYNC, LARGEST, _LONGEST, _FORMAT)


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
