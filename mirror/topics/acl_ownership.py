"""Records which ACLs flows have added to a cluster, so that they can be revoked.

Main type: `AclOwnership`, over the compacted topics `mirror-acls.<source>.internal` of
one cluster, one for each source that flows copy from, and over the notes of switches
(`acl_notes`), which flows must not undo. An ACL is noted before it is created, and
released after it is deleted: a crash in between leaves a note without its ACL, never an
ACL without its note.

Record: key = JSON of the ACL; value = JSON {"version": 1, "added": bool, "via": [...]}.
"""

from __future__ import annotations

from dataclasses import asdict
import json
from typing import TYPE_CHECKING

from mirror.clusters.admin.acls import Acl, Binding
from mirror.config import own_topics
from mirror.errors import MALFORMED, ClusterError
from mirror.records.reading import TopicReader
from mirror.records.writing import append, ensure_topic
from mirror.topics import acl_notes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import Topic

_VERSION = 1
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
            name.removeprefix(_START).removesuffix(_END): _read(cluster, shown)
            for name, shown in visible.items()
            if name.startswith(_START) and name.endswith(_END)
            if name != acl_notes.TOPIC
        }
        self.notes = acl_notes.AclNotes(cluster, visible=visible)
        """What switches have changed."""

    @property
    def said(self) -> object:
        """Equal if the same is noted."""
        owned = {name: dict(each) for name, each in self._by_source.items() if each}
        return owned, self.notes.said

    def of(self, source: str) -> Mapping[Binding, Via]:
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
        return {_acl(b) for owned in self._by_source.values() for b in owned}

    def without_fences(self, present: Iterable[Binding]) -> set[Binding]:
        """The ACLs that a cluster with these would have without fences."""
        return _bindings(self.notes.without_fences(map(_acl, present)))

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


def _read(cluster: Cluster, shown: Topic) -> dict[Binding, Via]:
    owned: dict[Binding, Via] = {}
    reader = TopicReader(cluster, shown.name, committed=False)
    for _, key, value in reader.read(shown=shown):
        try:
            binding, via = decode(key, value)
        except ClusterError as error:
            raise ClusterError(
                f"cluster {cluster.alias}: topic {shown.name}: {error}"
            ) from error
        if via is None:
            owned.pop(binding, None)
        else:
            owned[binding] = via
    return owned


def decode(key: bytes, value: bytes) -> tuple[Binding, Via | None]:
    """The ACL of one record, and the clusters that it came through; None instead of
    clusters: it is owned no longer.

    Raises:
        ClusterError: it is damaged, or a newer mirror has written it.
    """
    try:
        said = json.loads(value)
        if said["version"] != _VERSION:
            raise ClusterError(
                f"a newer version of mirror wrote a record (format {said['version']}); "
                "use that version"
            )
        fields = {str(name): str(text) for name, text in json.loads(key).items()}
        via = tuple(map(str, said["via"])) if said["added"] else None
        return Binding(**fields), via
    except MALFORMED as error:
        raise ClusterError(f"a record names no ACL: {error!r}") from error


def _acl(binding: Binding) -> Acl:
    fields = asdict(binding)
    return Acl(kind=binding.kind, name=fields.pop("topic"), **fields)


def _bindings(acls: Iterable[Acl]) -> set[Binding]:
    """Those of topics."""
    return {
        Binding(
            topic=acl.name,
            **{k: v for k, v in asdict(acl).items() if k not in {"kind", "name"}},
        )
        for acl in acls
        if acl.kind == Binding.kind
    }


def _key(binding: Binding) -> bytes:
    return json.dumps(asdict(binding), sort_keys=True).encode()


def _value(*, added: bool, via: Via = ()) -> bytes:
    return json.dumps({"version": _VERSION, "added": added, "via": list(via)}).encode()
