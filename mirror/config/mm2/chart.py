"""Strimzi's manifest for MirrorMaker 2, as values for mirror's Helm chart.

Main function: `values`. What the manifest says about pods goes to the chart's own
fields; secrets become `clusterSecrets`, which the chart mounts, or volumes under the
paths that `strimzi` gives them. A field without a counterpart gives a comment by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
import re
from typing import TYPE_CHECKING, Any

from mirror.config.mm2 import strimzi
from mirror.config.mm2.convert import as_text, convert
from mirror.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

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
    rf"    ({'|'.join(_FILES)}): {strimzi.SECRETS}/(?P<secret>[^/]+)/(?P<key>.+)"
)
_OTHER = re.compile(rf"    \w+_file: {strimzi.SECRETS}/(?P<secret>[^/]+)/")
_CLUSTER = re.compile(r"  (\S.*):")
_EXTERNAL = "/opt/kafka/external-configuration"
_NOT_IN_PODS = ("clusters", "mirrors", "target", "connectCluster", "rack")


def values(text: str) -> str:
    """The manifest as text of a values file.

    Raises:
        ConfigError: it is no manifest, or with everything that is wrong with it.
    """
    if not strimzi.is_manifest(text):
        raise ConfigError(
            [
                (
                    f"--values: the file holds no {strimzi.KIND} manifest; the chart "
                    "takes MirrorMaker 2's own file as mm2Properties"
                )
            ]
        )
    spec, *others = strimzi.specs_of(text)
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
    document = strimzi.read(text)
    about_config = tuple(
        each for each in document.warnings if not each.endswith(strimzi.ABOUT_PODS)
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
        mount = {"name": secret, "mountPath": f"{strimzi.SECRETS}/{secret}"}
        _put(found, "extraVolumes", [volume])
        _put(found, "extraVolumeMounts", [{**mount, "readOnly": True}])
