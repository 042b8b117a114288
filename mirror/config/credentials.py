"""Whether a cluster's credentials fit its protocol, and each other.

Main function: `check`. It sees that nothing is missing, given twice, or of no use: who
gives a password expects that it is used. Files are not looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror.config.values import refusal

if TYPE_CHECKING:
    from mirror.config.cluster_settings import ClusterConfig

_TLS_SETTINGS = (
    *("ssl_ca_file", "ssl_ca_certificates", "ssl_certificate_file", "ssl_key_file"),
    *("ssl_certificate_chain", "ssl_key"),
)


def check(cluster: ClusterConfig) -> None:
    """See that the protocol has what it needs, and nothing that it would not use."""
    protocol = cluster.security_protocol
    passwords = [
        name
        for name in ("sasl_password", "sasl_password_file")
        if getattr(cluster, name) is not None
    ]
    given = [
        *(n for n in ("sasl_mechanism", "sasl_username") if getattr(cluster, n)),
        *passwords,
    ]
    if protocol.startswith("SASL"):
        if len(passwords) > 1:
            raise refusal(
                "sasl_password_file", "the password is given twice", "keep one"
            )
        missing = [
            each for each in ("sasl_mechanism", "sasl_username") if each not in given
        ]
        if not passwords:
            missing.append("sasl_password_file (or sasl_password)")
        if missing:
            raise refusal(
                "security_protocol", f"{protocol} also needs {_and(missing)}", "add it"
            )
    elif given:
        raise refusal(
            given[0],
            f"security_protocol {protocol} would not use it",
            "set security_protocol to SASL_SSL or SASL_PLAINTEXT",
        )
    _check_tls(cluster)


def _check_tls(cluster: ClusterConfig) -> None:
    protocol = cluster.security_protocol
    files = [name for name in _TLS_SETTINGS if getattr(cluster, name) is not None]
    if files and not protocol.endswith("SSL"):
        raise refusal(
            files[0],
            f"security_protocol {protocol} would not use it",
            "set security_protocol to SSL or SASL_SSL",
        )
    for one, other in (
        ("ssl_ca_certificates", "ssl_ca_file"),
        ("ssl_certificate_chain", "ssl_certificate_file"),
    ):
        if one in files and other in files:
            raise refusal(one, f"{other} says this as well", "keep one")
    for one, other in (
        ("ssl_certificate_chain", "ssl_key"),
        ("ssl_key", "ssl_certificate_chain"),
    ):
        if one in files and other not in files:
            raise refusal(one, f"it is of no use without {other}", f"add {other}")
    if "ssl_key_file" in files and "ssl_certificate_file" not in files:
        raise refusal(
            "ssl_key_file", "a key needs its certificate", "add ssl_certificate_file"
        )


def _and(words: list[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if words[1:] else words)
