"""MirrorMaker 2's properties file, turned into our sections.

Main function: `read`. Top-level settings become `defaults`, `A.x` a cluster's, and
`A->B.x` a flow's; a cluster's setting overrides the top level where it does in
MirrorMaker 2. A key that mirror does not serve gives one warning by name. What matters
and cannot be served (a key store of an unknown type, a policy class) is a problem, not
a warning. `keys` looks up the keys, `security` translates credentials.
"""

from __future__ import annotations

from dataclasses import dataclass, field
import itertools
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from mirror.config.document import Document, Findings, Path
from mirror.config.mm2 import keys as mm2_keys
from mirror.config.mm2 import readers
from mirror.config.mm2 import security as mm2_security
from mirror.config.mm2 import text as mm2_text
from mirror.config.mm2.keys import newest_name, reason
from mirror.config.section import Where
from mirror.config.values import near

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Iterable, Iterator, Mapping

    from mirror.config.mm2.keys import Meaning


_CONTROL = re.compile(r"[\x00-\x1f]")
_FLOW_KEY = re.compile(r"(?P<source>[^>]+?)->(?P<target>[^>.]+)\.(?P<rest>.+)")


class _Entry(NamedTuple):
    """One key of the file."""

    owner: str
    """The flow or cluster whose prefix it has; empty: neither."""
    rest: str
    """What it sets."""
    key: str
    """As it is written."""


@dataclass(slots=True, kw_only=True)
class _Draft(Findings):
    """The document as it grows, and what it grows from."""

    settings: dict[str, str]
    aliases: list[str] = field(default_factory=list)
    entries: list[_Entry] = field(default_factory=list)
    raw: dict[str, dict[str, Any]] = field(
        default_factory=lambda: {
            "clusters": {}, "defaults": {}, "flows": {}, "service": {}
        }
    )  # fmt: skip
    spelled: dict[Path, str] = field(default_factory=dict)

    def of_owner(self, owner: str) -> Iterator[_Entry]:
        return (each for each in self.entries if each.owner == owner)

    def named_flows(self) -> list[str]:
        """The flows that keys name, in the file's order."""
        owners = (each.owner for each in self.entries if "->" in each.owner)
        return list(dict.fromkeys(owners))


def read(text: str, environ: Mapping[str, str]) -> Document:
    """Read the file's text; `environ` is what its references may ask for.

    Raises:
        ConfigError: the file is empty or its escapes are broken.
    """
    return understand(mm2_text.read(text, environ), own_process=True)


def understand(lines: mm2_text.Lines, *, own_process: bool = False) -> Document:
    """What a file's lines mean. `own_process`: to MirrorMaker 2 without a Connect."""
    draft = _Draft(
        settings=dict(lines.settings),
        warnings=[*lines.warnings],
        problems=[*lines.problems],
        by_hand=[*lines.by_hand],
    )
    draft.spelled["flows",] = "A->B.enabled"
    draft.aliases = _aliases(draft)
    _merge_into_undeclared(draft)
    draft.settings, draft.aliases = mm2_keys.settle(
        draft.settings, draft.aliases, draft
    )
    for alias in draft.aliases:
        _expect_cluster(alias, draft)
    draft.entries = [*_by_owner(draft)]
    _leave_out_unknown_flows(draft)
    _prefer_newer(draft)
    for owner, rest, key in draft.entries:
        value = draft.settings[key]
        if refused := mm2_keys.refusal(key, rest, value):
            draft.problems.append(refused)
        elif mm2_keys.is_default(rest, value) or rest in _RENAME_KEYS:
            continue
        elif owner == "":
            _top_level(rest, value, draft)
        elif owner in draft.aliases:
            _of_cluster(owner, rest, key, value, draft)
    _flows(draft)
    _rename(draft)
    if own_process:
        _beat_on_sources(draft)
    _secure(draft)
    return Document(
        raw=draft.raw,
        spelled=draft.spelled,
        warnings=tuple(draft.warnings),
        problems=tuple(draft.problems),
        by_hand=tuple(draft.by_hand),
    )


def _beat_on_sources(draft: _Draft) -> None:
    """MirrorMaker 2's own process beats on every cluster, for flows that are off too.

    So the other direction's key says whether a flow's source has heartbeats. A flow
    that runs in the other direction writes them itself.
    """
    flows = draft.raw["flows"]
    for flow, settings in flows.items():
        source, _, target = flow.partition("->")
        other = flows.get(back := f"{target}->{source}", {})
        if settings["enabled"] != "true" or other.get("enabled") == "true":
            continue
        place: Path = ("flows", back, "emit_heartbeats")
        if "emit_heartbeats" not in other:
            other, place = draft.raw["defaults"], ("defaults", "emit_heartbeats")
        settings["heartbeats_on_source"] = other.get("emit_heartbeats", "true")
        draft.spelled["flows", flow, "heartbeats_on_source"] = draft.spelled.get(
            place, f"{back}.emit.heartbeats.enabled"
        )


def _aliases(draft: _Draft) -> list[str]:
    value = _unquoted("clusters", draft.settings.pop("clusters", ""), draft)
    aliases = [alias.strip() for alias in value if alias.strip()]
    for alias in aliases:
        if len(parts := alias.split()) > 1:
            draft.problems.append(
                f'clusters: "{alias}" has a space; use clusters = {", ".join(parts)}'
            )
    return list(dict.fromkeys(part for alias in aliases for part in alias.split()))


def _expect_cluster(alias: str, draft: _Draft) -> None:
    draft.raw["clusters"][alias] = {}
    for setting, key in mm2_keys.spelled(Where.CLUSTER).items():
        draft.spelled["clusters", alias, setting] = f"{alias}.{key}"
    for setting, key in mm2_security.SPELLED.items():
        draft.spelled["clusters", alias, setting] = f"{alias}.{key}"


def _by_owner(draft: _Draft) -> Iterator[_Entry]:
    longest_first = sorted(draft.aliases, key=len, reverse=True)
    pairs = [f"{a}->{b}" for a in longest_first for b in longest_first]
    for key in draft.settings:
        owner = next((name for name in pairs if key.startswith(f"{name}.")), None)
        if key.startswith("target.topic.creation."):
            owner = ""  # also where a cluster is called target
        if key[0] in "\"'":
            owner = ""  # no name of a cluster has a quote
        if owner is None and (match := _FLOW_KEY.fullmatch(key)):
            owner = f"{match['source']}->{match['target']}"
        if owner is None:
            owner = next(
                (name for name in longest_first if key.startswith(f"{name}.")), ""
            )
        yield _Entry(owner, key[len(owner) + 1 :] if owner else key, key)


def _leave_out_unknown_flows(draft: _Draft) -> None:
    """Leave out keys of flows that MirrorMaker 2 does not know either: their clusters
    are not listed, or are one and the same. A name that is nearly listed stays, and is
    refused; so are all, if there is no other flow.
    """
    left_out = {}
    flows = draft.named_flows()
    for flow in flows:
        source, _, target = flow.partition("->")
        unknown = [each for each in (source, target) if each not in draft.aliases]
        if source == target:
            left_out[flow] = "one cluster is both of its ends"
        elif unknown and not any(near(each, draft.aliases) for each in unknown):
            left_out[flow] = f'"{unknown[0]}" is not among the clusters'
    if [*left_out] == flows:
        draft.problems += [f"{flow}: {why}" for flow, why in left_out.items()]
    else:
        draft.warnings += [
            f"{flow}: {why}, ignored, as MirrorMaker 2 does"
            for flow, why in left_out.items()
        ]
    draft.entries = [each for each in draft.entries if each.owner not in left_out]


def _top_level(key: str, value: str, draft: _Draft) -> None:
    if key in mm2_keys.FLOW:
        _set(("defaults",), mm2_keys.FLOW[key], key, value, draft)
    elif settings := [each for name, each in mm2_keys.SERVICE if name == key]:
        for meaning in settings:
            _set(("service",), meaning, key, value, draft)
    elif key in mm2_keys.TAKEN_AS_MEANT:
        draft.warnings.append(
            f"{key}: MirrorMaker 2 ignores this here; applied to all flows"
        )
        _set(("defaults",), mm2_keys.TAKEN_AS_MEANT[key], key, value, draft)
    elif key in mm2_keys.CLUSTER:
        for alias in draft.raw["clusters"]:
            if mm2_keys.CLUSTER[key][0] not in draft.raw["clusters"][alias]:
                _set(("clusters", alias), mm2_keys.CLUSTER[key], key, value, draft)
    elif mm2_security.serves(key):
        return  # `_secure` reads it
    elif key.endswith(".bootstrap.servers") and not mm2_keys.reason(key):
        alias = key.removesuffix(".bootstrap.servers")
        suggested = near(alias, draft.raw["clusters"])
        draft.warnings.append(
            f'{key}: "{alias}" is not among the clusters, ignored{suggested}'
        )
    else:
        draft.warnings.append(mm2_keys.answer(key, key))


def _of_cluster(alias: str, rest: str, key: str, value: str, draft: _Draft) -> None:
    if rest in mm2_keys.CLUSTER:
        _set(("clusters", alias), mm2_keys.CLUSTER[rest], key, value, draft)
    elif (
        rest not in mm2_keys.FROM_SOURCE
        and rest not in mm2_keys.FROM_TARGET
        and not _credential(rest)
    ):
        draft.warnings.append(mm2_keys.answer(key, rest))


def _flows(draft: _Draft) -> None:
    """Each flow's own settings, over those that its two clusters give it."""
    settings = draft.settings
    for flow in draft.named_flows():
        source, _, target = flow.partition("->")
        draft.raw["flows"][flow] = {"enabled": "false"}
        draft.spelled["flows", flow] = flow
        for setting, key in mm2_keys.spelled(Where.FLOW).items():
            draft.spelled["flows", flow, setting] = f"{flow}.{key}"
        # What stands further down overrides what stands above.
        layers: list[tuple[str, dict[str, Meaning]]] = [
            (flow, mm2_keys.FLOW_BELOW_CLUSTER),
            (source, mm2_keys.FROM_SOURCE),
            (target, mm2_keys.FROM_TARGET),
            (flow, {**mm2_keys.FLOW, **mm2_keys.FLOW_ONLY}),
        ]
        for layer, keys in layers:
            for _, rest, key in draft.of_owner(layer):
                if rest in keys:
                    _set(("flows", flow), keys[rest], key, settings[key], draft)
        own = {rest for owner, keys in layers for rest in keys if owner == flow}
        for _, rest, key in draft.of_owner(flow):
            if (
                rest not in own | _RENAME_KEYS
                and not mm2_keys.is_default(rest, settings[key])
                and not mm2_keys.refusal(key, rest, settings[key])
                and not (_credential(rest) or ("",))[0]
            ):
                draft.warnings.append(mm2_keys.answer(key, rest))


def _set(place: Path, meaning: Meaning, key: str, value: str, draft: _Draft) -> None:
    setting, convert = meaning
    parts = _unquoted(key, value, draft)
    if convert is readers.listed:
        parts = _possible(key, parts, draft)
    section = draft.raw[place[0]]
    if len(place) > 1:
        section = section[place[1]]
    try:
        section[setting] = convert(",".join(parts))
    except ValueError as error:
        if (problem := f"{key}: {error}") not in draft.problems:
            draft.problems.append(problem)
    draft.spelled[*place, setting] = key


def _possible(key: str, parts: list[str], draft: _Draft) -> list[str]:
    """Patterns without those that no name can match: a backslash before an r is the end
    of a line to Java.
    """
    found = [part for part in parts if not _CONTROL.search(part)]
    for part in parts:
        if part not in found:
            draft.warnings.append(
                f"{key}: {part!r} matches nothing, ignored: a backslash is written "
                "twice in such a file"
            )
    return found


def _rename(draft: _Draft) -> None:
    """What two keys of guides ask for: rules that rename copies."""
    for owner in ("", *draft.raw["flows"]):
        given = {
            rest: ",".join(_unquoted(key, draft.settings[key], draft))
            for _, rest, key in draft.of_owner(owner)
            if rest in _RENAME_KEYS
        }
        if not given:
            continue
        prefix = f"{owner}." if owner else ""
        if wrong := _wrong_rename(given, prefix, draft.aliases):
            draft.problems.append(wrong)
            continue
        section = draft.raw["flows"][owner] if owner else draft.raw["defaults"]
        to = _NAMED_CLUSTER.sub(r"\1", given[_REPLACEMENT])
        section.update(policy="rename", rename=[{"match": given[_REGEX], "to": to}])
        place = ("flows", owner) if owner else ("defaults",)
        draft.spelled[*place, "rename"] = f"{prefix}topics.rename.regex"


def _unquoted(key: str, value: str, draft: _Draft) -> list[str]:
    """The value's parts between commas, without the quotes that guides print."""
    bare, quoted = mm2_text.unquoted(value)
    warning = f"{key}: quotes are not part of the value, removed"
    if quoted and warning not in draft.warnings:
        draft.warnings.append(warning)
    return bare


def _secure(draft: _Draft) -> None:
    """Each cluster's own user, and an entry for each other one that tasks log in as."""
    values = {
        key: value
        if mm2_text.is_taken_as_it_is(key)
        else ",".join(_unquoted(key, value, draft))
        for _, rest, key in draft.entries
        for value in [draft.settings[key]]
        if _credential(rest)
    }
    aliases = draft.aliases
    running = [
        name
        for name, flow in draft.raw["flows"].items()
        if flow["enabled"].lower() == "true" and set(name.split("->")) <= set(aliases)
    ]
    found = _resolve(draft, values, running)
    plain = {alias: dict(draft.raw["clusters"][alias]) for alias in aliases}
    for alias, login in found.own.items():
        _log_in(alias, login, values, draft)
    entries: dict[tuple[str, frozenset[tuple[str, str]]], str] = {}
    for kind, setting, end, logins in (
        ("reader", "source_login", 0, found.readers),
        ("writer", "target_login", 1, found.writers),
    ):
        for flow, login in logins.items():
            alias = flow.split("->")[end]
            what = frozenset((bare, values[key]) for bare, key in login.items())
            if (entry := entries.get((alias, what))) is None:
                entry = _free(f"{alias}-{kind}", draft.raw["clusters"])
                entries[alias, what] = entry
                draft.raw["clusters"][entry] = dict(plain[alias])
                _log_in(entry, login, values, draft)
            draft.raw["flows"][flow][setting] = entry


def _free(name: str, taken: Container[str]) -> str:
    numbers = itertools.count(2)
    found = name
    while found in taken:
        found = f"{name}-{next(numbers)}"
    return found


def _log_in(
    entry: str, login: Mapping[str, str], values: Mapping[str, str], draft: _Draft
) -> None:
    given = {bare: values[key] for bare, key in login.items()}
    servers = draft.raw["clusters"][entry].get("bootstrap_servers", ())
    found = mm2_security.translate(given, login, servers)
    draft.raw["clusters"][entry].update(found.settings)
    for setting, key in found.spelled.items():
        draft.spelled["clusters", entry, setting] = key
    for texts, more in (
        (draft.warnings, found.warnings),
        (draft.problems, found.problems),
        (draft.by_hand, found.by_hand),
    ):
        # A key shared by all clusters is spoken of once.
        texts.extend(text for text in more if text not in texts)


# ---- what published guides to MirrorMaker 2 write, and it does not know ----
#
# A file whose target is in no list, two keys that rename copies, one setting under
# two names: what a guide promises becomes what is read above, and warnings say so.


_SERVERS = ".bootstrap.servers"
_POLICY = "replication.policy.class"
_IDENTITY = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"
_REGEX = "topics.rename.regex"
_REPLACEMENT = "topics.rename.replacement"
_RENAME_KEYS = frozenset({_REGEX, _REPLACEMENT})
_GIVEN_UP = (".whitelist", ".blacklist")
"""How names end that MirrorMaker 2 had before 3.0 and dropped with 4.0."""
_NAMED_CLUSTER = re.compile(r"\$\{(?:clusters\.)?([A-Za-z0-9._-]+)\}")


def _merge_into_undeclared(draft: _Draft) -> None:
    """Add the flows of a file that merges clusters into another: it lists its sources,
    gives the brokers of one more cluster, and has no flow at all.
    """
    settings, aliases = draft.settings, draft.aliases
    others = [
        key.removesuffix(_SERVERS)
        for key in settings
        if key.endswith(_SERVERS)
        and "->" not in key
        and not reason(key)
        and key.removesuffix(_SERVERS) not in aliases
    ]
    if len(others) != 1 or not aliases or any("->" in key for key in settings):
        return
    (target,) = others
    flows = {f"{alias}->{target}.enabled": "true" for alias in aliases}
    policy = {} if _POLICY in settings else {_POLICY: _IDENTITY}
    lines = [
        f"clusters = {', '.join([*aliases, target])}",
        *(f"{key} = {value}" for key, value in {**flows, **policy}.items()),
    ]
    draft.warnings.append(
        f'{target}{_SERVERS}: "{target}" is not among the clusters, and no flow is '
        f"enabled: taken as topics of {', '.join(aliases)} that are merged into "
        f"{target}; these lines would say so: {'; '.join(lines)}"
    )
    draft.settings = {**settings, **flows, **policy}
    draft.aliases = [*aliases, target]


def _wrong_rename(
    given: Mapping[str, str], prefix: str, aliases: Iterable[str]
) -> str | None:
    """What is wrong with the two keys that rename copies."""
    for key, other in ((_REGEX, _REPLACEMENT), (_REPLACEMENT, _REGEX)):
        if key in given and other not in given:
            return f"{prefix}{key}: needs {prefix}{other} beside it"
    for name in _NAMED_CLUSTER.findall(given[_REPLACEMENT]):
        if name not in aliases:
            return f'{prefix}{_REPLACEMENT}: there is no cluster "{name}"'
    return None


def _prefer_newer(draft: _Draft) -> None:
    """Leave out what is set by a newer name as well. Names that MirrorMaker 2 has given
    up get a warning, too.
    """
    there = {(owner, rest): key for owner, rest, key in draft.entries}
    kept = []
    for each in draft.entries:
        owner, rest, key = each
        newer = there.get((owner, newest_name(rest)))
        if newer is None or newer == key:
            kept.append(each)
            if rest.endswith(_GIVEN_UP):
                draft.warnings.append(
                    f"{key}: MirrorMaker 2 ignores this name since 4.0; applied as "
                    f"{newest_name(rest)}"
                )
        else:
            draft.warnings.append(f"{key}: {newer} says the same and takes precedence")
    draft.entries = kept


# ---- as whom each client of MirrorMaker 2 logs in ----
#
# Main function: `_resolve`. MirrorMaker 2 has a client for each purpose, and the
# file may name another user for each. mirror has two on a cluster: what administers
# it (its own user, one for all flows), and tasks, which read and write the records
# of a flow. Keys of clients whose work mirror does as one of these two are answered
# by name.


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
class _Logins:
    """What the file's keys come to."""

    own: dict[str, Login] = field(default_factory=dict)
    """By cluster."""
    readers: dict[str, Login] = field(default_factory=dict)
    """By flow, where its tasks read as another user than the source's own."""
    writers: dict[str, Login] = field(default_factory=dict)
    """The same, of the target."""


def _credential(rest: str) -> tuple[str, str] | None:
    """The client that a key is about, empty for all, and the credential; None for
    keys that are about something else.
    """
    for prefix in ("", *_PREFIXES):
        bare = rest.removeprefix(f"{prefix}.") if prefix else rest
        if (bare != rest or not prefix) and mm2_security.serves(bare):
            return prefix, bare
    return None


def _resolve(
    draft: _Draft, settings: Mapping[str, str], flows: Collection[str]
) -> _Logins:
    """`settings`: the credentials, by their keys; `flows`: those that run."""
    named = _named(draft.entries)
    logins = _Logins()
    own: dict[str, list[Login]] = {alias: [] for alias in draft.aliases}
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
            draft.problems += _two_users(alias, first, other, settings)
    for flow, alias, does in tasks:
        if _values(does, settings) != _values(logins.own[alias], settings):
            of = logins.readers if flow.startswith(f"{alias}->") else logins.writers
            of[flow] = does
    used = {key for _, _, login in tasks for key in login.values()}
    used |= {key for login in logins.own.values() for key in login.values()}
    for (owner, client), login in named.items():
        if client and ("->" not in owner or owner in flows):
            says = counts.get((owner, client)) or _instead(owner, client, logins.own)
            draft.warnings += _unused(login, says, used, settings)
    return logins


def _named(entries: Iterable[_Entry]) -> dict[Place, Login]:
    named: dict[Place, Login] = {}
    for owner, rest, key in entries:
        if (found := _credential(rest)) and (owner or not found[0]):
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
