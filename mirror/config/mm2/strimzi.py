"""Strimzi's manifest for MirrorMaker 2, read as what its operator would run.

Main function: `read`, for kind KafkaMirrorMaker2 in v1beta2 and v1. A manifest names
Kubernetes secrets and does not contain them: they become files under `SECRETS`, where a
pod mounts them. Fields about pods give a warning by name; `chart` converts them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import yaml

from mirror.config.mm2 import properties as mm2_properties
from mirror.config.mm2 import text as mm2_text
from mirror.errors import ConfigError

if TYPE_CHECKING:
    from mirror.config.document import Document

KIND = "KafkaMirrorMaker2"
SECRETS = "/etc/mirror/secrets"
_CONNECTORS = ("sourceConnector", "checkpointConnector", "heartbeatConnector")
_PATTERNS = {
    "topicsPattern": "topics",
    "topicsExcludePattern": "topics.exclude",
    "topicsBlacklistPattern": "topics.blacklist",
    "groupsPattern": "groups",
    "groupsExcludePattern": "groups.exclude",
    "groupsBlacklistPattern": "groups.blacklist",
}
_MECHANISMS = {
    "scram-sha-512": "SCRAM-SHA-512",
    "scram-sha-256": "SCRAM-SHA-256",
    "plain": "PLAIN",
    "oauth": "OAUTHBEARER",
}
ABOUT_PODS = ": about pods, ignored; convert --values keeps it where it can"
_OF_SPEC = {"clusters", "mirrors", "target", "connectCluster"}


def is_manifest(text: str) -> bool:
    """Whether a YAML file is a manifest, and not our own configuration."""
    return any(
        line.partition("#")[0].split() == ["kind:", KIND] for line in text.splitlines()
    )


def read(text: str) -> Document:
    """What the manifest says about clusters and flows.

    Raises:
        ConfigError: it is no YAML, or not such a manifest.
    """
    spec = spec_of(text)
    lines = mm2_text.Lines(settings={})
    secured: dict[str, dict[str, Any]] = {}
    clusters = list(_clusters(spec))
    lines.settings["clusters"] = ", ".join(
        dict.fromkeys(str(each.get("alias", "")) for each in clusters)
    )
    for cluster in clusters:
        _cluster(cluster, lines, secured)
    for mirror in _listed(spec, "mirrors"):
        _mirror(mirror, spec, lines)
    lines.warnings += [f"spec.{key}{ABOUT_PODS}" for key in spec if key not in _OF_SPEC]
    document = mm2_properties.understand(lines)
    known = document.raw["clusters"]
    for alias, settings in secured.items():
        known[alias].update(settings)
    return replace(document, raw={**document.raw, "clusters": known})


def spec_of(text: str) -> Mapping[str, Any]:
    """The spec of the one manifest in the text.

    Raises:
        ConfigError: it is no YAML, or not such a manifest.
    """
    try:
        found = [
            each
            for each in yaml.safe_load_all(text)
            if isinstance(each, Mapping) and each.get("kind") == KIND
        ]
    except yaml.YAMLError as error:
        raise ConfigError(["not valid YAML"]) from error
    if len(found) != 1 or not isinstance(found[0].get("spec"), Mapping):
        raise ConfigError([f"the manifest must hold one {KIND} with a spec"])
    spec: Mapping[str, Any] = found[0]["spec"]
    return spec


def _clusters(spec: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield from _listed(spec, "clusters")
    if isinstance(target := spec.get("target"), Mapping):
        yield target
    for mirror in _listed(spec, "mirrors"):
        if isinstance(source := mirror.get("source"), Mapping):
            yield source


def _cluster(
    cluster: Mapping[str, Any],
    lines: mm2_text.Lines,
    secured: dict[str, dict[str, Any]],
) -> None:
    alias = str(cluster.get("alias", ""))
    lines.settings[f"{alias}.bootstrap.servers"] = _text(
        cluster.get("bootstrapServers", "")
    )
    for key, value in _mapping(cluster, "config").items():
        lines.settings[f"{alias}.{key}"] = _text(value)
    settings = secured.setdefault(alias, {})
    tls = cluster.get("tls")
    login = _mapping(cluster, "authentication")
    if login.get("type") == "custom":
        _as_written(login, tls is not None, alias, lines)
    else:
        _log_in(login, tls is not None, settings, alias, lines)
    trusted = _listed(tls, "trustedCertificates") if isinstance(tls, Mapping) else []
    if trusted:
        settings["ssl_ca_file"] = _mounted(trusted[0], "certificate")
        if trusted[1:] or "certificate" not in trusted[0]:
            lines.warnings.append(
                f"cluster {alias}: trusts several certificates; put them into one file "
                f"{settings['ssl_ca_file']}"
            )


def _log_in(
    login: Mapping[str, Any],
    tls: bool,
    settings: dict[str, Any],
    alias: str,
    lines: mm2_text.Lines,
) -> None:
    kind = str(login.get("type", ""))
    sasl = kind in _MECHANISMS
    if kind and not sasl and kind != "tls":
        lines.problems.append(
            f"cluster {alias}: authentication of type {kind} is not supported; "
            f"use tls, custom, {', '.join(_MECHANISMS)}"
        )
    tls_used = tls or kind == "tls"
    if sasl or tls_used:
        settings["security_protocol"] = _protocol(sasl, tls_used)
    if sasl:
        settings["sasl_mechanism"] = _MECHANISMS[kind]
    if kind == "oauth":
        settings.update(_tokens(login))
    elif sasl:
        password = _mapping(login, "passwordSecret")
        settings["sasl_username"] = str(login.get("username", ""))
        settings["sasl_password_file"] = _mounted(password, "password")
    if kind == "tls":
        pair = _mapping(login, "certificateAndKey")
        settings["ssl_certificate_file"] = _mounted(pair, "certificate")
        settings["ssl_key_file"] = _mounted(pair, "key")


def _as_written(
    login: Mapping[str, Any], tls: bool, alias: str, lines: mm2_text.Lines
) -> None:
    """A login in the words of Java's clients."""
    protocol = _protocol(login.get("sasl") is True, tls)
    lines.settings[f"{alias}.security.protocol"] = protocol
    for key, value in _mapping(login, "config").items():
        lines.settings[f"{alias}.{key}"] = _text(value)


def _protocol(sasl: bool, tls: bool) -> str:
    if sasl:
        return "SASL_SSL" if tls else "SASL_PLAINTEXT"
    return "SSL" if tls else "PLAINTEXT"


def _tokens(login: Mapping[str, Any]) -> dict[str, Any]:
    """How Strimzi's own login gets its tokens."""
    settings: dict[str, Any] = {
        setting: str(login[field])
        for field, setting in {
            "tokenEndpointUri": "sasl_oauthbearer_token_endpoint_url",
            "clientId": "sasl_oauthbearer_client_credentials_client_id",
            "scope": "sasl_oauthbearer_scope",
        }.items()
        if login.get(field)
    }
    if client := _mapping(login, "clientSecret"):
        name = "sasl_oauthbearer_client_credentials_client_secret_file"
        settings[name] = _mounted(client, "key")
    if login.get("audience"):
        settings["sasl_oauthbearer_parameters"] = {"audience": str(login["audience"])}
    if trusted := _listed(login, "tlsTrustedCertificates"):
        settings["sasl_oauthbearer_ca_file"] = _mounted(trusted[0], "certificate")
    return settings


def _mirror(
    mirror: Mapping[str, Any], spec: Mapping[str, Any], lines: mm2_text.Lines
) -> None:
    source = mirror.get("sourceCluster") or _mapping(mirror, "source").get("alias")
    target = mirror.get("targetCluster") or _mapping(spec, "target").get("alias")
    flow = f"{source}->{target}"
    lines.settings[f"{flow}.enabled"] = "true"
    if "heartbeatConnector" not in mirror:
        lines.settings[f"{flow}.emit.heartbeats.enabled"] = "false"
    if "checkpointConnector" not in mirror:
        lines.settings[f"{flow}.emit.checkpoints.enabled"] = "false"
    for name in _CONNECTORS:
        connector = _mapping(mirror, name)
        if name == "sourceConnector" and "tasksMax" in connector:
            lines.settings[f"{flow}.tasks.max"] = _text(connector["tasksMax"])
        paused = connector.get("pause") is True or connector.get("state") in {
            "paused",
            "stopped",
        }
        if name == "sourceConnector" and paused:
            lines.settings[f"{flow}.enabled"] = "false"
            lines.warnings.append(f"flow {flow}: is paused, so enabled is off")
        for key, value in _mapping(connector, "config").items():
            lines.settings[f"{flow}.{key}"] = _text(value)
    for field, key in _PATTERNS.items():
        if field in mirror:
            lines.settings[f"{flow}.{key}"] = _text(mirror[field])


def _mounted(secret: Mapping[str, Any], key: str) -> str:
    name = secret.get("secretName", "SECRET")
    return f"{SECRETS}/{name}/{secret.get(key, 'ca.crt')}"


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value).strip()


def _mapping(holder: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = holder.get(key)
    return found if isinstance(found, Mapping) else {}


def _listed(holder: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    found = holder.get(key)
    if not isinstance(found, list):
        return []
    return [each for each in found if isinstance(each, Mapping)]
