"""Who may do what on the source, and who writes there in transactions: kinds `acls`,
`quotas`, `users` and `producers` of the standby topic.

Main functions: `look`, at the source, and `read`, what the target keeps of it. Layout:
`acls/<kind>/<pattern>/<name>` has all ACLs of one resource, without fences of mirror;
`quotas/<entity>` its `limits`; `users/<name>` the SCRAM `mechanisms`, never secrets;
`producers/<transactional id>` the `topics`. The look at a kind that could not be seen
has `unseen`, why; its records stay as they were.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mirror.clusters.admin import acls, transactions
from mirror.clusters.admin.acls import Acl, NoAuthorizerError
from mirror.errors import MALFORMED, AuthorizationError, UnsupportedBrokerError
from mirror.offsets import standby
from mirror.topics.acl_notes import AclNotes, steady

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mirror.clusters.cluster import Cluster
    from mirror.offsets.standby import Fields, Standby

KINDS = ACLS, QUOTAS, USERS, PRODUCERS = ("acls", "quotas", "users", "producers")
UNSEEN = "unseen"
_OURS = "mirror."
"""How mirror's own transactional ids begin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a look found of one kind."""

    entries: Mapping[str, Fields] | None
    """By name; None: it could not be seen."""
    unseen: str = ""
    """Why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What the target keeps."""

    acls: frozenset[Acl] = frozenset()
    quotas: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Limits by entity, such as `user alice, client-id default`."""
    users: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """SCRAM mechanisms by user."""
    producers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Topics that are written in transactions, by transactional id."""
    at: Mapping[str, float] = field(default_factory=dict)
    """By kind, when the service last looked, epoch seconds; missing: never."""
    unseen: Mapping[str, str] = field(default_factory=dict)
    """Kinds that the last look could not see, with the reason."""


def look(source: Cluster) -> dict[str, Seen]:
    """What the source says now, by kind.

    Raises:
        ClusterError: it does not answer.
    """
    return {
        ACLS: _seen(lambda: _acls(source)),
        QUOTAS: _seen(
            lambda: {
                entity: {"limits": dict(limits)}
                for entity, limits in acls.quotas(source).items()
            }
        ),
        USERS: _seen(
            lambda: {
                name: {"mechanisms": sorted(iterations)}
                for name, iterations in acls.scram_users(source).items()
            }
        ),
        PRODUCERS: _seen(lambda: _producers(source)),
    }


def read(found: Standby, source_alias: str) -> Kept:
    """What the standby topic says.

    Raises:
        ClusterError: an entry is damaged.
    """
    topic = standby.topic_name(source_alias)

    def each(kind: str, decode: Callable[[str, Fields], Any]) -> dict[str, Any]:
        read = {}
        for name, entry in found.entries[kind].items():
            try:
                read[name] = decode(name, entry.fields)
            except MALFORMED as error:
                raise standby.damaged(topic, f"{kind}/{name}", error) from error
        return read

    acls = each(ACLS, _acls_of)
    looks = {kind: found.looks[kind] for kind in KINDS if kind in found.looks}
    return Kept(
        acls=frozenset(acl for of_one in acls.values() for acl in of_one),
        quotas=each(QUOTAS, lambda _, fields: {str(k): float(v) for k, v in
                                             fields["limits"].items()}),
        users=each(USERS, lambda _, fields: tuple(map(str, fields["mechanisms"]))),
        producers=each(PRODUCERS, lambda _, fields: tuple(map(str, fields["topics"]))),
        at={kind: entry.at for kind, entry in looks.items()},
        unseen={
            kind: str(entry.fields[UNSEEN])
            for kind, entry in looks.items()
            if UNSEEN in entry.fields
        },
    )  # fmt: skip


def _seen(ask: Callable[[], Mapping[str, Fields]]) -> Seen:
    try:
        return Seen(entries=ask())
    except NoAuthorizerError:
        return Seen(entries={}, unseen="no authorizer")
    except AuthorizationError:
        return Seen(entries=None, unseen="not permitted")
    except UnsupportedBrokerError:
        return Seen(entries=None, unseen="unknown to these brokers")


def _acls(source: Cluster) -> dict[str, Fields]:
    notes, present = steady(
        lambda: AclNotes(source, visible=source.topics()),
        lambda: acls.describe_all(source),
    )
    found: dict[str, Fields] = {}
    for acl in sorted(notes.without_fences(present)):
        name = f"{acl.kind}/{acl.pattern}/{acl.name}"
        fields = {part: getattr(acl, part) for part in _PARTS}
        found.setdefault(name, {"acls": []})["acls"].append(fields)
    return found


def _producers(source: Cluster) -> dict[str, Fields]:
    ids = {
        producer_id: name
        for producer_id, name in transactions.ids_by_producer(source).items()
        if not name.startswith(_OURS)
    }
    if not ids:
        return {}
    wrote = transactions.find_writers(source, source.topics(), ids).topics
    return {name: {"topics": sorted(topics)} for name, topics in wrote.items()}


_PARTS = ("principal", "host", "operation", "permission")


def _acls_of(name: str, fields: Fields) -> list[Acl]:
    kind, pattern, resource = name.split("/", 2)
    return [
        Acl(
            kind=kind,
            pattern=pattern,
            name=resource,
            **{part: str(each[part]) for part in _PARTS},
        )
        for each in fields["acls"]
    ]
