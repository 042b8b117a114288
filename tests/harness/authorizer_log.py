"""Who asked brokers for what, by their authorizer's own log.

`AUDITED` makes a broker of the playground write one; `asked` reads it. mirror has no
part in it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from mirror.playground.cluster import PlaygroundCluster

AUDITED = ("-Dorg.slf4j.simpleLogger.log.kafka.authorizer.logger=debug",)
"""Java options."""
_LINE = re.compile(
    r"Principal = User:(\S+) is (Allowed|Denied) operation = (\w+) from host = \S+ on "
    r"resource = (\w+):LITERAL:(\S+) "
)


class Asked(NamedTuple):
    """One decision."""

    user: str
    operation: str
    kind: str
    name: str
    allowed: bool


def asked(cluster: PlaygroundCluster) -> set[Asked]:
    """All that its brokers have decided so far about users who logged in."""
    assert cluster.folder is not None
    return {
        Asked(user, operation, kind, name, answer == "Allowed")
        for log in cluster.folder.glob("node-*/broker.log")
        for user, answer, operation, kind, name in _LINE.findall(
            log.read_text(errors="replace")
        )
        if user != "ANONYMOUS"
    }
