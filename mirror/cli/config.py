"""`mirror config`: the configuration itself, without contacting any cluster.

`show` prints each setting's value and where it comes from, `convert` turns MirrorMaker
2's file or a Strimzi manifest into our YAML, `schema` prints every setting there is,
`acls` the rights that it takes. The room `config` makes the output; it never contains
secrets.
"""

from __future__ import annotations

from dataclasses import asdict
from enum import StrEnum
import json
import os
from pathlib import Path
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mirror.cli.options import ConfigFile, family, read_config
from mirror.cli.output import Form, Output, document, table
from mirror.config import environment, settings
from mirror.config.load import read
from mirror.config.mm2 import strimzi
from mirror.config.mm2.convert import convert as as_yaml
from mirror.config.settings import origins
from mirror.config.values import near

if TYPE_CHECKING:
    from mirror.config.schema import MirrorConfig

COLUMNS = ("SETTING", "VALUE")
ORIGIN_COLUMNS = (*COLUMNS, "ORIGIN", "WRITTEN")

app = family("Show, convert and describe the configuration.")


class SettingsFormat(StrEnum):
    JSON = "json"
    YAML = "yaml"
    MARKDOWN = "markdown"


@app.command()
def show(
    config: ConfigFile,
    *,
    origin: Annotated[
        bool, typer.Option("--origin", help="Also show where each value comes from.")
    ] = False,
    output: Output = Form.TABLE,
) -> None:
    """Show every setting in effect: variables override the file, the file defaults.

    \b
    Examples:
      mirror config show -c mirror.yaml
      mirror config show -c mm2.properties --origin
    """
    chosen = read_config(config)
    found = origins(chosen, environment.lay_over(read(config, os.environ), os.environ))
    told = list(map(asdict, found))
    if output is Form.JSON:
        document({"settings": told})
        return
    table(
        ORIGIN_COLUMNS if origin else COLUMNS,
        ({**each, "value": _shown(each["value"])} for each in told),
    )


@app.command()
def convert(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="mm2.properties, or a KafkaMirrorMaker2 manifest of Strimzi (.yaml).",
        ),
    ],
    *,
    values: Annotated[
        bool,
        typer.Option(
            "--values",
            help="Print values for mirror's Helm chart, with what the manifest says "
            "about pods and secrets.",
        ),
    ] = False,
) -> None:
    """Print MirrorMaker 2's configuration as mirror's YAML.

    Comments mark what works differently here. Secrets are left out; comments say how
    to provide them.

    \b
    Examples:
      mirror config convert mm2.properties > mirror.yaml
      mirror config convert kafka-mirror-maker-2.yaml > mirror.yaml
      mirror config convert --values kafka-mirror-maker-2.yaml > values.yaml
    """
    converted = as_yaml(read(file, os.environ))
    if values:
        converted = strimzi.values(file.read_text(encoding="utf-8"))
    sys.stdout.write(converted)


@app.command()
def schema(
    form: Annotated[
        SettingsFormat,
        typer.Option(help="JSON schema, an annotated YAML file, or a Markdown table."),
    ] = SettingsFormat.JSON,
) -> None:
    """Print every setting there is, with its default and its meaning."""
    made = {
        SettingsFormat.JSON: settings.json_schema,
        SettingsFormat.YAML: settings.example,
        SettingsFormat.MARKDOWN: settings.reference,
    }[form]
    sys.stdout.write(made())


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


# ---- `mirror config acls`: the ACLs that a configuration takes ----


ACL_COLUMNS = (
    *("CLUSTER", "PRINCIPAL", "RESOURCE", "NAME", "PATTERN", "OPERATION"),
    "FOR",
)


class AclForm(StrEnum):
    """How ACLs are printed."""

    TABLE = "table"
    JSON = "json"
    COMMANDS = "commands"


class Whose(StrEnum):
    """Who gets them."""

    SERVICE = "service"
    COMMANDS = "commands"
    RECOVERY = "recovery"
    CLIENTS = "clients"


@app.command("acls", short_help="Show the ACLs that mirror needs.")
def acls(
    config: ConfigFile,
    *,
    whose: Annotated[
        list[Whose] | None,
        typer.Option(
            "--for",
            help="Who needs the rights: the service, the commands, recovery (`mirror "
            "switch` and `mirror failover`), or applications that look up where their "
            "group continues. Repeatable. Default: service.",
        ),
    ] = None,
    principals: Annotated[
        list[str] | None,
        typer.Option(
            "--principal",
            metavar="[ALIAS=]NAME",
            help="The principal that brokers see, on one cluster or on all.",
        ),
    ] = None,
    output: Annotated[
        AclForm,
        typer.Option(
            "--output",
            "-o",
            help="A table, JSON for programs, or kafka-acls.sh commands.",
        ),
    ] = AclForm.TABLE,
) -> None:
    """Show the ACLs that mirror needs on each cluster, and no others.

    Works offline. Each pattern becomes the narrowest ACL that covers what it matches:
    a name, a prefix, or all names. With these rights and no others, everything that
    the configuration turns on works.

    \b
    Examples:
      mirror config acls -c mirror.yaml
      mirror config acls -c mirror.yaml --principal B=User:CN=mirror -o commands
      mirror config acls -c mirror.yaml --for service --for recovery
      mirror config acls -c mirror.yaml --for clients --principal billing
    """
    from mirror.checks.permissions.rights import commands, principal, rights
    from mirror.checks.permissions.table import Who

    chosen = read_config(config)
    by_alias = _principals(principals or [], chosen)
    needed = rights(chosen, who=[Who(each) for each in whose or [Whose.SERVICE]])
    if output is AclForm.COMMANDS:
        for line in commands(chosen, needed, by_alias):
            sys.stdout.write(f"{line}\n")
        return
    found = [
        {
            "cluster": each.cluster,
            "principal": principal(
                chosen.clusters[each.login], by_alias.get(each.login)
            ),
            "resource_type": each.kind.name,
            "name": each.extent.name,
            "pattern_type": each.extent.pattern,
            "operation": each.operation.value,
            "features": each.features,
            "flows": each.flows,
        }
        for each in needed
    ]
    if output is AclForm.JSON:
        document({"acls": found})
        return
    table(
        ACL_COLUMNS,
        (
            (
                *(each["cluster"], each["principal"], each["resource_type"]),
                *(each["name"], each["pattern_type"], each["operation"]),
                ", ".join(each["features"]),
            )
            for each in found
        ),
    )


def _principals(given: list[str], config: MirrorConfig) -> dict[str, str]:
    """By alias; one without an alias is for all clusters without one of their own."""
    found: dict[str, str] = {}
    for each in given:
        alias, equals, name = each.partition("=")
        if equals and alias in config.clusters:
            found[alias] = name
        elif ":" in alias or not equals:
            found |= {other: each for other in config.clusters if other not in found}
        else:
            raise typer.BadParameter(
                f'--principal: there is no cluster "{alias}"'
                f"{near(alias, config.clusters)}"
            )
    return found
