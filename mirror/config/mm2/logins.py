"""As whom each client of MirrorMaker 2 logs in, and which of mirror's users that is.

Main function: `resolve`. MirrorMaker 2 has a client for each purpose, and the file may
name another user for each. mirror has two on a cluster: what administers it (its own
user, one for all flows), and tasks, which read and write the records of a flow. Keys
of clients whose work mirror does as one of these two are answered by name.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mirror.config.mm2 import security as mm2_security

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

_SOURCE_ADMIN = ("", "A", "A->B source.cluster", "A->B admin", "A admin",
                 "A->B source.admin")  # fmt: skip
_TARGET_ADMIN = ("", "B", "A->B target.cluster", "A->B admin", "B admin",
                 "A->B target.admin")  # fmt: skip
_READER = ("", "A", "A->B source.cluster", "A->B consumer", "A consumer",
           "A->B source.consumer")  # fmt: skip
_WRITER = ("A->B target.cluster", "A->B producer", "A->B target.producer", "", "B",
           "B producer", "A->B producer.override")  # fmt: skip
"""Where a client's login may stand; what stands further right overrides. The producer
of records is Connect's own: what the flow says of other producers counts only where
nothing else is said."""
_PREFIXES = sorted(
    {
        prefix
        for layers in (_SOURCE_ADMIN, _TARGET_ADMIN, _READER, _WRITER)
        for prefix in (layer.partition(" ")[2] for layer in layers)
        if prefix
    }
    | {f"{side}.{role}" for side in ("source", "target") for role in
       ("consumer", "producer", "admin")}
    | {"consumer.override", "admin.override"},
    key=len,
    reverse=True,
)  # fmt: skip
_WHO = (
    *("sasl.jaas.config", "ssl.keystore.location", "ssl.keystore.certificate.chain"),
    "sasl.oauthbearer.client.credentials.client.id",
)

Login = dict[str, str]
"""By the credential, the key that the file gives it with."""


@dataclass(slots=True)
class Logins:
    """What the file's keys come to."""

    own: dict[str, Login] = field(default_factory=dict)
    """By cluster."""
    readers: dict[str, Login] = field(default_factory=dict)
    """By flow, where its tasks read as another user than the source's own."""
    writers: dict[str, Login] = field(default_factory=dict)
    """The same, of the target."""
    warnings: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def credential(rest: str) -> tuple[str, str] | None:
    """The client that a key is about, empty for all, and the credential; None for
    keys that are about something else.
    """
    for prefix in ("", *_PREFIXES):
        bare = rest.removeprefix(f"{prefix}.") if prefix else rest
        if (bare != rest or not prefix) and mm2_security.serves(bare):
            return prefix, bare
    return None


def resolve(
    keys: Iterable[tuple[str, str, str]],
    settings: Mapping[str, str],
    aliases: Collection[str],
    flows: Collection[str],
) -> Logins:
    """`keys`: all of the file, as owner, rest and whole; `flows`: those that run."""
    named: dict[tuple[str, str], Login] = {}
    for owner, rest, key in keys:
        if (found := credential(rest)) and (owner or not found[0]):
            named.setdefault((owner, found[0]), {})[found[1]] = key
    logins = Logins()
    own: dict[str, list[Login]] = {alias: [] for alias in aliases}
    tasks: list[tuple[str, str, Login]] = []
    for flow in flows:
        source, _, target = flow.partition("->")
        for alias, admin, data in (
            (source, _SOURCE_ADMIN, _READER),
            (target, _TARGET_ADMIN, _WRITER),
        ):
            does = _layered(named, data, flow)
            own[alias].append(_whole(_layered(named, admin, flow), does))
            tasks.append((flow, alias, does))
    for alias, asked in own.items():
        base = _layered(named, ("", "A", "A admin"), f"{alias}->")
        first, *others = asked or [base]
        logins.own[alias] = first
        for other in others:
            logins.problems += _two_users(alias, first, other, settings)
    for flow, alias, does in tasks:
        if _values(does, settings) != _values(logins.own[alias], settings):
            of = logins.readers if flow.startswith(f"{alias}->") else logins.writers
            of[flow] = does
    logins.warnings += _unused(named, logins, settings, flows)
    return logins


def _layered(
    named: Mapping[tuple[str, str], Login], layers: Iterable[str], flow: str
) -> Login:
    source, _, target = flow.partition("->")
    owners = {"": "", "A": source, "B": target, "A->B": flow}
    found: Login = {}
    for layer in layers:
        owner, _, client = layer.partition(" ")
        found |= named.get((owners[owner], client), {})
    return found


def _whole(admin: Login, does: Login) -> Login:
    """A file that names no user for administration means that of the records."""
    return admin if any(each in admin for each in _WHO) else {**admin, **does}


def _values(login: Login, settings: Mapping[str, str]) -> dict[str, str]:
    return {bare: settings[key] for bare, key in login.items()}


def _two_users(
    alias: str, one: Login, other: Login, settings: Mapping[str, str]
) -> Iterator[str]:
    for bare in sorted(one.keys() | other.keys()):
        ours, theirs = one.get(bare), other.get(bare)
        if (ours and settings[ours]) != (theirs and settings[theirs]):
            said = " and ".join(sorted({each for each in (ours, theirs) if each}))
            yield (
                f"{said}: mirror administers {alias} in one way for all flows, and "
                f"flows differ here; write {alias}.admin.{bare} alone"
            )
            return


def _unused(
    named: Mapping[tuple[str, str], Login],
    logins: Logins,
    settings: Mapping[str, str],
    flows: Collection[str],
) -> Iterator[str]:
    """Keys of clients whose work mirror does as another user than they say."""
    chosen = [*logins.own.values(), *logins.readers.values(), *logins.writers.values()]
    used = {key for each in chosen for key in each.values()}
    for (owner, client), login in named.items():
        if not client or ("->" in owner and owner not in flows):
            continue
        for bare, key in login.items():
            alias = owner
            if "->" in owner:
                source, _, target = owner.partition("->")
                alias = source if client.startswith("source") else target
            own = logins.own.get(alias, {}).get(bare)
            if key not in used and (own is None or settings[own] != settings[key]):
                instead = f"as {own} says" if own else f"as the user of {alias}"
                yield (
                    f"{key}: not needed, ignored: what this client does in "
                    f"MirrorMaker 2, mirror does {instead}"
                )
