"""Credentials of Java clients, turned into a cluster's settings.

Main function: `translate`. It reads login modules for PLAIN, SCRAM, OAUTHBEARER,
Kerberos and Amazon MSK; `clusters` opens the stores. What a connection needs and mirror
cannot do is a problem: going on would only fail later, or trust the wrong certificates.
Messages name keys and classes, never passwords.
"""

from __future__ import annotations

from dataclasses import dataclass, field
import re
from typing import TYPE_CHECKING, Any

from mirror.config.document import Findings
from mirror.config.mm2.keys import spelled, table
from mirror.config.section import Where

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_SECURITY = "security.protocol"
_MECHANISM = "sasl.mechanism"
_JAAS = "sasl.jaas.config"
_SERVICE = "sasl.kerberos.service.name"
_DEFAULT = "GSSAPI"
"""Java's mechanism, if a file names none."""
_OF_ONE = {"sasl.oauthbearer.": "OAUTHBEARER", "sasl.kerberos.": "GSSAPI"}
"""Keys that only one mechanism uses."""
_KERBEROS = "Krb5LoginModule"
_MODULES = (
    *("PlainLoginModule", "ScramLoginModule", _KERBEROS),
    "OAuthBearerLoginModule",
)
_AMAZON = "software.amazon.msk.auth.iam."
_AMAZONS = "AWS_MSK_IAM"
_AMAZON_OPTIONS = {"awsRoleArn": "role_arn", "awsProfileName": "profile"}
_REGION = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com")
_HANDLERS = ("sasl.login.callback.handler.class", "sasl.client.callback.handler.class")
_NOT_NEEDED = ("org.apache.kafka.", "io.strimzi.kafka.oauth.")
"""Packages of handlers that do what mirror does by itself."""
_OPTION = re.compile(
    r"""([\w.-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'([^']*)'|([^\s;"']+))"""
)

_KEYS = table(Where.CREDENTIAL)
SPELLED = spelled(Where.CREDENTIAL)
"""The key that each setting comes from."""

_SERVICE_NAME = "sasl_kerberos_service_name"
_KEYTAB = 'useKeyTab=true keyTab="/etc/mirror/mirror.keytab" principal="mirror@REALM"'
_FILE = re.compile(r"(?i)file:(?://)?(?=/)")

_OAUTH = table(Where.LOGIN)
_URL = "sasl_oauthbearer_token_endpoint_url"
_AUDIENCE = "oauth.audience"
_TOKEN_FILE = "oauth.access.token.location"  # noqa: S105  an option's name
_EXTENSION = "extension_"
_UNSECURED = "unsecuredLogin"
_PASSED_OVER = (
    *("ssl.truststore.type", "oauth.ssl.truststore.type", "ssl.protocol"),
    *("oauth.username.claim", "oauth.access.token.is.jwt", "oauth.max.token.expiry"),
    "oauth.ssl.endpoint.identification.algorithm",
)

_STORES = {"truststore": "ssl_ca_file", "keystore": "ssl_certificate_file"}
_READABLE = ("JKS", "PKCS12", "PEM")
_SERVED = {
    *_KEYS,
    *_HANDLERS,
    *(f"ssl.{store}.{part}" for store in _STORES for part in ("type", "password")),
}


@dataclass(slots=True, kw_only=True)
class Translation(Findings):
    """A cluster's settings, and the keys they came from; to be written by hand is what
    is a problem unless the file is only converted.
    """

    given: Mapping[str, str]
    """What is translated."""
    names: Mapping[str, str]
    """Its keys as they were written."""
    settings: dict[str, Any] = field(default_factory=dict)
    spelled: dict[str, str] = field(default_factory=dict)
    has_no_login: bool = False
    """Whether a conversion leaves the login to people."""

    def put(self, setting: str, value: Any, name: str) -> None:
        """Set it; `name`: the key that says so, as it was written."""
        self.settings[setting] = value
        self.spelled[setting] = name


def serves(key: str) -> bool:
    """Whether `translate` handles this key, if only to refuse it."""
    return key in _SERVED


def translate(
    given: Mapping[str, str], names: Mapping[str, str], servers: Sequence[str] = ()
) -> Translation:
    """Translate one cluster's keys; `names` are the keys as they were written,
    `servers` its brokers.
    """
    found = Translation(given=given, names=names)
    protocol = given.get(_SECURITY, "PLAINTEXT").upper()
    mechanism = given.get(_MECHANISM, _DEFAULT).upper()
    if protocol.startswith("SASL_") and _is_amazons(given):
        mechanism = "OAUTHBEARER"
        _as_amazon(servers, found)
    for key in found.given:
        if not _is_used(key, protocol):
            found.warnings.append(f"{names[key]}: not used by {protocol}, ignored")
        elif any(key.startswith(p) and mechanism != m for p, m in _OF_ONE.items()):
            found.warnings.append(f"{names[key]}: not used by {mechanism}, ignored")
        else:
            _take(key, mechanism, found)
    if found.has_no_login:
        for setting in [*found.settings]:
            if setting.startswith(("sasl_", "security_")):
                del found.settings[setting]
    return found


def _is_used(key: str, protocol: str) -> bool:
    return (
        key == _SECURITY
        or (key.startswith("sasl.") and protocol.startswith("SASL_"))
        or (key.startswith("ssl.") and protocol.endswith("SSL"))
    )


def _take(key: str, mechanism: str, found: Translation) -> None:
    name = found.names[key]
    if key == _JAAS:
        _login(name, found)
    elif key in _HANDLERS:
        _handler(found.given[key], name, mechanism, found)
    elif key.endswith("store.location"):
        _store(key.split(".")[1], name, found)
    elif key in _KEYS:
        setting, convert = _KEYS[key]
        found.put(setting, convert(found.given[key]), name)


def _login(name: str, found: Translation) -> None:
    value = found.given[_JAAS]
    module = value.split(maxsplit=1)[0].rpartition(".")[2] if value.strip() else ""
    if module not in _MODULES:
        found.has_no_login = True
        found.by_hand.append(
            f'{name}: the login module "{module}" is a Java class, which cannot run '
            f"here; use {', '.join(_MODULES[:-1])} or {_MODULES[-1]}"
        )
        return
    options = _options(value)
    if module == _KERBEROS:
        _kerberos(options, name, found)
        return
    if module == "OAuthBearerLoginModule":
        settings, problems = _of_oauth(options)
        found.problems += [f"{name}: {problem}" for problem in problems]
        for setting, text in settings.items():
            # As Java has it, a key goes first.
            if SPELLED.get(setting) not in found.given:
                found.put(setting, text, name)
        return
    missing = [word for word in ("username", "password") if not options.get(word)]
    if missing:
        found.problems.append(f"{name}: has no {' and no '.join(missing)}")
        return
    found.put("sasl_username", options["username"], name)
    found.put("sasl_password", options["password"], name)


def _options(jaas: str) -> dict[str, str]:
    return {
        match[1]: re.sub(r"\\(.)", r"\1", match[2])
        if match[2] is not None
        else match[3] or match[4]
        for match in _OPTION.finditer(jaas)
    }


def _is_amazons(given: Mapping[str, str]) -> bool:
    named = (given.get(_JAAS, ""), *(given.get(key, "") for key in _HANDLERS))
    return given.get(_MECHANISM, "").upper() == _AMAZONS or any(
        _AMAZON in each for each in named
    )


def _as_amazon(servers: Sequence[str], found: Translation) -> None:
    """Log in by the Python twin of Amazon's Java classes; other keys are left."""
    own, given = (_MECHANISM, _JAAS, *_HANDLERS), found.given
    name = next(found.names[key] for key in own if key in given)
    options = {
        ours: text
        for theirs, text in _options(given.get(_JAAS, "")).items()
        if (ours := _AMAZON_OPTIONS.get(theirs))
    }
    regions = {match[1] for each in servers if (match := _REGION.search(each))}
    if len(regions) == 1:
        options["region"] = regions.pop()
    else:
        found.by_hand.append(
            f"{name}: the region is in no broker's name; write it, as in "
            "sasl_token_options: {region: eu-west-1}"
        )
    found.put("sasl_mechanism", "OAUTHBEARER", name)
    found.put("sasl_token_provider", "aws-msk-iam", name)
    found.put("sasl_token_options", options, name)
    found.given = {key: value for key, value in given.items() if key not in own}


def _handler(value: str, name: str, mechanism: str, found: Translation) -> None:
    if value.startswith(_NOT_NEEDED):
        found.warnings.append(
            f"{name}: not needed, ignored: mirror logs in by itself, without Java's "
            "classes"
        )
        return
    instead = (
        "use sasl_token_provider, which names what makes tokens"
        if mechanism == "OAUTHBEARER"
        else "use sasl_username and sasl_password_file"
    )
    found.has_no_login = True
    found.by_hand.append(
        f'{name}: "{value}" is a Java class, which cannot run here; {instead} (see '
        "docs/howto/security.md)"
    )


def _kerberos(options: Mapping[str, str], name: str, found: Translation) -> None:
    """The settings of a Krb5LoginModule. mirror gets its tickets from a keytab and
    renews them itself; how Java does is passed over.
    """
    if _MECHANISM not in found.given:
        found.put("sasl_mechanism", _DEFAULT, name)
    if options.get("useKeyTab", "").lower() != "true":
        found.problems.append(
            f"{name}: does not log in with a keytab; use {_KERBEROS} with {_KEYTAB}"
        )
        return
    missing = [option for option in ("keyTab", "principal") if not options.get(option)]
    if missing:
        found.problems.append(
            f"{name}: has no {' and no '.join(missing)}; use {_KEYTAB}"
        )
        return
    if service := options.get("serviceName"):
        if found.given.get(_SERVICE, service) != service:
            found.problems.append(
                f"{name}: serviceName is not {_SERVICE}; use the same, or keep one"
            )
        found.put(_SERVICE_NAME, service, name)
    keytab = _FILE.sub("", options["keyTab"], count=1)
    found.put("sasl_kerberos_principal", options["principal"], name)
    found.put("sasl_kerberos_keytab_file", keytab, name)


def _of_oauth(options: Mapping[str, str]) -> tuple[dict[str, Any], list[str]]:
    """The settings of an OAuthBearerLoginModule, with the options that Kafka's own
    handler and Strimzi's know, and problems with others. Whether they are complete is
    checked later.
    """
    settings: dict[str, Any] = {}
    problems = []
    for option, text in options.items():
        if option in _OAUTH:
            setting, read = _OAUTH[option]
            settings[setting] = read(text)
        elif option == _AUDIENCE:
            settings["sasl_oauthbearer_parameters"] = {"audience": text}
        elif option == _TOKEN_FILE:
            settings[_URL] = f"file://{text}"
        elif option.startswith(_EXTENSION):
            extensions = settings.setdefault("sasl_oauthbearer_extensions", {})
            extensions[option.removeprefix(_EXTENSION)] = text
        elif option.startswith(_UNSECURED):
            problems.append(
                f"{option}: unsigned tokens are not supported; use "
                f"{SPELLED[_URL]}, or sasl_token_provider in a YAML file"
            )
        elif option not in _PASSED_OVER:
            problems.append(
                f"{option}: this option is not known; use "
                f"clientId, clientSecret, scope, {_EXTENSION}NAME"
            )
    return settings, problems


def _store(store: str, name: str, found: Translation) -> None:
    kind = found.given.get(f"ssl.{store}.type", "JKS").upper()
    if kind not in _READABLE:
        found.problems.append(
            f"{name}: a store of type {kind} cannot be read; use "
            f"{', '.join(_READABLE)}: keytool -importkeystore -deststoretype PKCS12 "
            "converts it"
        )
        return
    found.put(_STORES[store], found.given[f"ssl.{store}.location"], name)
