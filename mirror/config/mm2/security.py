"""Credentials of Java clients, turned into a cluster's settings.

Main function: `translate`. It reads login modules for PLAIN and SCRAM, `tokens` that
for OAUTHBEARER, `tickets` that for Kerberos; `clusters` opens the stores. What a
connection needs and mirror cannot do is a problem: going on would only fail later, or
trust the wrong certificates. Messages name keys and classes, never passwords.
"""

from __future__ import annotations

from dataclasses import dataclass, field
import re
from typing import TYPE_CHECKING, Any

from mirror.config.mm2 import tickets as mm2_tickets
from mirror.config.mm2 import tokens as mm2_tokens
from mirror.config.mm2.keys import spelled, table
from mirror.config.traits import Where

if TYPE_CHECKING:
    from collections.abc import Mapping

_SECURITY = "security.protocol"
_MECHANISM = "sasl.mechanism"
_JAAS = "sasl.jaas.config"
_SERVICE = "sasl.kerberos.service.name"
_DEFAULT = "GSSAPI"
"""Java's mechanism, if a file names none."""
_OF_ONE = {"sasl.oauthbearer.": "OAUTHBEARER", "sasl.kerberos.": "GSSAPI"}
"""Keys that only one mechanism uses."""
_MODULES = (
    *("PlainLoginModule", "ScramLoginModule", mm2_tickets.MODULE),
    "OAuthBearerLoginModule",
)
_AMAZON = "IAMLoginModule"
_OPTION = re.compile(
    r"""([\w.-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'([^']*)'|([^\s;"']+))"""
)

_KEYS = table(Where.CREDENTIAL)
SPELLED = spelled(Where.CREDENTIAL)
"""The key that each setting comes from."""

_STORES = {"truststore": "ssl_ca_file", "keystore": "ssl_certificate_file"}
_READABLE = ("JKS", "PKCS12", "PEM")
_SERVED = {
    *_KEYS,
    *(f"ssl.{store}.{part}" for store in _STORES for part in ("type", "password")),
}


@dataclass(slots=True)
class Translation:
    """A cluster's settings, the keys they came from, warnings and problems."""

    settings: dict[str, Any] = field(default_factory=dict)
    spelled: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def serves(key: str) -> bool:
    """Whether `translate` handles this key, if only to refuse it."""
    return key in _SERVED


def translate(given: Mapping[str, str], names: Mapping[str, str]) -> Translation:
    """Translate one cluster's keys; `names` are the keys as they were written."""
    found = Translation()
    protocol = given.get(_SECURITY, "PLAINTEXT").upper()
    mechanism = given.get(_MECHANISM, _DEFAULT).upper()
    for key in given:
        used = (
            key == _SECURITY
            or (key.startswith("sasl.") and protocol.startswith("SASL_"))
            or (key.startswith("ssl.") and protocol.endswith("SSL"))
        )
        if not used:
            found.warnings.append(f"{names[key]}: not used by {protocol}, ignored")
            continue
        if any(key.startswith(p) and mechanism != m for p, m in _OF_ONE.items()):
            found.warnings.append(f"{names[key]}: not used by {mechanism}, ignored")
        elif key == _JAAS:
            _login(given, names[key], found)
        elif key.endswith("store.location"):
            _store(key.split(".")[1], given, names, found)
        elif key in _KEYS:
            setting, convert = _KEYS[key]
            _put(setting, convert(given[key]), names[key], found)
    return found


def _login(given: Mapping[str, str], name: str, found: Translation) -> None:
    value = given[_JAAS]
    module = value.split(maxsplit=1)[0].rpartition(".")[2] if value.strip() else ""
    if module == _AMAZON:
        found.problems.append(
            f"{name}: {_AMAZON} is a Java class of Amazon's; a YAML file can name its "
            "Python twin: sasl_mechanism: OAUTHBEARER with sasl_token_provider: "
            "aws-msk-iam and sasl_token_options: {region: ...}"
        )
        return
    if module not in _MODULES:
        found.problems.append(
            f'{name}: the login module "{module}" is not supported yet; use '
            f"{', '.join(_MODULES[:-1])} or {_MODULES[-1]}"
        )
        return
    options = {
        match[1]: re.sub(r"\\(.)", r"\1", match[2])
        if match[2] is not None
        else match[3] or match[4]
        for match in _OPTION.finditer(value)
    }
    if module == mm2_tickets.MODULE:
        _kerberos(options, given, name, found)
        return
    if module == "OAuthBearerLoginModule":
        settings, problems = mm2_tokens.from_login(options)
        found.problems += [f"{name}: {problem}" for problem in problems]
        for setting, text in settings.items():
            if SPELLED.get(setting) not in given:  # as Java has it, a key goes first
                _put(setting, text, name, found)
        return
    missing = [word for word in ("username", "password") if not options.get(word)]
    if missing:
        found.problems.append(f"{name}: has no {' and no '.join(missing)}")
        return
    _put("sasl_username", options["username"], name, found)
    _put("sasl_password", options["password"], name, found)


def _kerberos(
    options: Mapping[str, str],
    given: Mapping[str, str],
    name: str,
    found: Translation,
) -> None:
    settings, problems = mm2_tickets.from_login(options)
    found.problems += [f"{name}: {problem}" for problem in problems]
    service = settings.get(mm2_tickets.SERVICE)
    if service and given.get(_SERVICE, service) != service:
        found.problems.append(
            f"{name}: serviceName is not {_SERVICE}; use the same, or keep one"
        )
    if _MECHANISM not in given:
        _put("sasl_mechanism", _DEFAULT, name, found)
    for setting, text in settings.items():
        _put(setting, text, name, found)


def _store(
    store: str, given: Mapping[str, str], names: Mapping[str, str], found: Translation
) -> None:
    key = f"ssl.{store}.location"
    kind = given.get(f"ssl.{store}.type", "JKS").upper()
    if kind not in _READABLE:
        found.problems.append(
            f"{names[key]}: a store of type {kind} cannot be read; use "
            f"{', '.join(_READABLE)}: keytool -importkeystore -deststoretype PKCS12 "
            "converts it"
        )
        return
    _put(_STORES[store], given[key], names[key], found)


def _put(setting: str, value: Any, name: str, found: Translation) -> None:
    found.settings[setting] = value
    found.spelled[setting] = name
