"""What flows have written to a target's schema registry, and found there before.

Main types: `Claim`, one version that a flow wrote, and `SchemaClaims`, over the
compacted topics `mirror-schemas.<source>.internal` of one cluster. A claim is noted
before the version is written: dying in between leaves a claim without its version,
never a version without its claim. A subject's mode and level are noted before they are
changed, too.

Record: key = `<context>/<subject>/<version>`, JSON {"version": 1, "id", "target_id",
"sha256", "state", "at"}; `mode` or `level` instead of the number: {"version": 1,
"before", "set", "at"}, null where the subject had none of its own; `run` as well, if a
switch closed it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
import json
import time
from typing import TYPE_CHECKING

from mirror.config import own_topics
from mirror.errors import MALFORMED, ClusterError
from mirror.records.reading import TopicReader
from mirror.records.writing import append, ensure_topic
from mirror.schemas.registry.values import RESERVED, Key, Mode, Subject

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

    from mirror.clusters.cluster import Cluster
    from mirror.schemas.registry.values import SchemaVersion

_VERSION = 1
_START, _END = "mirror-schemas.", ".internal"


class ClaimState(StrEnum):
    """How far the writing of a version is."""

    CLAIMED = "claimed"
    """About to be written."""
    COPIED = "copied"
    """Written, and read back as it should be."""
    STRIPPED = "stripped"
    """The same, but the registry has not kept its metadata or rules."""
    DELETED = "deleted"
    """Softly, as on the source."""


class ClaimOf(StrEnum):
    """What else of a subject a flow changes."""

    MODE = "mode"
    LEVEL = "level"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A version in the target's registry that a flow has written."""

    id: int
    """The source's."""
    target_id: int
    sha256: str
    """Of its text."""
    state: ClaimState

    @property
    def is_there(self) -> bool:
        """Whether it was written and read back."""
        return self.state is not ClaimState.CLAIMED

    def fits(self, version: SchemaVersion) -> bool:
        """Whether this is what was written."""
        return (self.target_id, self.sha256) == (version.id, version.sha256)


@dataclass(frozen=True, slots=True, kw_only=True)
class Before:
    """The mode that a subject had before a flow first changed it, or the level that it
    had before the last change. Two equal modes: it has its own again.
    """

    before: str | None
    """None: that of its context."""
    set: str | None
    """What the flow has set."""
    run: str = ""
    """The switch's run that set it; empty: a flow, or a person."""


Note = tuple[Subject, ClaimOf]


class SchemaClaims:
    """What was read by `refresh`, updated by what is noted. Not thread-safe."""

    def __init__(
        self,
        cluster: Cluster,
        source: str,
        *,
        replication_factor: int,
    ) -> None:
        """`source`: the alias of the cluster whose schemas the flow copies."""
        self._cluster = cluster
        self._source = source
        self._replicas = replication_factor
        self._readers: dict[str, TopicReader] = {}
        self._claims: dict[str, dict[Key, Claim]] = {}
        self._before: dict[str, dict[Note, Before]] = {}
        self.counted = 0
        """How many records were read or written: the same if nothing is new."""

    @classmethod
    def about(
        cls,
        subjects: Iterable[Subject],
        records: ClaimRecords,
        source: str,
        *,
        replication_factor: int,
    ) -> SchemaClaims:
        """What `records` have about these subjects, and all that comes later."""
        made = cls(records.cluster, source, replication_factor=replication_factor)
        wanted = {f"{each.context}/{each.name}".encode() for each in subjects}
        for topic, (reader, read) in records.topics.items():
            made._readers[topic] = TopicReader(
                records.cluster, topic, committed=False,
                position=reader.position, topic_id=reader.topic_id,
            )  # fmt: skip
            made._take(
                topic, (e for e in read.items() if e[0].rpartition(b"/")[0] in wanted)
            )
        return made

    def refresh(self) -> None:
        """Read what is new.

        Raises:
            ClusterError: a topic cannot be read, or a newer version of mirror wrote
                it; then nothing that was read counts, and the next call reads it all.
        """
        try:
            for name in _topics(self._cluster):
                self._read(name)
        except ClusterError:
            self._readers.clear()
            self._claims.clear()
            self._before.clear()
            raise

    @property
    def ours(self) -> Mapping[Key, Claim]:
        """What flows from this source have written."""
        return self._claims.get(self._source, {})

    @property
    def owners(self) -> Mapping[Key, str]:
        """What flows from other sources have written, with the sources' aliases."""
        return {
            key: source
            for source, claims in self._claims.items()
            if source != self._source
            for key in claims
        }

    def before(self, subject: Subject, what: ClaimOf) -> Before | None:
        """What this flow has noted about a subject; None: it has changed nothing."""
        return self._before.get(self._source, {}).get((subject, what))

    @property
    def modes(self) -> Mapping[Subject, Before]:
        """The subjects and contexts whose modes this flow has changed, and not given
        back.
        """
        return {
            subject: each
            for (subject, what), each in self._before.get(self._source, {}).items()
            if what is ClaimOf.MODE and each.before != each.set
        }

    def note(
        self,
        claims: Mapping[Key, Claim],
        before: Mapping[Note, Before] | None = None,
    ) -> None:
        """Write these down; the topic is made with the first ones.

        Raises:
            MirrorError: some may not have been written.
        """
        now = time.time()
        entries = [
            *(_of_note(note, each, now) for note, each in (before or {}).items()),
            *(_of_claim(key, each, now) for key, each in claims.items()),
        ]
        if not entries:
            return
        topic = topic_name(self._source)
        ensure_topic(
            self._cluster,
            own_topics.SCHEMA_CLAIMS,
            topic,
            replication_factor=self._replicas,
        )
        append(self._cluster, topic, entries)
        self.counted += len(entries)
        self._claims.setdefault(self._source, {}).update(claims)
        self._before.setdefault(self._source, {}).update(before or {})

    def _read(self, topic: str) -> None:
        reader = self._readers.setdefault(
            topic, TopicReader(self._cluster, topic, committed=False)
        )
        self._take(topic, (record[1:] for record in reader.read()))

    def _take(self, topic: str, records: Iterable[tuple[bytes, bytes]]) -> None:
        source = topic.removeprefix(_START).removesuffix(_END)
        claims = self._claims.setdefault(source, {})
        before = self._before.setdefault(source, {})
        for place, found in _entries(records, self._cluster, topic):
            self.counted += 1
            if isinstance(found, Claim) and isinstance(place, Key):
                claims[place] = found
            elif isinstance(found, Before) and not isinstance(place, Key):
                before[place] = found


class ClaimRecords:
    """All that was noted on a cluster, read once and not decoded: of 100,000 records
    one subject needs few.
    """

    def __init__(self, cluster: Cluster) -> None:
        """
        Raises:
            ClusterError: a topic cannot be read.
        """
        self.cluster = cluster
        self.topics: dict[str, tuple[TopicReader, dict[bytes, bytes]]] = {}
        """The last record of each key, and what read them."""
        for topic in _topics(cluster):
            reader = TopicReader(cluster, topic, committed=False)
            self.topics[topic] = reader, {key: value for _, key, value in reader.read()}


def copied_ids(cluster: Cluster, source: str, context: str) -> set[int]:
    """The ids that flows from a source have written to a context of the target's
    registry, and read back; each is the source's.

    Raises:
        ClusterError: the topic cannot be read.
    """
    found = translations(cluster, source, context)
    return {number for number, copy in found.items() if number == copy}


def translations(
    cluster: Cluster, source: str, context: str, *, below: bool = False
) -> dict[int, int]:
    """The target's id for each of the source's ids that flows have written to a context
    of the target's registry, and read back; without those that mean two texts. `below`:
    also to contexts below it, where the source's other contexts are.

    Raises:
        ClusterError: the topic cannot be read.
    """
    topic = topic_name(source)
    if topic not in cluster.topics():
        return {}
    reader = TopicReader(cluster, topic, committed=False)
    records = (record[1:] for record in reader.read())
    claims = {
        place: claim
        for place, claim in _entries(records, cluster, topic)
        if isinstance(claim, Claim) and isinstance(place, Key)
    }
    contexts = {context}
    if below:
        known = {subject.context for subject, _ in claims}
        contexts |= {each for each in known if each.startswith(f"{context}.")}
    return {
        number: one.target_id
        for number, found in by_id(claims, contexts).items()
        if (one := agreed(found)) is not None
    }


def by_id(
    claims: Mapping[Key, Claim], contexts: Container[str]
) -> dict[int, list[Claim]]:
    """What was written for each of the source's ids in these contexts of the target, in
    order of subject and version.
    """
    found: dict[int, list[Claim]] = {}
    for (subject, _), claim in sorted(claims.items(), key=lambda each: each[0]):
        # What the source means by an id of RESERVED is another schema.
        if subject.context in contexts and subject.name != RESERVED and claim.is_there:
            found.setdefault(claim.id, []).append(claim)
    return found


def agreed(claims: Sequence[Claim]) -> Claim | None:
    """The one that all slots choose for one id; None: there is none, or they have
    different texts, and a record does not say which it means.
    """
    return claims[0] if len({each.sha256 for each in claims}) == 1 else None


def topic_name(source_alias: str) -> str:
    return own_topics.SCHEMA_CLAIMS.named(source_alias)


def decode(key: bytes, value: bytes) -> tuple[Key | Note, Claim | Before]:
    """What one record says.

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
        context, _, rest = key.decode().partition("/")
        name, _, last = rest.rpartition("/")
        subject = Subject(context, name)
        if last in set(ClaimOf):
            before, made = said["before"], said["set"]
            if last == ClaimOf.MODE:
                before, made = (
                    None if each is None else Mode(each) for each in (before, made)
                )
            return (subject, ClaimOf(last)), Before(
                before=before, set=made, run=str(said.get("run", ""))
            )
        return Key(subject, int(last)), Claim(
            id=int(said["id"]),
            target_id=int(said["target_id"]),
            sha256=str(said["sha256"]),
            state=ClaimState(said["state"]),
        )
    except MALFORMED as error:
        raise ClusterError(f"a record names no schema: {error!r}") from error


def _topics(cluster: Cluster) -> list[str]:
    names = cluster.topics()
    return [each for each in names if each.startswith(_START) and each.endswith(_END)]


def _entries(
    records: Iterable[tuple[bytes, bytes]], cluster: Cluster, topic: str
) -> Iterator[tuple[Key | Note, Claim | Before]]:
    """What they say.

    Raises:
        ClusterError: as `decode`, or the topic cannot be read.
    """
    for key, value in records:
        try:
            yield decode(key, value)
        except ClusterError as error:
            where = f"cluster {cluster.alias}: topic {topic}"
            raise ClusterError(f"{where}: {error}") from error


def _of_claim(key: Key, claim: Claim, now: float) -> tuple[bytes, bytes]:
    return _record(
        *key,
        id=claim.id,
        target_id=claim.target_id,
        sha256=claim.sha256,
        state=claim.state,
        at=now,
    )


def _of_note(note: Note, before: Before, now: float) -> tuple[bytes, bytes]:
    by = {"run": before.run} if before.run else {}
    subject, what = note
    return _record(subject, what, before=before.before, set=before.set, at=now, **by)


def _record(subject: Subject, last: object, **fields: object) -> tuple[bytes, bytes]:
    key = f"{subject.context}/{subject.name}/{last}"
    return key.encode(), json.dumps({"version": _VERSION, **fields}).encode()
