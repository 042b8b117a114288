"""The steps before a connection can be used: TCP, TLS, versions, SASL.

Functions, in that order: `open_line`, `negotiate`, `authenticate`, and later
`authenticate_again`. Each raises one clear error that names the cluster and the
address. `Bearer` is SASL OAUTHBEARER (RFC 7628) with the interface of kafka-python's
mechanisms: a broker that refuses a token gives the reason in a response that looks like
a success, and expects one more byte before it sends the error.
"""

from __future__ import annotations

from datetime import UTC, datetime
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
from mirror.clusters.auth import kerberos
from mirror.clusters.auth.kerberos import SERVICE
from mirror.clusters.auth.security import (
    own_certificate,
    sasl_client,
    tls_context,
    uses_sasl,
    uses_tls,
)
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
            f"cluster {config.alias}: {where}: {tls_refusal(config, host, error)}"
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
        why = tls_refusal(config, host, error.__cause__)
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
    return sasl_refusal(config, where, said)


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


# ---- explains a failed TLS or SASL handshake in one clear sentence ----
#
# Functions: `tls_refusal` and `sasl_refusal`, which name the cluster, the setting to
# check, and the value it needs. They quote OpenSSL and the broker. They do no I/O,
# except to read the dates of our own certificate.


_EXPIRED, _NOT_YET = 10, 9
_ISSUERS = {18, 19, 20, 21}
"""Self-signed, self-signed in the chain, issuer not found, no issuer to verify with."""
_OTHER_HOST = {62, 64}
_NO_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST")
_ABOUT_US = ("CERTIFICATE", "UNKNOWN_CA", "ACCESS_DENIED", "HANDSHAKE_FAILURE")


def tls_refusal(config: ClusterConfig, host: str, error: ssl.SSLError) -> str:
    """What went wrong with TLS, and how to fix it."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return _of_certificate(config, host, error)
    reason = getattr(error, "reason", "") or str(error)
    if reason.startswith(_NO_TLS):
        return (
            f"it does not speak TLS ({reason}); security_protocol "
            f"{config.security_protocol} needs a listener with TLS"
        )
    if "ALERT" in reason and any(word in reason for word in _ABOUT_US):
        return _of_ours(config, reason)
    return f"TLS failed: {reason}"


def _of_certificate(
    config: ClusterConfig, host: str, error: ssl.SSLCertVerificationError
) -> str:
    said = error.verify_message
    if error.verify_code in {_EXPIRED, _NOT_YET}:
        return (
            f"its certificate is not valid now: {said}; the broker needs a new one, "
            "no setting here can fix that"
        )
    if error.verify_code in _OTHER_HOST:
        return (
            f"its certificate is for another host: {said}; bootstrap_servers (and the "
            "brokers' advertised.listeners) must use a name in the certificate, not "
            f"{host}; ssl_check_hostname false skips this check"
        )
    if error.verify_code in _ISSUERS:
        trusted = (
            f"ssl_ca_file {config.ssl_ca_file}"
            if config.ssl_ca_file
            else "ssl_ca_certificates"
            if config.ssl_ca_certificates
            else "ssl_ca_file (not set: the system's certificates are used)"
        )
        return (
            f"its certificate is not trusted: {said}; {trusted} must contain the "
            "CA that signed it"
        )
    return f"its certificate is not trusted: {said}"


def _of_ours(config: ClusterConfig, reason: str) -> str:
    ours = own_certificate(config)
    if ours is None:
        return (
            f"it requires a client certificate ({reason}); ssl_certificate_file must "
            "name one that it trusts"
        )
    file = config.ssl_certificate_file
    where = f"ssl_certificate_file {file}" if file else "ssl_certificate_chain"
    now = datetime.now(UTC)
    wrong = "must be signed by a CA in the broker's trust store"
    if now > ours.not_valid_after_utc:
        wrong = f"expired {ours.not_valid_after_utc:%Y-%m-%d %H:%M} UTC; renew it"
    elif now < ours.not_valid_before_utc:
        wrong = f"is not valid before {ours.not_valid_before_utc:%Y-%m-%d %H:%M} UTC"
    return (
        f"it refused our certificate ({reason}); {where}, of "
        f"{ours.subject.rfc4514_string()}, {wrong}"
    )


def sasl_refusal(config: ClusterConfig, where: str, said: str) -> AuthenticationError:
    """The broker refused us. It does not distinguish an unknown user from a wrong
    password, so the message names both.
    """
    mechanism = config.sasl_mechanism
    if mechanism == "OAUTHBEARER":
        source = (
            "what sasl_token_provider returns"
            if config.sasl_token_provider
            else "what sasl_oauthbearer_token_endpoint_url gives"
        )
        return AuthenticationError(
            f"{where} refused our token: {said}; {source} must be a token that the "
            "brokers accept: check its issuer, audience, scope and expiry"
        )
    if mechanism == "GSSAPI":
        service = config.sasl_kerberos_service_name or SERVICE
        return AuthenticationError(
            f"{where} refused our Kerberos ticket: {said}; the broker must have the "
            f"current key of its principal {service}/HOST, and its rules must know "
            f"{config.sasl_kerberos_principal}: its log says more"
        )
    password = "sasl_password" + ("_file" if config.sasl_password_file else "")
    return AuthenticationError(
        f"{where} refused {config.sasl_username!r} with {mechanism}: {said}; "
        f"sasl_username and {password} must be those of a user of this cluster"
    )
