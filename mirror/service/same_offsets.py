"""Decides which copies of a flow have the source's offsets, at the start of each run.

Main function: `decide`, which the driver calls once it is the only writer. What was
decided for a copy stays: its `TermNote` stands in the progress topic, in a transaction
of the owner, before the first record is written. Copies that have records already, or
cannot have the source's offsets, are translated as ever.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import structlog

from mirror.clusters.admin import brokers, configs
from mirror.clusters.transactions import Producer
from mirror.errors import AuthorizationError
from mirror.offsets import progress
from mirror.offsets.terms import TermNote
from mirror.records import records
from mirror.service.ownership import write_as_owner
from mirror.topics.same_offsets import Edges, why_begun, why_translated

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mirror.clusters.cluster import Cluster
    from mirror.config.schema import FlowConfig
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
    noted = known.terms
    if flow.offsets != "same" and not noted:
        return NONE
    ids = {
        copy: shown.topic_id.hex
        for copy, shown in target.topics({each.target_topic for each in found}).items()
    }
    notes = {
        each.topic: noted[each.topic]
        for each in found
        if each.topic in noted and noted[each.topic].copy_id == ids[each.target_topic]
    }
    if flow.offsets != "same":
        return SameOffsets(
            translated={e.topic: "" for e in found if e.topic not in notes},
            waiting=dict.fromkeys(
                notes,
                "its copy has the source's offsets: set offsets: same again, or make "
                "the copy again with `mirror topic rebuild`",
            ),
        )
    new = [each for each in found if each.topic not in notes]
    translated, waiting = _obstacles(flow, source, target, new, merging)
    # A copy that had the source's offsets never gets others without a word.
    waiting |= {topic: translated.pop(topic) for topic in noted.keys() & translated}
    able = [e for e in new if not (e.topic in translated or e.topic in waiting)]
    if able:
        # The old id goes on: then what a slot of an earlier copy sends is refused.
        old = next((each.producer_id for each in noted.values()), None)
        made = _notes(target, able, ids, old)
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
    for topic, reason in translated.items():
        log.info("offsets are translated", flow=flow.name, topic=topic, reason=reason)
    for topic, reason in waiting.items():
        log.warning("topic is not copied", flow=flow.name, topic=topic, reason=reason)
    return SameOffsets(notes=notes, translated=translated, waiting=waiting)


def _obstacles(
    flow: FlowConfig,
    source: Cluster,
    target: Cluster,
    topics: Iterable[MirroredTopic],
    merging: Merging,
) -> tuple[dict[str, str], dict[str, str]]:
    """Topics whose copies cannot have the source's offsets, and those of which that is
    not known now, each with the reason.
    """
    new = list(topics)
    known = configs.describe(source, [each.topic for each in new]) if new else {}
    waiting = {
        name: f"its configs are not known: {each.error}"
        for name, each in known.items()
        if each.error is not None
    }
    new = [each for each in new if each.topic not in waiting]
    translated = {
        each.topic: reason
        for each in new
        if (reason := why_translated(flow, each, known[each.topic].configs, merging))
    }
    left = [each for each in new if each.topic not in translated]
    logs = Edges.read(
        source, [(each.topic, n) for each in left for n in range(each.partitions)]
    )
    copies = Edges.read(
        target,
        [(each.target_topic, n) for each in left for n in range(each.partitions)],
    )
    for each in left:
        reason, is_known = why_begun(each, logs, copies)
        if reason:
            (translated if is_known else waiting)[each.topic] = reason
    return translated, waiting


def _notes(
    target: Cluster,
    topics: Iterable[MirroredTopic],
    ids: Mapping[str, str],
    producer_id: int | None,
) -> dict[str, TermNote]:
    if producer_id is None:
        producer = Producer(target, transactional_id=None, transaction_timeout_ms=0)
        producer.take_over()
        producer_id = producer.producer_id
    return {
        each.topic: TermNote(
            producer_id=producer_id,
            topic_id=each.topic_id,
            copy_id=ids[each.target_topic],
        )
        for each in topics
    }


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
