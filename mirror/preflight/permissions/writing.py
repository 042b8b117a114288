"""Rights in writing: as command lines of `kafka-acls.sh`, and the table as a page.

Functions: `commands`, one line for each resource, and `reference`, all of the table in
Markdown, which `make settings` writes to docs/reference/permissions.md. What is needed
is said in `table`.
"""

from __future__ import annotations

from itertools import groupby
import shlex
from typing import TYPE_CHECKING

from mirror.preflight.permissions.extent import PREFIXED
from mirror.preflight.permissions.need import ResourceKind, Side, Who
from mirror.preflight.permissions.rights import principal
from mirror.preflight.permissions.table import TABLE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mirror.config.schema import MirrorConfig
    from mirror.preflight.permissions.need import Need
    from mirror.preflight.permissions.rights import Right

_TITLES = {
    Side.SOURCE: "On the source of a flow",
    Side.TARGET: "On the target of a flow",
}
_INTRODUCTION = """# Permissions

Made by `make settings` from `mirror/preflight/permissions`; do not edit. It says
what mirror has to be allowed, by feature. `mirror config acls` says what that is for a
configuration, ACL by ACL; [least privilege](../howto/least-privilege.md) is how to go
on from there.

Operations that others imply are left out: READ, WRITE and ALTER let DESCRIBE,
ALTER_CONFIGS lets DESCRIBE_CONFIGS. Names have the separator `.` here.
"""


def commands(
    config: MirrorConfig, needed: Iterable[Right], principals: Mapping[str, str]
) -> list[str]:
    """What to type to give these rights; `principals` by alias, where chosen."""
    lines = []
    resources = groupby(needed, key=lambda each: (each.cluster, each.kind, each.extent))
    for (alias, kind, extent), rights in resources:
        cluster = config.clusters[alias]
        words = [
            *("kafka-acls.sh", "--bootstrap-server"),
            ",".join(cluster.bootstrap_servers),
        ]
        if cluster.security_protocol != "PLAINTEXT":
            words += ["--command-config", f"{alias}-admin.properties"]
        words += ["--add", "--allow-principal"]
        words.append(principal(cluster, principals.get(alias)))
        for each in rights:
            words += ["--operation", _camel(each.operation)]
        words.append(f"--{kind}")
        if kind is not ResourceKind.CLUSTER:
            words.append(extent.name)
        if extent.pattern == PREFIXED:
            words += ["--resource-pattern-type", "prefixed"]
        lines.append(shlex.join(words))
    return lines


def reference() -> str:
    """The whole table, for people."""
    lines = [_INTRODUCTION.rstrip()]
    for side, title in _TITLES.items():
        rows = [n for n in TABLE if n.side is side and n.who is Who.SERVICE]
        lines += ["", f"## {title}", *_table(rows)]
    lines += [
        "",
        "## For commands",
        "",
        "Beside what the service needs, on the target.",
        *_table([need for need in TABLE if need.who is Who.COMMANDS]),
        "",
        "## For applications",
        "",
        "That ask the target where their group goes on, with `mirror.client` or with",
        "Kafka's own client. They need rights to their topics and groups besides.",
        *_table([need for need in TABLE if need.who is Who.CLIENTS]),
    ]
    return "\n".join(lines) + "\n"


def _table(needs: Iterable[Need]) -> list[str]:
    return [
        "",
        "| For | Resource | Names | Operations | When |",
        "|---|---|---|---|---|",
        *(
            f"| {need.feature} | {need.kind} | {need.called} | "
            f"{', '.join(need.operations)} | {need.setting or 'always'} |"
            for need in needs
        ),
    ]


def _camel(operation: str) -> str:
    return "".join(word.capitalize() for word in operation.split("_"))
