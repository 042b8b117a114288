"""Notes of what switches and flows change in a cluster's ACLs, so that all of it can be
taken back.

Main types: `AclPlan`, changes that a switch or a flow makes together, `AclNotes`, over
the compacted topic `mirror-acls.internal` of the cluster that is changed, and
`AclOwnership`, over the topics `mirror-acls.<source>.internal`, one for each source
that flows copy ACLs from. A change is noted before it is made, and its note removed
after it is taken back: a crash in between leaves a note without its ACL, never an ACL
without its note. ACLs of a fence are notes, never an example: `without_fences` says
what the cluster has without them.

Record of a switch: key = JSON of the ACL with `by`; value = JSON {"version": 2,
"change": ...}. Version 2, because earlier releases would copy a fence as they copy
other ACLs: they refuse to read this. Record of a flow: key = JSON of the ACL; value =
JSON {"version": 1, "added": bool, "via": [...]}.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
import json
from typing import TYPE_CHECKING, Any, TypeVar

from mirror.clusters.admin.acls import Acl, Binding
from mirror.config import own_topics
from mirror.errors import MALFORMED, ClusterError
from mirror.records.reading import TopicReader
from mirror.records.writing import TopicWriter, append, ensure_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import Topic

N = TypeVar("N", "AclNotes", "AclOwnership")
T = TypeVar("T")
TOPIC = own_topics.ACL_NOTES.named()
FENCE = "fence"
"""How `AclPlan.by` begins, if it keeps producers out."""
_VERSION = 2


class AclChange(StrEnum):
    """What a switch does with an ACL."""

    ADDED = "added"
    REMOVED = "removed"
    """It was there before."""
    BRIDGED = "bridged"
    """Neither there before nor after: it says what holds for a topic without ACLs."""
    NONE = "none"
    """No longer noted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AclPlan:
    """Changes of a cluster's ACLs that are made, and taken back, together."""

    by: str
    """Who makes them, and why, such as `fence A<->B`, of a pair, or `fence A->B`, of a
    flow that protects its copies."""
    adds: tuple[Acl, ...] = ()
    """In this order, so that none takes away what a later one gives."""
    removes: tuple[Acl, ...] = ()
    """There now; given back later."""
    bridges: tuple[Acl, ...] = ()
    """ALLOW ALL for everyone on topics without ACLs. They are added first and removed
    last, so that the first ACL of a topic, or the last, refuses no one."""
    topics: tuple[str, ...] = ()
    """Where mirror must stay allowed what it is."""
    remarks: tuple[str, ...] = ()
    """What a person must know about it."""

    @property
    def changes(self) -> Mapping[Acl, AclChange]:
        """The change of each ACL."""
        return {
            **dict.fromkeys(self.bridges, AclChange.BRIDGED),
            **dict.fromkeys(self.adds, AclChange.ADDED),
            **dict.fromkeys(self.removes, AclChange.REMOVED),
        }

    def beyond(self, other: AclPlan) -> AclPlan:
        """The changes that the other one does not have."""

        def those(acls: Iterable[Acl]) -> tuple[Acl, ...]:
            return tuple(acl for acl in acls if acl not in other.changes)

        return replace(
            self,
            adds=those(self.adds),
            removes=those(self.removes),
            bridges=those(self.bridges),
        )


class AclNotes:
    """What was read when this was created, updated by `note`."""

    def __init__(
        self, cluster: Cluster, *, visible: Mapping[str, Topic] | None = None
    ) -> None:
        """Read the notes of a cluster. `visible`: the topics that it shows us, if it is
        no error that the notes are not among them.

        Raises:
            ClusterError: the topic cannot be read, or a newer version of mirror wrote
                it.
        """
        self._cluster = cluster
        self._writer = TopicWriter(cluster, TOPIC)
        self._noted: defaultdict[str, dict[Acl, AclChange]] = defaultdict(dict)
        shown = cluster.topic(TOPIC) if visible is None else visible.get(TOPIC)
        if shown is not None:
            for by, acl, change in _read(cluster, shown, decode):
                self._take(by, acl, change)

    @property
    def contents(self) -> object:
        """Equal if the same is noted."""
        return {by: dict(changes) for by, changes in self._noted.items() if changes}

    def noted(self, by: str) -> AclPlan:
        """The changes that are noted as made by this one; sorted, not in order."""
        changes = self._noted.get(by, {})

        def those(change: AclChange) -> tuple[Acl, ...]:
            return tuple(sorted(acl for acl, its in changes.items() if its is change))

        return AclPlan(
            by=by,
            adds=those(AclChange.ADDED),
            removes=those(AclChange.REMOVED),
            bridges=those(AclChange.BRIDGED),
        )

    def added(self, *, but_by: str = "") -> set[Acl]:
        """The ACLs that are there because of switches, without those by this one."""
        return {
            acl
            for by, changes in self._noted.items()
            if by != but_by
            for acl, change in changes.items()
            if change is not AclChange.REMOVED
        }

    def taken(self, *, but_by: str) -> set[Acl]:
        """The ACLs that must not be there because of switches or flows, without what
        this one has taken away.
        """
        return {
            acl
            for by, changes in self._noted.items()
            if by != but_by
            for acl, change in changes.items()
            if change in {AclChange.REMOVED, AclChange.BRIDGED}
        }

    def without_fences(self, present: Iterable[Acl]) -> set[Acl]:
        """The ACLs that a cluster with these would have without fences."""
        found = set(present)
        for by, changes in self._noted.items():
            if by.startswith(FENCE):
                for acl, change in changes.items():
                    if change is AclChange.REMOVED:
                        found.add(acl)
                    else:
                        found.discard(acl)
        return found

    def note(self, plan: AclPlan) -> None:
        """Note changes, before they are made; the topic is made with the first ones."""
        known = self._noted[plan.by]
        new = {a: c for a, c in plan.changes.items() if known.get(a) is not c}
        if not new:
            return
        ensure_topic(
            self._cluster,
            own_topics.ACL_NOTES,
            TOPIC,
            replication_factor=self._cluster.own_replicas,
        )
        self._write(plan.by, new)

    def forget(self, by: str, acls: Collection[Acl]) -> None:
        """Note that these changes of this one are taken back, or were not its own."""
        self._write(by, dict.fromkeys(acls, AclChange.NONE))

    def _write(self, by: str, changes: Mapping[Acl, AclChange]) -> None:
        if not changes:
            return
        entries = [_record(by, acl, change) for acl, change in changes.items()]
        self._writer.write(entries)
        for acl, change in changes.items():
            self._take(by, acl, change)

    def _take(self, by: str, acl: Acl, change: AclChange) -> None:
        if change is AclChange.NONE:
            self._noted[by].pop(acl, None)
        else:
            self._noted[by][acl] = change


def steady(read: Callable[[], N], look: Callable[[], T]) -> tuple[N, T]:
    """Notes, and what was seen of the ACLs while these did not change: else a fence
    that is lifted in between would look like ACLs of users.
    """
    before = read()
    while True:
        seen = look()
        if (notes := read()).contents == before.contents:
            return notes, seen
        before = notes


def decode(key: bytes, value: bytes) -> tuple[str, Acl, AclChange]:
    """The change that one record is about, and who made it.

    Raises:
        ClusterError: it is damaged, or a newer mirror has written it.
    """
    try:
        fields, said = _decoded(key, value, _VERSION)
        by = fields.pop("by")
        return by, Acl(**fields), AclChange(said["change"])
    except MALFORMED as error:
        raise ClusterError(f"a record names no change of an ACL: {error!r}") from error


def _read(
    cluster: Cluster, shown: Topic, decoder: Callable[[bytes, bytes], T]
) -> Iterator[T]:
    """What the records of a topic say.

    Raises:
        ClusterError: as the decoder, or the topic cannot be read.
    """
    reader = TopicReader(cluster, shown.name, committed=False)
    for _, key, value in reader.read(shown=shown):
        try:
            yield decoder(key, value)
        except ClusterError as error:
            where = f"cluster {cluster.alias}: topic {shown.name}"
            raise ClusterError(f"{where}: {error}") from error


def _decoded(
    key: bytes, value: bytes, version: int
) -> tuple[dict[str, str], dict[str, Any]]:
    """The fields of a record's ACL, and what is said about it."""
    said = json.loads(value)
    if said["version"] != version:
        raise ClusterError(
            f"a newer version of mirror wrote a record (format {said['version']}); "
            "use that version"
        )
    fields = {str(name): str(text) for name, text in json.loads(key).items()}
    return fields, said


def _record(by: str, acl: Acl, change: AclChange) -> tuple[bytes, bytes]:
    key = json.dumps({"by": by, **asdict(acl)}, sort_keys=True)
    return key.encode(), json.dumps({"version": _VERSION, "change": change}).encode()


# ---- what flows have added ----

_CLAIM_VERSION = 1
_START, _END = "mirror-acls.", ".internal"

Via = tuple[str, ...]


class AclOwnership:
    """What was read when this was created, updated by `add` and `remove`."""

    def __init__(self, cluster: Cluster) -> None:
        """Read what all flows own on a cluster.

        Raises:
            ClusterError: a topic cannot be read, or a newer version of mirror wrote it.
        """
        self._cluster = cluster
        visible = cluster.topics()
        self._by_source = {
            name.removeprefix(_START).removesuffix(_END): {
                binding: via
                for binding, via in dict(_read(cluster, shown, decode_claim)).items()
                if via is not None
            }
            for name, shown in visible.items()
            if name.startswith(_START) and name.endswith(_END)
            if name != TOPIC
        }
        self.notes = AclNotes(cluster, visible=visible)
        """What switches have changed."""

    @property
    def contents(self) -> object:
        """Equal if the same is noted."""
        owned = {name: dict(each) for name, each in self._by_source.items() if each}
        return owned, self.notes.contents

    def of_source(self, source: str) -> Mapping[Binding, Via]:
        """What flows from this source have added, and through which clusters."""
        return self._by_source.get(source, {})

    def of_others(self, source: str) -> Mapping[Binding, Via]:
        """What flows from all other sources have added, and switches."""
        return dict.fromkeys(_bindings(self.notes.added()), ()) | {
            binding: via
            for name, owned in self._by_source.items()
            if name != source
            for binding, via in owned.items()
        }

    def claimed(self) -> set[Acl]:
        """What all flows have added."""
        return {b.acl for owned in self._by_source.values() for b in owned}

    def without_fences(self, present: Iterable[Binding]) -> set[Binding]:
        """The ACLs that a cluster with these would have without fences."""
        return _bindings(self.notes.without_fences(each.acl for each in present))

    def add(
        self,
        source: str,
        bindings: Mapping[Binding, Via],
        *,
        replication_factor: int,
    ) -> None:
        """Note ACLs as owned; the topic is made with the first one."""
        if not bindings:
            return
        topic = topic_name(source)
        ensure_topic(
            self._cluster,
            own_topics.ACL_CLAIMS,
            topic,
            replication_factor=replication_factor,
        )
        append(
            self._cluster,
            topic,
            [(_key(b), _value(added=True, via=via)) for b, via in bindings.items()],
        )
        self._by_source.setdefault(source, {}).update(bindings)

    def remove(self, source: str, bindings: Iterable[Binding]) -> None:
        """Note that ACLs are owned no longer."""
        known = self._by_source.get(source, {})
        gone = [binding for binding in bindings if binding in known]
        append(
            self._cluster,
            topic_name(source),
            [(_key(binding), _value(added=False)) for binding in gone],
        )
        for binding in gone:
            known.pop(binding)


def topic_name(source_alias: str) -> str:
    return own_topics.ACL_CLAIMS.named(source_alias)


def decode_claim(key: bytes, value: bytes) -> tuple[Binding, Via | None]:
    """The ACL of one record, and the clusters that it came through; None instead of
    clusters: it is owned no longer.

    Raises:
        ClusterError: it is damaged, or a newer mirror has written it.
    """
    try:
        fields, said = _decoded(key, value, _CLAIM_VERSION)
        via = tuple(map(str, said["via"])) if said["added"] else None
        return Binding(**fields), via
    except MALFORMED as error:
        raise ClusterError(f"a record names no ACL: {error!r}") from error


def _bindings(acls: Iterable[Acl]) -> set[Binding]:
    """Those of topics."""
    return {acl.binding for acl in acls if acl.kind == Binding.kind}


def _key(binding: Binding) -> bytes:
    return json.dumps(asdict(binding), sort_keys=True).encode()


def _value(*, added: bool, via: Via = ()) -> bytes:
    return json.dumps(
        {"version": _CLAIM_VERSION, "added": added, "via": list(via)}
    ).encode()
