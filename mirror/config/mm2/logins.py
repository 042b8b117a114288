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
Place = tuple[str, str]
"""Owner and client."""


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
    named = _named(keys)
    logins = Logins()
    own: dict[str, list[Login]] = {alias: [] for alias in aliases}
    tasks: list[tuple[str, str, Login]] = []
    counts: dict[Place, Login] = {}
    for flow in flows:
        source, _, target = flow.partition("->")
        for alias, admin, data in (
            (source, _SOURCE_ADMIN, _READER),
            (target, _TARGET_ADMIN, _WRITER),
        ):
            does = _layered(named, data, flow)
            administers = _whole(_layered(named, admin, flow), does)
            own[alias].append(administers)
            tasks.append((flow, alias, does))
            counts |= dict.fromkeys(_places(admin, flow), administers)
            counts |= dict.fromkeys(_places(data, flow), does)
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
    used = {key for _, _, login in tasks for key in login.values()}
    used |= {key for login in logins.own.values() for key in login.values()}
    for (owner, client), login in named.items():
        if client and ("->" not in owner or owner in flows):
            says = counts.get((owner, client)) or _instead(owner, client, logins.own)
            logins.warnings += _unused(login, says, used, settings)
    return logins


def _named(keys: Iterable[tuple[str, str, str]]) -> dict[Place, Login]:
    named: dict[Place, Login] = {}
    for owner, rest, key in keys:
        if (found := credential(rest)) and (owner or not found[0]):
            named.setdefault((owner, found[0]), {})[found[1]] = key
    return named


def _places(layers: Iterable[str], flow: str) -> Iterator[Place]:
    source, _, target = flow.partition("->")
    owners = {"": "", "A": source, "B": target, "A->B": flow}
    for layer in layers:
        owner, _, client = layer.partition(" ")
        yield owners[owner], client


def _layered(named: Mapping[Place, Login], layers: Iterable[str], flow: str) -> Login:
    found: Login = {}
    for place in _places(layers, flow):
        found |= named.get(place, {})
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


def _instead(owner: str, client: str, own: Mapping[str, Login]) -> Login:
    """Who does the work of a client that has no counterpart."""
    source, arrow, target = owner.partition("->")
    alias = target if arrow and not client.startswith("source") else source
    return own.get(alias, {})


def _unused(
    login: Login, says: Login, used: Collection[str], settings: Mapping[str, str]
) -> Iterator[str]:
    for bare, key in login.items():
        other = says.get(bare)
        if key in used or (other and settings[other] == settings[key]):
            continue
        instead = f"{other} says" if other else "the cluster's own keys say"
        yield (
            f"{key}: not needed, ignored: mirror does the work of this client as "
            f"{instead}"
        )
