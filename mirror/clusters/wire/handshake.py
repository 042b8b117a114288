"""The steps before a connection can be used: TCP, TLS, versions, SASL.

Functions, in that order: `open_line`, `negotiate`, `authenticate`, and later
`authenticate_again`. Each raises one clear error that names the cluster and the
address. `Bearer` is SASL OAUTHBEARER (RFC 7628) with the interface of kafka-python's
mechanisms: a broker that refuses a token gives the reason in a response that looks like
a success, and expects one more byte before it sends the error.
"""

from __future__ import annotations

import json
import socket
import ssl
import time
from typing import TYPE_CHECKING, Any

from kafka.protocol.admin import (
    DescribeAclsRequest,
    DescribeClusterRequest,
    DescribeConfigsRequest,
    DescribeGroupsRequest,
    DescribeTransactionsRequest,
    ListGroupsRequest,
    ListTransactionsRequest,
)
from kafka.protocol.consumer import (
    FetchRequest,
    ListOffsetsRequest,
    OffsetFetchRequest,
    OffsetForLeaderEpochRequest,
)
from kafka.protocol.metadata import (
    ApiVersionsRequest,
    FindCoordinatorRequest,
    MetadataRequest,
)
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

from mirror.clusters import codes
from mirror.clusters.auth import kerberos, refusals
from mirror.clusters.auth.security import sasl_client, tls_context, uses_sasl, uses_tls
from mirror.clusters.wire.line import Line, TlsLine
from mirror.errors import (
    MALFORMED,
    AuthenticationError,
    ClusterChangedError,
    UnreachableError,
)
from mirror.patience import left

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirror.clusters.wire.connection import Connection
    from mirror.config.cluster_settings import ClusterConfig


CONNECT_SECONDS = 10.0
"""For TCP, as `socket.connection.setup.timeout.ms` of Kafka's clients."""
_RENEW_AT = 0.8
_AGAIN_SECONDS = 1.1
"""Brokers refuse a client that authenticates twice within a second."""


def open_line(
    config: ClusterConfig, host: str, port: int, *, seconds: float = CONNECT_SECONDS
) -> Line:
    """Connect, with TLS where the cluster uses it; TCP may take so many `seconds`.

    Raises:
        UnreachableError: nothing answers at this address in time.
        AuthenticationError: one side does not accept the other's certificate.
    """
    where = f"{host}:{port}"
    timeout = config.request_timeout_seconds
    try:
        seconds = left(min(timeout, seconds))
        plain = socket.create_connection((host, port), seconds)
    except OSError as error:
        raise UnreachableError(
            f"cluster {config.alias}: {where} does not answer: {error}"
        ) from error
    # The kernel sizes the buffers: one with a fixed size no longer grows with the
    # round trip, and is cut to a system limit that is far too small for a WAN.
    plain.settimeout(timeout)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if not uses_tls(config):
        return Line(plain)
    try:
        return TlsLine(plain, tls_context(config), host=host)
    except AuthenticationError:
        plain.close()
        raise
    except (ssl.SSLEOFError, ssl.SSLZeroReturnError, ConnectionError) as error:
        plain.close()
        raise UnreachableError(
            f"cluster {config.alias}: {where} ended the TLS handshake (does its "
            f"listener speak TLS, as security_protocol {config.security_protocol} "
            f"says?): {error}"
        ) from error
    except ssl.SSLError as error:
        plain.close()
        raise AuthenticationError(
            f"cluster {config.alias}: {where}: {refusals.of_tls(config, host, error)}"
        ) from error
    except OSError as error:
        plain.close()
        raise UnreachableError(
            f"cluster {config.alias}: {where} did not finish the TLS handshake: {error}"
        ) from error


def negotiate(
    connection: Connection, config: ClusterConfig, host: str
) -> tuple[dict[int, tuple[int, int]], dict[str, int]]:
    """The versions of each request that a broker speaks, and the cluster's features.

    Raises:
        AuthenticationError: the broker does not trust our certificate.
    """
    request = ApiVersionsRequest(
        client_software_name="mirror", client_software_version="1"
    )
    request.API_VERSION = 3
    try:
        answer = connection.send_as_is(request).result()
    except UnreachableError as error:
        # TLS 1.3: the broker's verdict on our certificate comes with its first bytes.
        if not isinstance(error.__cause__, ssl.SSLError):
            raise
        why = refusals.of_tls(config, host, error.__cause__)
        raise AuthenticationError(
            f"cluster {config.alias}: {connection.address}: {why}"
        ) from error
    if answer.error_code == codes.UNSUPPORTED_VERSION:
        request = ApiVersionsRequest()
        request.API_VERSION = 0
        answer = connection.send_as_is(request).result()
    if answer.error_code:
        raise codes.error_for(answer.error_code, f"versions of {connection.address}")
    versions = {
        key.api_key: (key.min_version, key.max_version) for key in answer.api_keys
    }
    features = {
        feature.name: feature.max_version_level
        for feature in getattr(answer, "finalized_features", None) or ()
    }
    return versions, features


def authenticate(
    connection: Connection, config: ClusterConfig, host: str
) -> float | None:
    """Authenticate, if the cluster requires it.

    Returns when to authenticate again, in monotonic seconds; None for never. KIP-368: a
    broker closes a connection that outlives its session, unless it authenticates again
    before; requests may be in flight on it.

    Raises:
        AuthenticationError: the broker does not offer the mechanism, or refuses us.
    """
    if not uses_sasl(config):
        return None
    where = f"cluster {config.alias}: {connection.address}"
    client: Any
    if config.sasl_mechanism == "OAUTHBEARER":
        from mirror.clusters.auth import tokens  # noqa: PLC0415  rarely needed

        client = Bearer(tokens.token_of(config), config.sasl_oauthbearer_extensions)
    elif config.sasl_mechanism == "GSSAPI":
        client = kerberos.exchange(config, host, where)
    else:
        client = sasl_client(config, host)
    handshake = SaslHandshakeRequest(mechanism=config.sasl_mechanism or "")
    handshake.API_VERSION = 1
    offered = connection.send_as_is(handshake).result()
    if offered.error_code:
        others = ", ".join(offered.mechanisms) or (
            "none: its listener does not use SASL, unlike security_protocol "
            f"{config.security_protocol}"
        )
        raise AuthenticationError(
            f"{where} does not offer sasl_mechanism {config.sasl_mechanism}; "
            f"it offers {others}"
        )
    answer = None
    while not client.is_done():
        request = SaslAuthenticateRequest(auth_bytes=client.auth_bytes())
        answer = connection.call(request)
        if answer.error_code:
            said = getattr(client, "said", "") or answer.error_message
            raise _refused(config, where, said or codes.name_of(answer.error_code))
        try:
            client.receive(answer.auth_bytes)
        except (ValueError, KeyError) as error:
            raise _refused(config, where, str(error)) from error
    lifetime = getattr(answer, "session_lifetime_ms", 0) or 0
    if not lifetime:
        return None
    return time.monotonic() + max(lifetime / 1000 * _RENEW_AT, _AGAIN_SECONDS)


def authenticate_again(connection: Connection) -> None:
    """On the same connection, so that nothing overtakes the requests in flight."""
    idle = connection.idle
    try:
        connection.authenticate()
    except UnreachableError:
        if not idle:
            raise
        # The broker closed it while it was idle: the caller opens a new one.


def _refused(config: ClusterConfig, where: str, said: str) -> AuthenticationError:
    if config.sasl_mechanism == "OAUTHBEARER":
        from mirror.clusters.auth import tokens  # noqa: PLC0415  rarely needed

        tokens.forget(config)
    if config.sasl_mechanism == "GSSAPI":
        kerberos.forget(config)
    return refusals.of_sasl(config, where, said)


_SEPARATOR = "\x01"
_MOST_WORDS = 200
_MOST_SAID = 1 << 16
"""Bytes of what a broker says about a token."""


class Bearer:
    """One OAUTHBEARER exchange."""

    def __init__(self, token: str, extensions: Mapping[str, str]) -> None:
        pairs = [f"auth=Bearer {token}"]
        pairs += [f"{name}={value}" for name, value in extensions.items()]
        self._next = ("n,," + "".join(f"{_SEPARATOR}{pair}" for pair in pairs)).encode()
        self._next += (_SEPARATOR * 2).encode()
        self._done = False
        self.said = ""
        """Why the broker refused the token; empty if it did not."""

    def auth_bytes(self) -> bytes:
        return self._next

    def receive(self, answer: bytes) -> None:
        if not answer:
            if self.said:
                raise ValueError(f"the token was refused: {self.said}")
            self._done = True
            return
        self.said = _words(answer)
        self._next = _SEPARATOR.encode()

    def is_done(self) -> bool:
        return self._done


def _words(answer: bytes) -> str:
    text = answer[:_MOST_SAID].decode("utf-8", errors="replace")
    try:
        said = json.loads(text)
    except MALFORMED:
        said = None
    if isinstance(said, dict):
        text = ", ".join(
            str(said[key])
            for key in ("status", "error_description", "scope")
            if said.get(key)
        )
    return " ".join(text.split())[:_MOST_WORDS] or "without a reason"


# ---- which cluster a connection leads to: later it may be another one ----
#
# Functions: `question`, sent over every new connection to a cluster whose id is
# known, and `require`, which checks the response. Until then only `QUESTIONS` may
# be sent: they are answered after that response, and they change nothing on the
# wrong cluster.


QUESTIONS = frozenset(
    request.API_KEY
    for request in (
        DescribeAclsRequest, DescribeClusterRequest, DescribeConfigsRequest,
        DescribeGroupsRequest, DescribeTransactionsRequest, FetchRequest,
        FindCoordinatorRequest, ListGroupsRequest, ListOffsetsRequest,
        ListTransactionsRequest, MetadataRequest, OffsetFetchRequest,
        OffsetForLeaderEpochRequest,
    )
)  # fmt: skip
"""The API keys of requests that change nothing, so that they may be sent twice."""


def question() -> MetadataRequest:
    """It needs no permission and names no topic."""
    return MetadataRequest(topics=[], allow_auto_topic_creation=False)


def require(expected: str, found: str | None, *, alias: str, where: str) -> None:
    """Check the cluster id in a response; a broker that gives none is accepted.

    Raises:
        ClusterChangedError: it is not the expected one.
    """
    if found and found != expected:
        raise ClusterChangedError(
            f"cluster {alias}: {where} leads to the cluster with id {found}, but "
            f"{alias} is the one with id {expected}: nothing is read from {found} or "
            f"written to it. Point the address at {expected} again; if {found} "
            "replaces it on purpose, restart mirror and use `mirror flow reset`"
        )
