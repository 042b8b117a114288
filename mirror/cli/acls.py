"""`mirror config acls`: the ACLs that a configuration takes, without asking a cluster.

It prints the rights that `permissions` finds, as a table, as JSON, or as commands that
grant them. The principals come from the configuration, or from --principal.
"""

from __future__ import annotations

from enum import StrEnum
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from mirror.cli.options import ConfigFile, read_config
from mirror.cli.output import document, table
from mirror.config.values import near

if TYPE_CHECKING:
    from mirror.config.schema import MirrorConfig

FORMAT_VERSION = 1
COLUMNS = ("CLUSTER", "PRINCIPAL", "RESOURCE", "NAME", "PATTERN", "OPERATION", "FOR")


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
    from mirror.preflight.permissions.rights import commands, principal, rights
    from mirror.preflight.permissions.table import Who

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
        document({"format_version": FORMAT_VERSION, "acls": found})
        return
    table(
        COLUMNS,
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
