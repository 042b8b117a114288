"""`mirror config acls`: the ACLs that a configuration takes, without asking a cluster.

It prints what `permissions` finds, as a table, as JSON, or as the command lines that
give the rights. Who is given them is told by the configuration, or by --principal.
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


class Form(StrEnum):
    """How ACLs are printed."""

    TABLE = "table"
    JSON = "json"
    COMMANDS = "commands"


class Whose(StrEnum):
    """Who is to be given them."""

    SERVICE = "service"
    COMMANDS = "commands"
    CLIENTS = "clients"


def acls(
    config: ConfigFile,
    *,
    whose: Annotated[
        list[Whose] | None,
        typer.Option(
            "--for",
            help="The service, commands beside it, or applications that ask where "
            "their group goes on; may be given again. service, if not given.",
        ),
    ] = None,
    principals: Annotated[
        list[str] | None,
        typer.Option(
            "--principal",
            metavar="[ALIAS=]NAME",
            help="Who brokers take mirror for, on one cluster or on all.",
        ),
    ] = None,
    output: Annotated[
        Form,
        typer.Option(
            "--output",
            "-o",
            help="A table to read, JSON for programs, or command lines of "
            "kafka-acls.sh.",
        ),
    ] = Form.TABLE,
) -> None:
    """Show what mirror has to be allowed on each cluster, and nothing more.

    No cluster is asked. Patterns become the shortest ACLs that let through what they
    match: a name, all names that begin alike, or all. Give these rights and no others,
    and everything that the configuration turns on works.

    \b
    Examples:
      mirror config acls -c mirror.yaml
      mirror config acls -c mirror.yaml --principal B=User:CN=mirror -o commands
      mirror config acls -c mirror.yaml --for clients --principal billing
    """
    from mirror.preflight.permissions.need import Who  # noqa: PLC0415  others do without
    from mirror.preflight.permissions.rights import principal, rights  # noqa: PLC0415  others do without
    from mirror.preflight.permissions.writing import commands  # noqa: PLC0415  others do without

    chosen = read_config(config)
    by_alias = _principals(principals or [], chosen)
    needed = rights(chosen, who=[Who(each) for each in whose or [Whose.SERVICE]])
    if output is Form.COMMANDS:
        for line in commands(chosen, needed, by_alias):
            sys.stdout.write(f"{line}\n")
        return
    found = [
        {
            "cluster": each.cluster,
            "principal": principal(
                chosen.clusters[each.cluster], by_alias.get(each.cluster)
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
    if output is Form.JSON:
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
    """By alias; without one it counts for all clusters that have none of their own."""
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
