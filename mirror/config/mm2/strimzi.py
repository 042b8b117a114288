"""Strimzi's manifests for MirrorMaker 2: as a configuration, and as chart values.

Main function: `read`, for kind KafkaMirrorMaker2 in v1beta2 and v1, in YAML or JSON,
also several in a file or in a List, as what its operator would run. A manifest names
Kubernetes secrets and does not contain them: they become files under `SECRETS`, where a
pod mounts them. Strimzi runs three connectors, each with its own config; mirror has one
flow, so each key counts in the connector that uses it in MirrorMaker 2, and a warning
names a key that is in another.

Fields about pods give a warning by name; `values` converts them to the chart's own
fields. Secrets become `clusterSecrets`, which the chart mounts, or volumes under the
paths that `read` gives them. A field without a counterpart gives a comment by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
import re
from typing import TYPE_CHECKING, Any

import yaml

from mirror.config.mm2 import properties as mm2_properties
from mirror.config.mm2 import text as mm2_text
from mirror.config.mm2.convert import as_text, convert
from mirror.config.values import near
from mirror.errors import ConfigError

if TYPE_CHECKING:
    from mirror.config.document import Document


KIND = "KafkaMirrorMaker2"
SECRETS = "/etc/mirror/secrets"
ABOUT_PODS = ": about pods, ignored; convert --values keeps it where it can"

_SOURCE, _CHECKPOINT, _HEARTBEAT = (
    *("sourceConnector", "checkpointConnector", "heartbeatConnector"),
)
_CONNECTORS = (_SOURCE, _CHECKPOINT, _HEARTBEAT)
_OWNERS = (
    (re.compile(r"groups(\..+)?|refresh\.groups\..+|emit\.checkpoints\..+|"
                r"sync\.group\.offsets\..+|checkpoints\.topic\..+"), _CHECKPOINT),
    (re.compile(r"emit\.heartbeats(\..+)?|heartbeats\.topic\..+"), _HEARTBEAT),
)  # fmt: skip
"""Which connector decides a key; the source connector decides all others."""
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
_PAUSED = ("paused", "stopped")
_CONNECT = ("groupId", "configStorageTopic", "offsetStorageTopic", "statusStorageTopic")
_OF_PODS = (
    *("version", "replicas", "image", "resources", "livenessProbe", "readinessProbe"),
    *("jvmOptions", "jmxOptions", "logging", "clientRackInitImage", "metricsConfig"),
    *("metrics", "tracing", "template", "externalConfiguration", "affinity"),
    "tolerations",
)
_OF_SPEC = ("clusters", "mirrors", "target", "connectCluster", "rack", *_OF_PODS)
_OF_CLUSTER = (
    *("alias", "bootstrapServers", "tls", "authentication", "config", *_CONNECT),
)
_OF_MIRROR = ("sourceCluster", "targetCluster", "source", *_CONNECTORS, *_PATTERNS)
_OF_CONNECTOR = (
    *("tasksMax", "config", "pause", "state", "autoRestart", "listOffsets"),
    *("alterOffsets", "version"),
)
_OF_TOKENS = {
    "tokenEndpointUri": "sasl_oauthbearer_token_endpoint_url",
    "clientId": "sasl_oauthbearer_client_credentials_client_id",
    "scope": "sasl_oauthbearer_scope",
}
_WHOLE_SECRET = ("*", "*.crt", "*.pem")
_NO_TOKENS = ("refreshToken", "clientAssertion", "clientAssertionLocation", "username")


def is_manifest(text: str) -> bool:
    """Whether a file holds manifests, and not our own configuration."""
    try:
        return KIND in text and next(_manifests(text), None) is not None
    except yaml.YAMLError:
        return False


def read(text: str) -> Document:
    """What the manifests say about clusters and flows.

    Raises:
        ConfigError: it is no YAML, or there is no such manifest.
    """
    lines = mm2_text.Lines()
    secured: dict[str, dict[str, Any]] = {}
    for spec in specs_of(text):
        _spec(spec, lines, secured)
    document = mm2_properties.understand(lines)
    known = document.raw["clusters"]
    for alias, settings in secured.items():
        known[alias].update(settings)
    return replace(document, raw={**document.raw, "clusters": known})


def specs_of(text: str) -> list[Mapping[str, Any]]:
    """The spec of each manifest in the text.

    Raises:
        ConfigError: it is no YAML, or there is no such manifest.
    """
    try:
        specs = [manifest.get("spec") for manifest in _manifests(text)]
    except yaml.YAMLError as error:
        raise ConfigError(["not valid YAML"]) from error
    found = [spec for spec in specs if isinstance(spec, Mapping)]
    if not found or len(found) < len(specs):
        raise ConfigError([f"the manifest must hold a {KIND} with a spec"])
    return found


def _manifests(text: str) -> Iterator[Mapping[str, Any]]:
    for document in yaml.safe_load_all(text):
        if not isinstance(document, Mapping):
            continue
        items = document.get("items") if document.get("kind") == "List" else None
        for each in items if isinstance(items, list) else [document]:
            if isinstance(each, Mapping) and each.get("kind") == KIND:
                yield each


@dataclass(frozen=True, slots=True)
class _At:
    """A part of a manifest, and its path."""

    found: Mapping[str, Any]
    path: str

    def part(self, name: str) -> _At:
        """A mapping in it, empty if there is none."""
        inner = self.found.get(name)
        place = f"{self.path}.{name}"
        return _At(inner if isinstance(inner, Mapping) else {}, place)

    def parts(self, name: str) -> list[_At]:
        """The mappings of a list in it."""
        inner = self.found.get(name)
        return [
            _At(each, f"{self.path}.{name}[{number}]")
            for number, each in enumerate(inner if isinstance(inner, list) else ())
            if isinstance(each, Mapping)
        ]

    def text(self, name: str) -> str:
        """A field as text; empty if it is blank, which is no value to Kubernetes."""
        return _text(self.found.get(name))

    def require(self, known: tuple[str, ...], lines: mm2_text.Lines) -> None:
        """Name the fields that Strimzi does not know, and so drops."""
        for name in self.found.keys() - set(known):
            if meant := near(str(name), known, cutoff=0.75):
                lines.problems.append(f"{self.path}.{name}: unknown{meant}")
            else:
                lines.warnings.append(
                    f"{self.path}.{name}: unknown, ignored, as Strimzi does"
                )


def _spec(
    found: Mapping[str, Any], lines: mm2_text.Lines, secured: dict[str, dict[str, Any]]
) -> None:
    spec = _At(found, "spec")
    spec.require(_OF_SPEC, lines)
    mirrors = spec.parts("mirrors")
    clusters = [
        *spec.parts("clusters"),
        *([spec.part("target")] if "target" in found else ()),
        *(each.part("source") for each in mirrors if "source" in each.found),
    ]
    aliases = [each.text("alias") for each in clusters]
    known = lines.settings.get("clusters", "").split(", ")
    lines.settings["clusters"] = ", ".join(
        dict.fromkeys(each for each in (*known, *aliases) if each)
    )
    for cluster in clusters:
        _cluster(cluster, lines, secured)
    for mirror in mirrors:
        _mirror(mirror, spec, lines)
    lines.warnings += [f"spec.{key}{ABOUT_PODS}" for key in found if key in _OF_PODS]
    if "rack" in found:
        lines.warnings.append(
            "spec.rack: a pod's zone is not known here; set the flow's rack to the "
            "zone that the service runs in, to read from replicas in it"
        )


def _cluster(
    cluster: _At, lines: mm2_text.Lines, secured: dict[str, dict[str, Any]]
) -> None:
    cluster.require(_OF_CLUSTER, lines)
    alias = cluster.text("alias")
    if not alias:
        lines.problems.append(f"{cluster.path}: has no alias")
        return
    servers = f"{alias}.bootstrap.servers"
    before = lines.settings.get(servers)
    lines.settings[servers] = cluster.text("bootstrapServers")
    if before not in (None, lines.settings[servers]):
        lines.problems.append(
            f"{cluster.path}: {alias} has other bootstrapServers above; give one of "
            "the two another alias"
        )
    for key, value in cluster.part("config").found.items():
        if value is not None:
            lines.settings[f"{alias}.{key}"] = _text(value)
    if topic := cluster.text("offsetStorageTopic"):
        lines.settings[f"{alias}.offset.storage.topic"] = topic
    settings = secured.setdefault(alias, {})
    tls = cluster.found.get("tls") is not None
    login = cluster.part("authentication")
    if login.text("type") == "custom":
        _as_written(login, tls, alias, lines)
    else:
        _log_in(login, tls, settings, alias, lines)
    trusted = cluster.part("tls").parts("trustedCertificates")
    if trusted:
        settings["ssl_ca_file"] = _trusted(trusted, f"{alias}-ca", lines)


def _log_in(
    login: _At, tls: bool, settings: dict[str, Any], alias: str, lines: mm2_text.Lines
) -> None:
    kind = login.text("type")
    sasl = kind in _MECHANISMS
    if kind and not sasl and kind != "tls":
        lines.problems.append(
            f"cluster {alias}: authentication of type {kind} is not supported; "
            f"use tls, custom, {', '.join(_MECHANISMS)}"
        )
    tls_used = tls or kind == "tls"
    if sasl or tls_used:
        lines.settings[f"{alias}.security.protocol"] = _protocol(sasl, tls_used)
    if sasl:
        lines.settings[f"{alias}.sasl.mechanism"] = _MECHANISMS[kind]
    if kind == "oauth":
        settings.update(_tokens(login, alias, lines))
    elif sasl:
        settings["sasl_username"] = login.text("username")
        settings["sasl_password_file"] = _mounted(login, "passwordSecret", "password")
    if kind == "tls":
        for name in ("certificate", "key"):
            file = _mounted(login, "certificateAndKey", name)
            settings[f"ssl_{name}_file"] = file


def _as_written(login: _At, tls: bool, alias: str, lines: mm2_text.Lines) -> None:
    """A login in the words of Java's clients."""
    protocol = _protocol(login.found.get("sasl") is True, tls)
    lines.settings[f"{alias}.security.protocol"] = protocol
    for key, value in login.part("config").found.items():
        if value is not None:
            lines.settings[f"{alias}.{key}"] = _text(value)


def _protocol(sasl: bool, tls: bool) -> str:
    if sasl:
        return "SASL_SSL" if tls else "SASL_PLAINTEXT"
    return "SSL" if tls else "PLAINTEXT"


def _tokens(login: _At, alias: str, lines: mm2_text.Lines) -> dict[str, Any]:
    """How Strimzi's own login gets its tokens."""
    lines.problems += [
        f"cluster {alias}: authentication.{field} is not supported; use clientSecret, "
        "or accessToken with a token that something else renews"
        for field in _NO_TOKENS
        if login.found.get(field)
    ]
    settings: dict[str, Any] = {
        setting: login.text(field)
        for field, setting in _OF_TOKENS.items()
        if login.text(field)
    }
    file = login.text("accessTokenLocation")
    if login.found.get("accessToken"):
        file = _mounted(login, "accessToken", "key")
    if file:
        settings[_OF_TOKENS["tokenEndpointUri"]] = f"file://{file}"
    if login.found.get("clientSecret"):
        name = "sasl_oauthbearer_client_credentials_client_secret_file"
        settings[name] = _mounted(login, "clientSecret", "key")
    if audience := login.text("audience"):
        settings["sasl_oauthbearer_parameters"] = {"audience": audience}
    if extensions := login.part("saslExtensions").found:
        settings["sasl_oauthbearer_extensions"] = {
            str(name): _text(value) for name, value in extensions.items()
        }
    if trusted := login.parts("tlsTrustedCertificates"):
        settings["sasl_oauthbearer_ca_file"] = _trusted(
            trusted, f"{alias}-oauth-ca", lines
        )
    return settings


def _mirror(mirror: _At, spec: _At, lines: mm2_text.Lines) -> None:
    mirror.require(_OF_MIRROR, lines)
    source = mirror.text("sourceCluster") or mirror.part("source").text("alias")
    target = mirror.text("targetCluster") or spec.part("target").text("alias")
    if not (source and target):
        end = "target" if source else "source"
        lines.problems.append(f"{mirror.path}: has no {end}")
        return
    flow = f"{source}->{target}"
    if f"{flow}.enabled" in lines.settings:
        lines.problems.append(
            f"{mirror.path}: the flow {flow} is given above; join the two"
        )
    connectors = {name: mirror.part(name) for name in _CONNECTORS}
    for connector in connectors.values():
        connector.require(_OF_CONNECTOR, lines)
    _enable(mirror, flow, lines)
    _configure(mirror, connectors, flow, lines)


def _enable(mirror: _At, flow: str, lines: mm2_text.Lines) -> None:
    """Strimzi runs only the connectors that are there, if with nothing in them."""
    lines.settings[f"{flow}.enabled"] = "true"
    if mirror.found.get(_SOURCE) is None:
        lines.problems.append(
            f"{mirror.path}: has no sourceConnector, so that Strimzi copies nothing; "
            "write sourceConnector: {}"
        )
    if mirror.found.get(_HEARTBEAT) is None:
        lines.settings[f"{flow}.emit.heartbeats.enabled"] = "false"
    if mirror.found.get(_CHECKPOINT) is None:
        lines.settings[f"{flow}.emit.checkpoints.enabled"] = "false"
    copying = mirror.part(_SOURCE)
    if tasks := copying.text("tasksMax"):
        lines.settings[f"{flow}.tasks.max"] = tasks
    if copying.found.get("pause") is True or copying.text("state") in _PAUSED:
        lines.settings[f"{flow}.enabled"] = "false"
        lines.warnings.append(f"flow {flow}: is paused, so enabled is off")


def _configure(
    mirror: _At, connectors: Mapping[str, _At], flow: str, lines: mm2_text.Lines
) -> None:
    configs = {
        name: {
            str(key): _text(value)
            for key, value in connector.part("config").found.items()
            if value is not None
        }
        for name, connector in connectors.items()
    }
    for field, key in _PATTERNS.items():
        if mirror.found.get(field) is not None:
            for config in configs.values():
                config[key] = mirror.text(field)
    for name, config in configs.items():
        for key, value in config.items():
            owner = _owner(key)
            if name == owner:
                lines.settings[f"{flow}.{key}"] = value
            elif value != configs[owner].get(key):
                lines.warnings.append(
                    f"{connectors[name].path}.config.{key}: not taken: {owner} decides "
                    f"it{_in_words(name, owner, key)}"
                )


def _owner(key: str) -> str:
    return next((name for keys, name in _OWNERS if keys.fullmatch(key)), _SOURCE)


def _in_words(name: str, owner: str, key: str) -> str:
    if name == _CHECKPOINT and key.startswith("topics"):
        return "; groups are translated in all topics that are copied"
    if owner != _SOURCE:
        return "; MirrorMaker 2 takes no notice of it here either"
    return ""


def _trusted(trusted: list[_At], folder: str, lines: mm2_text.Lines) -> str:
    """A file with the certificates to trust, or a folder where there are several."""
    (first, *others) = trusted
    if not others and first.text("certificate"):
        return f"{SECRETS}/{first.text('secretName')}/{first.text('certificate')}"
    if not others and first.text("pattern") in _WHOLE_SECRET:
        return f"{SECRETS}/{first.text('secretName')}"
    path = f"{SECRETS}/{folder}"
    named = (
        f"{each.text('secretName')}/{each.text('certificate') or each.text('pattern')}"
        for each in trusted
    )
    lines.warnings.append(
        f"{first.path.rpartition('[')[0]}: mount the secrets {', '.join(named)} into "
        f"one folder {path}"
    )
    return path


def _mounted(holder: _At, field: str, key: str) -> str:
    secret = holder.part(field)
    return f"{SECRETS}/{secret.text('secretName')}/{secret.text(key)}"


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, list):
        return ",".join(map(_text, value))
    return str(value).lower() if isinstance(value, bool) else str(value).strip()


# ---- values for mirror's Helm chart ----

_FIELDS = {
    "replicas": "replicas",
    "resources": "resources",
    "affinity": "affinity",
    "tolerations": "tolerations",
    "template.pod.affinity": "affinity",
    "template.pod.tolerations": "tolerations",
    "template.pod.topologySpreadConstraints": "topologySpreadConstraints",
    "template.pod.imagePullSecrets": "imagePullSecrets",
    "template.pod.priorityClassName": "priorityClassName",
    "template.pod.terminationGracePeriodSeconds": "terminationGracePeriodSeconds",
    "template.pod.securityContext.runAsUser": "runAsUser",
    "template.pod.metadata.labels": "podLabels",
    "template.pod.metadata.annotations": "podAnnotations",
    "template.pod.volumes": "extraVolumes",
    "template.connectContainer.env": "extraEnv",
    "template.connectContainer.volumeMounts": "extraVolumeMounts",
    "template.serviceAccount.metadata.annotations": "serviceAccount.annotations",
    "template.podDisruptionBudget.maxUnavailable": "podDisruptionBudget.maxUnavailable",
}
_ELSEWHERE = {
    "version": "mirror's image has its own",
    "image": "set image.repository and image.tag",
    "jvmOptions": "resources and size decide about memory",
    "jmxOptions": "metrics are at /metrics, for Prometheus",
    "logging": "set config.service.log_level",
    "livenessProbe": "the chart's own probes fit mirror",
    "readinessProbe": "the chart's own probes fit mirror",
}
_FILES = {
    "sasl_password_file": "passwordKey",
    "ssl_certificate_file": "certificateKey",
    "ssl_key_file": "keyKey",
    "ssl_ca_file": "caKey",
}
_MOUNTED = re.compile(
    rf"    ({'|'.join(_FILES)}): {SECRETS}/(?P<secret>[^/]+)/(?P<key>.+)"
)
_OTHER = re.compile(rf"    \w+_file: {SECRETS}/(?P<secret>[^/]+)/")
_CLUSTER = re.compile(r"  (\S.*):")
_EXTERNAL = "/opt/kafka/external-configuration"
_NOT_IN_PODS = ("clusters", "mirrors", "target", "connectCluster", "rack")


def values(text: str) -> str:
    """The manifest as text of a values file.

    Raises:
        ConfigError: it is no manifest, or with everything that is wrong with it.
    """
    if not is_manifest(text):
        raise ConfigError(
            [
                (
                    f"--values: the file holds no {KIND} manifest; the chart "
                    "takes MirrorMaker 2's own file as mm2Properties"
                )
            ]
        )
    spec, *others = specs_of(text)
    if others:
        raise ConfigError(
            ["--values: the file holds several manifests; convert them one by one"]
        )
    found: dict[str, Any] = {}
    comments = ["Values for mirror's chart, converted from Strimzi's manifest."]
    for path, value in _fields(spec, ""):
        if target := _FIELDS.get(path):
            _put(found, target, value)
        elif path == "metricsConfig":
            _put(found, "podMonitor.enabled", True)
            comments.append(f"  spec.{path}: podMonitor needs the Prometheus operator")
        elif path == "externalConfiguration":
            _external(value, found)
        else:
            reason = _ELSEWHERE.get(path.partition(".")[0], "the chart has none")
            comments.append(f"  spec.{path}: left out: {reason}")
    document = read(text)
    about_config = tuple(
        each for each in document.warnings if not each.endswith(ABOUT_PODS)
    )
    config = convert(replace(document, warnings=about_config)).splitlines()
    config = list(_without_secrets(config, found))
    return "".join(
        f"{line}\n"
        for line in (
            *(f"# {each}" for each in comments),
            *(f"{name}: {as_text(value)}" for name, value in found.items()),
            "config:",
            *(f"  {line}" if line else "" for line in config),
        )
    )


def _fields(holder: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    """Fields with a value of their own, by path; whole ones where the chart has one."""
    for key, value in holder.items():
        path = f"{prefix}{key}"
        if path in _NOT_IN_PODS:
            continue
        inside = any(name.startswith(f"{path}.") for name in _FIELDS)
        if inside and isinstance(value, Mapping):
            yield from _fields(value, f"{path}.")
        else:
            yield path, value


def _put(found: dict[str, Any], target: str, value: Any) -> None:
    first, _, second = target.partition(".")
    if second:
        found.setdefault(first, {})[second] = value
    elif isinstance(value, list):
        found.setdefault(first, []).extend(value)
    else:
        found[first] = value


def _external(value: Any, found: dict[str, Any]) -> None:
    """Variables, and volumes at the paths that Strimzi's pods have them."""
    given = value if isinstance(value, Mapping) else {}
    for each in given.get("env") or ():
        _put(found, "extraEnv", [each])
    for each in given.get("volumes") or ():
        name = str(each.get("name", ""))
        mount = {"name": name, "mountPath": f"{_EXTERNAL}/{name}", "readOnly": True}
        _put(found, "extraVolumes", [each])
        _put(found, "extraVolumeMounts", [mount])


def _without_secrets(config: list[str], found: dict[str, Any]) -> Iterator[str]:
    """The configuration without the files that the chart mounts and names itself."""
    alias = ""
    for line in config:
        if match := _CLUSTER.fullmatch(line):
            alias = match[1].strip("'\"")
        if match := _MOUNTED.fullmatch(line):
            entry = found.setdefault("clusterSecrets", {}).setdefault(alias, {})
            entry[_FILES[match[1]]] = match["key"]
            named = "caSecretName" if match[1] == "ssl_ca_file" else "secretName"
            entry[named] = match["secret"]
            continue
        if match := _OTHER.match(line):
            _volume(match["secret"], found)
        yield line
    for entry in found.get("clusterSecrets", {}).values():
        if entry.get("caSecretName") == entry.setdefault(
            "secretName", entry.get("caSecretName")
        ):
            entry.pop("caSecretName")


def _volume(secret: str, found: dict[str, Any]) -> None:
    volume = {"name": secret, "secret": {"secretName": secret}}
    if volume not in found.get("extraVolumes", []):
        mount = {"name": secret, "mountPath": f"{SECRETS}/{secret}"}
        _put(found, "extraVolumes", [volume])
        _put(found, "extraVolumeMounts", [{**mount, "readOnly": True}])
