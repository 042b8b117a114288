"""A file of MirrorMaker 2 as our YAML, with a comment wherever meaning differs.

Main function: `convert`. Secrets are left out, with a line that says how to set them,
since the output ends up in repositories. Comments list the settings that the file
leaves at a default of MirrorMaker 2 which differs in mirror.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from mirror.config.build import build
from mirror.config.cluster_settings import ClusterConfig
from mirror.config.schema import FlowConfig
from mirror.config.section import is_secret, settings, traits
from mirror.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import BaseModel

    from mirror.config.document import Document


def convert(document: Document) -> str:
    """The document as YAML text.

    Raises:
        ConfigError: with everything that is wrong with it.
    """
    config, problems = build(replace(document, by_hand=()))
    if problems:
        raise ConfigError(problems)
    lines = ["# Converted from MirrorMaker 2's configuration."]
    if document.by_hand:
        lines += ["#", "# To be written by hand before it can run:"]
        lines += [f"#   {each}" for each in document.by_hand]
    if document.warnings:
        lines += ["#", "# What is left out here, or has another meaning:"]
        lines += [f"#   {warning}" for warning in document.warnings]
    lines.append("clusters:")
    for alias, cluster in config.clusters.items():
        lines += _entry(alias, document.raw["clusters"].get(alias, {}), cluster)
        lines += _left_out(alias, document.raw["clusters"].get(alias, {}))
    defaults = document.raw.get("defaults", {})
    if defaults and config.flows:
        any_flow = FlowConfig.model_validate({**defaults, "source": "A", "target": "B"})
        lines += ["", "defaults:"]
        lines += [f"  {line}" for line in _settings(defaults, any_flow)]
    lines += ["", "flows:"]
    for name, flow in config.flows.items():
        given = document.raw["flows"].get(name, {})
        lines += _entry(name, given, flow)
        lines += _defaults_that_differ({**defaults, **given})
    if service := document.raw.get("service", {}):
        lines += ["", "service:"]
        lines += [f"  {line}" for line in _settings(service, config.service)]
    return "\n".join(lines) + "\n"


def _entry(name: str, given: Mapping[str, Any], section: BaseModel) -> list[str]:
    lines = _settings(given, section)
    key = yaml.safe_dump({name: None}).split(":")[0].strip()
    if not lines:
        return [f"  {key}: {{}}"]
    return [f"  {key}:", *(f"    {line}" for line in lines)]


def _settings(given: Mapping[str, Any], section: BaseModel) -> list[str]:
    values = {
        name: plain(getattr(section, name))
        for name, info in settings(type(section)).items()
        if name in given and not is_secret(info)
    }
    return [f"{name}: {as_text(value)}" for name, value in values.items()]


def as_text(value: Any) -> str:
    """A value as YAML in one line."""
    text = yaml.safe_dump(
        plain(value), default_flow_style=True, allow_unicode=True, width=10**6
    )
    return text.removesuffix("...\n").strip()


def _left_out(alias: str, given: Mapping[str, Any]) -> list[str]:
    found = []
    for name in given:
        if is_secret(ClusterConfig.model_fields[name]):
            file = f"{name}_file"
            instead = (
                f"{file}, or " if file in ClusterConfig.model_fields else ""
            ) + f"the variable MIRROR_CLUSTERS__{_variable(alias)}__{name}"
            found.append(f"    # {name}: left out; give it by {instead}")
    return found


def _variable(alias: str) -> str:
    return "".join(each if each.isalnum() else "_" for each in alias)


def _defaults_that_differ(given: Mapping[str, Any]) -> list[str]:
    rows = [
        f"    #   {name}: {differs.theirs} there; here: {differs.ours}"
        for name, info in settings(FlowConfig).items()
        if (differs := traits(info).mm2_default) and name not in given
    ]
    return ["    # Not set; the defaults differ:", *rows] if rows else []


def plain(value: Any) -> Any:
    """A setting's value in types that YAML and JSON have."""
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, tuple):
        return [plain(each) for each in value]
    if hasattr(value, "match") and hasattr(value, "to"):
        return {"match": value.match, "to": value.to}
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return dict(value) if hasattr(value, "keys") else value
