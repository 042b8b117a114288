"""Explains a failed TLS or SASL handshake in one clear sentence.

Functions: `of_tls` and `of_sasl`, which name the cluster, the setting to check, and the
value it needs. They quote OpenSSL and the broker. They do no I/O, except to read the
dates of our own certificate.
"""

from __future__ import annotations

from datetime import UTC, datetime
import ssl
from typing import TYPE_CHECKING

from mirror.clusters.auth.kerberos import SERVICE
from mirror.clusters.auth.security import own_certificate
from mirror.errors import AuthenticationError

if TYPE_CHECKING:
    from mirror.config.cluster_settings import ClusterConfig

_EXPIRED, _NOT_YET = 10, 9
_ISSUERS = {18, 19, 20, 21}
"""Self-signed, self-signed in the chain, issuer not found, no issuer to verify with."""
_OTHER_HOST = {62, 64}
_NO_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST")
_ABOUT_US = ("CERTIFICATE", "UNKNOWN_CA", "ACCESS_DENIED", "HANDSHAKE_FAILURE")


def of_tls(config: ClusterConfig, host: str, error: ssl.SSLError) -> str:
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


def of_sasl(config: ClusterConfig, where: str, said: str) -> AuthenticationError:
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
