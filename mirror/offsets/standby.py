"""The standby topic: what only the source knows, kept on the target.

A compacted topic of one partition per source cluster, for the day on which the source
does not answer. Layout: key = `<kind>/<name>`, value = JSON with `version`, `at` (ISO
8601, UTC) and the kind's fields, or `gone: true` for what there no longer is. After a
look at everything of a kind, `looks/<kind>` says when it was; what has not changed
since is not written again. Main types: `StandbyEntry` and `StandbyWriter`; `read` reads
some kinds, and leaves others alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
import json
from typing import TYPE_CHECKING, Any

from mirror.config import own_topics
from mirror.errors import MALFORMED, ClusterError, MirrorError, RecreatedError
from mirror.records.reading import TopicReader
from mirror.records.writing import TopicWriter, ensure_topic

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from mirror.clusters.cluster import Cluster
    from mirror.config.schema import FlowConfig

VERSION = 1
LOOKS = "looks"
_GONE = "gone"
_ENVELOPE = frozenset({"version", "at"})

Fields = dict[str, Any]
"""The fields of a kind, as JSON has them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StandbyEntry:
    """What the topic says about one thing."""

    at: float
    """When it was so, epoch seconds; see `looks/<kind>` for how much longer."""
    fields: Fields

    @property
    def gone(self) -> bool:
        return bool(self.fields.get(_GONE))


@dataclass(frozen=True, slots=True, kw_only=True)
class Standby:
    """What the topic says about some kinds of things."""

    entries: Mapping[str, Mapping[str, StandbyEntry]]
    """By kind and name, without what is gone."""
    looks: Mapping[str, StandbyEntry]
    """The last look at each kind."""


def topic_name(source_alias: str) -> str:
    """The target topic about a source cluster."""
    return own_topics.STANDBY.named(source_alias)


def read(target: Cluster, source_alias: str, kinds: Collection[str]) -> Standby | None:
    """What the topic says about these kinds; None if there is no such topic.

    Raises:
        ClusterError: the target does not answer, or an entry of these kinds is damaged,
            or a newer version of mirror has written it.
    """
    topic = topic_name(source_alias)
    if (shown := target.topic(topic)) is None:
        return None
    reader = TopicReader(target, topic)
    newest = {key: value for _, key, value in reader.read(shown=shown)}
    return _standby(_decoded(topic, newest, {*kinds, LOOKS}), kinds)


def encode(kind: str, name: str, entry: StandbyEntry) -> tuple[bytes, bytes]:
    """Key and value."""
    at = datetime.fromtimestamp(entry.at, UTC).isoformat(timespec="milliseconds")
    told = {"version": VERSION, "at": at.replace("+00:00", "Z"), **entry.fields}
    value = json.dumps(told, ensure_ascii=False, separators=(",", ":"))
    return f"{kind}/{name}".encode(), value.encode()


def decode(topic: str, key: bytes, value: bytes) -> StandbyEntry:
    """One value of the topic, of a kind that this version knows.

    Raises:
        ClusterError: it is damaged, or from a newer version of mirror.
    """
    try:
        told = json.loads(value)
        version, at = told["version"], told["at"]
        if version == VERSION:
            return StandbyEntry(
                at=datetime.fromisoformat(at).timestamp(),
                fields={k: v for k, v in told.items() if k not in _ENVELOPE},
            )
    except MALFORMED as error:
        raise damaged(topic, key.decode(errors="replace"), error) from error
    raise ClusterError(
        f"{topic}: the record {key.decode(errors='replace')} has version {version}; "
        f"this mirror reads {VERSION}: use the newest mirror for this target"
    )


def damaged(topic: str, key: str, error: Exception) -> ClusterError:
    """A record does not say what its kind must say."""
    return ClusterError(
        f"{topic}: the record {key} is damaged ({error!r}): delete the topic, and a "
        "running service writes it again"
    )


def _decoded(
    topic: str, newest: Mapping[bytes, bytes], kinds: Collection[str]
) -> dict[tuple[str, str], StandbyEntry]:
    found = {}
    for key, value in newest.items():
        kind, slash, name = key.decode(errors="replace").partition("/")
        if slash and kind in kinds:
            found[kind, name] = decode(topic, key, value)
    return found


def _standby(
    found: Mapping[tuple[str, str], StandbyEntry], kinds: Collection[str]
) -> Standby:
    by_kind: dict[str, dict[str, StandbyEntry]] = {kind: {} for kind in (*kinds, LOOKS)}
    for (kind, name), entry in found.items():
        if not entry.gone:
            by_kind[kind][name] = entry
    return Standby(looks=by_kind.pop(LOOKS), entries=by_kind)


class StandbyWriter:
    """Keeps some kinds of one flow's standby topic up to date. Not thread-safe."""

    def __init__(self, flow: FlowConfig, kinds: Collection[str]) -> None:
        self._topic = topic_name(flow.source)
        self._replication_factor = flow.replication_factor
        self._kinds = frozenset(kinds)
        self._target: Cluster | None = None
        self._known: dict[tuple[str, str], StandbyEntry] = {}

    def known(self, target: Cluster) -> Standby:
        """What the topic says about these kinds now.

        Raises:
            MirrorError: as `keep`.
        """
        if self._target is not target:
            self._begin(target)
        return _standby(self._known, self._kinds)

    def keep(
        self,
        target: Cluster,
        kind: str,
        wanted: Mapping[str, Fields],
        *,
        at: float,
        look: Fields,
    ) -> int:
        """Write what a look at all of a kind found, and has changed; returns how many
        records it took. What is not `wanted` any more is gone. `look`: the fields of
        the record of the look, which is written last.

        Raises:
            MirrorError: the topic cannot be created, read or written.
        """
        there = self.known(target).entries[kind]
        changed = {
            (kind, name): fields
            for name, fields in wanted.items()
            if name not in there or there[name].fields != fields
        }
        changed |= {(kind, name): {_GONE: True} for name in there.keys() - wanted}
        changed[LOOKS, kind] = look
        return self._write(target, changed, at)

    def put(
        self, target: Cluster, kind: str, wanted: Mapping[str, Fields], *, at: float
    ) -> None:
        """Write what has changed of some things of a kind, without a look at all of
        it. Raises as `keep`.
        """
        if self._target is not target:
            self._begin(target)
        changed = {
            (kind, name): fields
            for name, fields in wanted.items()
            if (known := self._known.get((kind, name))) is None
            or known.fields != fields
        }
        if changed:
            self._write(target, changed, at)

    def _write(
        self, target: Cluster, changed: Mapping[tuple[str, str], Fields], at: float
    ) -> int:
        entries = {
            key: StandbyEntry(at=at, fields=told) for key, told in changed.items()
        }
        try:
            end = self._writer.write(
                [encode(*key, entry) for key, entry in entries.items()]
            )
            if end == self._reader.position + len(entries):
                self._reader.position = end
                self._note(entries)
            else:  # another service wrote, one that slept while this one took over
                self._follow(target)
        except MirrorError:
            self._target = None  # what is there now is not known
            raise
        return len(entries)

    def _begin(self, target: Cluster) -> None:
        ensure_topic(
            target,
            own_topics.STANDBY,
            self._topic,
            replication_factor=self._replication_factor,
        )
        self._writer = TopicWriter(target, self._topic)
        self._reader = TopicReader(target, self._topic)
        self._known = {}
        self._follow(target)
        self._target = target

    def _follow(self, target: Cluster) -> None:
        """Read what is new in the topic."""
        try:
            news = {key: value for _, key, value in self._reader.read()}
        except RecreatedError:
            self._reader = TopicReader(target, self._topic)
            self._known = {}
            news = {key: value for _, key, value in self._reader.read()}
        self._note(_decoded(self._topic, news, {*self._kinds, LOOKS}))

    def _note(self, entries: Mapping[tuple[str, str], StandbyEntry]) -> None:
        for key, entry in entries.items():
            if entry.gone:  # of topics that come and go, nothing stays in memory
                self._known.pop(key, None)
            else:
                self._known[key] = entry
