"""What published guides to MirrorMaker 2 write, and MirrorMaker 2 does not know.

Functions: `merge_into_undeclared`, a file whose target is in no list; `rename`, two
keys that rename copies; `prefer_newer`, one setting under two names. They turn what a
guide promises into what `properties` reads, and say so in warnings.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from mirror.config.mm2.answers import reason
from mirror.config.mm2.keys import newest_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_SERVERS = ".bootstrap.servers"
_POLICY = "replication.policy.class"
_IDENTITY = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"
_REGEX = "topics.rename.regex"
_REPLACEMENT = "topics.rename.replacement"
RENAME_KEYS = frozenset({_REGEX, _REPLACEMENT})
_GIVEN_UP = (".whitelist", ".blacklist")
"""How names end that MirrorMaker 2 had before 3.0 and dropped with 4.0."""
_NAMED_CLUSTER = re.compile(r"\$\{(?:clusters\.)?([A-Za-z0-9._-]+)\}")


def merge_into_undeclared(
    settings: Mapping[str, str], aliases: list[str]
) -> tuple[dict[str, str], list[str], list[str]]:
    """Settings, aliases and warnings of a file that merges clusters into another.

    Such a file lists its sources, gives the brokers of one more cluster, and has no
    flow at all. Any other file stays as it is.
    """
    others = [
        key.removesuffix(_SERVERS)
        for key in settings
        if key.endswith(_SERVERS)
        and "->" not in key
        and not reason(key)
        and key.removesuffix(_SERVERS) not in aliases
    ]
    if len(others) != 1 or not aliases or any("->" in key for key in settings):
        return dict(settings), aliases, []
    (target,) = others
    flows = {f"{alias}->{target}.enabled": "true" for alias in aliases}
    policy = {} if _POLICY in settings else {_POLICY: _IDENTITY}
    lines = [
        f"clusters = {', '.join([*aliases, target])}",
        *(f"{key} = {value}" for key, value in {**flows, **policy}.items()),
    ]
    warning = (
        f'{target}{_SERVERS}: "{target}" is not among the clusters, and no flow is '
        f"enabled: taken as topics of {', '.join(aliases)} that are merged into "
        f"{target}; these lines would say so: {'; '.join(lines)}"
    )
    return {**settings, **flows, **policy}, [*aliases, target], [warning]


def rename(
    given: Mapping[str, str], prefix: str, aliases: Iterable[str]
) -> tuple[list[dict[str, str]], str]:
    """The rules that the two keys make, or what is wrong with them."""
    for key, other in ((_REGEX, _REPLACEMENT), (_REPLACEMENT, _REGEX)):
        if key in given and other not in given:
            return [], f"{prefix}{key}: needs {prefix}{other} beside it"
    unknown = [
        name
        for name in _NAMED_CLUSTER.findall(given[_REPLACEMENT])
        if name not in aliases
    ]
    if unknown:
        return [], f'{prefix}{_REPLACEMENT}: there is no cluster "{unknown[0]}"'
    to = _NAMED_CLUSTER.sub(r"\1", given[_REPLACEMENT])
    return [{"match": given[_REGEX], "to": to}], ""


def prefer_newer(
    entries: Iterable[tuple[str, str, str]],
) -> tuple[list[tuple[Any, ...]], list[str]]:
    """Entries (owner, rest, key) without those that are set by a newer name as well;
    and warnings, also about names that MirrorMaker 2 has given up.
    """
    listed = list(entries)
    there = {(owner, rest): key for owner, rest, key in listed}
    kept, warnings = [], []
    for owner, rest, key in listed:
        newer = there.get((owner, newest_name(rest)))
        if newer is None or newer == key:
            kept.append((owner, rest, key))
            if rest.endswith(_GIVEN_UP):
                warnings.append(
                    f"{key}: MirrorMaker 2 ignores this name since 4.0; applied as "
                    f"{newest_name(rest)}"
                )
        else:
            warnings.append(f"{key}: {newer} says the same and takes precedence")
    return kept, warnings
