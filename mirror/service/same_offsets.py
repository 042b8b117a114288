"""Decides which copies of a flow have the source's offsets, at the start of each run.

Main functions: `decide`, which the driver calls once it is the only writer, and
`judge`, which only says what would follow. What was decided for a copy stays: its `TermNote` stands in the progress topic, in a transaction
of the owner, before the first record is written. Copies that have records already, or
cannot have the source's offsets, are translated as ever.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import structlog

from mirror.clusters.admin import brokers, configs
from mirror.clusters.transactions import Producer
from mirror.errors import AuthorizationError, MirrorError
from mirror.offsets import progress
from mirror.offsets.terms import TermNote
from mirror.records import records
from mirror.service.ownership import write_as_owner
from mirror.topics.same_offsets import Edges, why_begun, why_translated

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import Topic
    from mirror.config.schema import FlowConfig
    from mirror.offsets.progress import Progress
    from mirror.service.ownership import Owned
    from mirror.topics.merging import Merging
    from mirror.topics.topics import MirroredTopic

log = structlog.get_logger()

_EXPIRATIONS = ("producer.id.expiration.ms", "transactional.id.expiration.ms")
"""After which time leaders forget producers: the second one before Kafka 3.4."""
_DEFAULT_SECONDS = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SameOffsets:
    """What was decided about a flow's topics."""

    notes: Mapping[str, TermNote] = field(default_factory=dict)
    """Of copies with the source's offsets, by source topic."""
    translated: Mapping[str, str] = field(default_factory=dict)
    """Topics whose copies have offsets of their own, and why."""
    waiting: Mapping[str, str] = field(default_factory=dict)
    """Topics that are not copied for now, and why."""

    def knows(self, topic: str) -> bool:
        return topic in self.notes or topic in self.translated or topic in self.waiting


NONE = SameOffsets()
"""Of a flow whose offsets are translated."""


def decide(
    flow: FlowConfig,
    source: Cluster,
    target: Cluster,
    found: Sequence[MirroredTopic],
    *,
    owned: Owned,
    merging: Merging,
) -> SameOffsets:
    """What follows for these topics, which have copies; it is noted for the next runs.

    Raises:
        FencedError: another run started meanwhile.
        ClusterError: a cluster does not answer.
    """
    name = progress.topic_name(flow.source)
    known = progress.read(target, name)
    judged = judge(flow, source, target, found, known=known, merging=merging)
    notes = dict(judged.notes)
    if judged.able:
        # The old id goes on: then what a slot of an earlier copy sends is refused.
        old = next((each.producer_id for each in known.terms.values()), None)
        made = _notes(target, judged.able, old)
        # Positions in a copy that was deleted say nothing about the new one.
        begun = {
            key: replace(position, offset=0, leader_epoch=-1)
            for key, position in known.positions.items()
            if key[0] in made and position.offset
        }
        batches = [
            *records.encode_all(note.record(topic) for topic, note in made.items()),
            *progress.encode(begun, known.running),
        ]
        write_as_owner(target, {name: batches}, owned.owner)
        notes |= made
    told = judged.translated if flow.offsets == "same" else {}
    for topic, reason in told.items():
        log.info("offsets are translated", flow=flow.name, topic=topic, reason=reason)
    for topic, reason in judged.waiting.items():
        log.warning("topic is not copied", flow=flow.name, topic=topic, reason=reason)
    if not (notes or judged.waiting or flow.offsets == "same"):
        return NONE
    return SameOffsets(
        notes=notes, translated=judged.translated, waiting=judged.waiting
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged(SameOffsets):
    """As `SameOffsets`, before anything is noted."""

    able: tuple[MirroredTopic, ...] = ()
    """Topics whose copies can begin with the source's offsets."""


def judge(
    flow: FlowConfig,
    source: Cluster,
    target: Cluster,
    found: Sequence[MirroredTopic],
    *,
    known: Progress,
    merging: Merging,
) -> Judged:
    """What the next run decides about these topics, as things are; copies may be
    missing. `known`: what the progress topic says.

    Raises:
        ClusterError: a cluster does not answer.
    """
    if flow.offsets != "same" and not known.terms:
        return Judged(translated=dict.fromkeys((each.topic for each in found), ""))
    shown = target.topics({each.target_topic for each in found})
    notes = {
        each.topic: note
        for each in found
        if (note := known.terms.get(each.topic)) is not None
        and note.copy_id == shown[each.target_topic].topic_id.hex
    }
    new = [each for each in found if each.topic not in notes]
    if flow.offsets != "same":
        return Judged(
            translated=dict.fromkeys((each.topic for each in new), ""),
            waiting=dict.fromkeys(
                notes,
                "its copy has the source's offsets: set offsets: same again, or make "
                "the copy again with `mirror repair rebuild`",
            ),
        )
    translated, waiting = _obstacles(flow, source, target, new, shown, merging)
    # A copy that had the source's offsets never gets others without a word.
    waiting |= {
        topic: translated.pop(topic) for topic in known.terms.keys() & translated
    }
    return Judged(
        notes=notes,
        translated=translated,
        waiting=waiting,
        able=tuple(
            each
            for each in new
            if not (each.topic in translated or each.topic in waiting)
        ),
    )


def _obstacles(
    flow: FlowConfig,
    source: Cluster,
    target: Cluster,
    topics: Sequence[MirroredTopic],
    shown: Mapping[str, Topic],
    merging: Merging,
) -> tuple[dict[str, str], dict[str, str]]:
    """Topics whose copies cannot have the source's offsets, and those of which that is
    not known now, each with the reason. `shown`: the copies.
    """
    known = configs.describe(source, [each.topic for each in topics]) if topics else {}
    waiting = {
        name: f"its configs are not known: {each.error}"
        for name, each in known.items()
        if each.error is not None
    }
    left = [each for each in topics if each.topic not in waiting]
    translated = {
        each.topic: reason
        for each in left
        if (reason := why_translated(flow, each, known[each.topic].configs, merging))
    }
    left = [each for each in left if each.topic not in translated]
    logs = Edges.read(
        source, [(each.topic, n) for each in left for n in range(each.partitions)]
    )
    copies = Edges.read(
        target,
        [
            (each.target_topic, n)
            for each in left
            for n in range(each.partitions)
            if n < shown[each.target_topic].partitions
        ],
    )
    for each in left:
        reason, is_known = why_begun(each, logs, copies, shown[each.target_topic])
        if reason:
            (translated if is_known else waiting)[each.topic] = reason
    return translated, waiting


def _notes(
    target: Cluster, topics: Collection[MirroredTopic], producer_id: int | None
) -> dict[str, TermNote]:
    if producer_id is None:
        producer = Producer(target, transactional_id=None, transaction_timeout_ms=0)
        producer.take_over()
        producer_id = producer.producer_id
    shown = target.topics([each.target_topic for each in topics])
    return {
        each.topic: TermNote(
            producer_id=producer_id,
            topic_id=each.topic_id,
            copy_id=shown[each.target_topic].topic_id.hex,
        )
        for each in topics
    }


def require_translated(
    flow: FlowConfig, target: Cluster, topics: Iterable[str], *, what: str
) -> None:
    """Check that no copy of these topics has the source's offsets. `what`: what is to
    be done to them.

    Raises:
        MirrorError: one has: its end is the flow's position.
        ClusterError: the target does not answer.
    """
    name = progress.topic_name(flow.source)
    shown = target.topics([name])[name]
    noted = {} if shown.error else progress.read(target, name, wait=False).terms
    if found := sorted(noted.keys() & set(topics)):
        raise MirrorError(
            f"flow {flow.name}: {what} is not possible for {', '.join(found)}: the "
            "copy has the source's offsets (offsets: same), so its end is the flow's "
            "position; `mirror repair rebuild` copies a topic again"
        )


def fresh_seconds(flow: FlowConfig, target: Cluster) -> float:
    """How old the last record of a producer may be whom all leaders remember: half of
    the time after which they forget it, as clocks differ.

    Raises:
        ClusterError: the target does not answer.
    """
    if flow.offsets != "same":
        return _DEFAULT_SECONDS / 2
    try:
        found = brokers.settings(target, _EXPIRATIONS)
    except AuthorizationError:
        return _DEFAULT_SECONDS / 2
    seconds = [int(found[name]) / 1000 for name in _EXPIRATIONS if name in found]
    return min(seconds[0] if seconds else _DEFAULT_SECONDS, _DEFAULT_SECONDS) / 2
