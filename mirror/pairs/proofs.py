"""Proofs: how far each partition was proven, kept on the target.

A compacted topic of one partition per source cluster; main type: `Proof`. Layout: key =
`<topic>-<partition>` as on the source, value = JSON with `version`, `topic_id`,
`source_offset` and `target_offset` (both the next to prove), `at`, `records`,
`findings`, `root` (SHA-256 in hex), `mode` (`map` or `content`) and `copy_id`, without
which it holds for any copy.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
import json
from typing import TYPE_CHECKING
import uuid

from mirror.clusters.topics import NO_ID, TopicPartition
from mirror.config import own_topics
from mirror.errors import MALFORMED, ClusterError
from mirror.records.reading import TopicReader
from mirror.records.writing import append, ensure_topic

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirror.clusters.cluster import Cluster
    from mirror.config.schema import FlowConfig


VERSION = 1
BY_MAP = "map"
BY_CONTENT = "content"


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """How far one partition was proven, last time."""

    topic: str
    partition: int
    topic_id: uuid.UUID
    """The source topic's."""
    source_offset: int
    target_offset: int
    at: float
    """When the proof began, epoch seconds: what was copied by then is proven."""
    records: int
    findings: int
    root: str
    mode: str = BY_MAP
    copy_id: uuid.UUID = NO_ID
    """Of the copy's topic: another copy is not proven."""


def topic_name(source_alias: str) -> str:
    """The target topic with the proofs of a source cluster's topics."""
    return own_topics.PROOFS.named(source_alias)


def write(target: Cluster, flow: FlowConfig, proofs: Sequence[Proof]) -> None:
    """Keep these proofs, instead of earlier ones of the same partitions.

    Raises:
        MirrorError: the topic cannot be created, or written to.
    """
    if not proofs:
        return
    name = topic_name(flow.source)
    ensure_topic(
        target,
        own_topics.PROOFS,
        name,
        replication_factor=flow.replication_factor,
    )
    append(
        target,
        name,
        [
            (
                f"{proof.topic}-{proof.partition}".encode(),
                json.dumps(document(proof), ensure_ascii=False).encode(),
            )
            for proof in proofs
        ],
    )


def read(target: Cluster, source_alias: str) -> dict[TopicPartition, Proof]:
    """The last proof of each partition; nothing if there is none yet.

    Raises:
        ClusterError: the target does not answer, or a record is not ours.
    """
    name = topic_name(source_alias)
    if target.topic(name) is None:
        return {}
    found = {}
    for _, key, value in TopicReader(target, name).read():
        proof = decode(key, value)
        found[proof.topic, proof.partition] = proof
    return found


def document(proof: Proof) -> dict[str, object]:
    """As in the topic."""
    at = datetime.fromtimestamp(proof.at, UTC).isoformat(timespec="milliseconds")
    return {
        "version": VERSION,
        "topic_id": proof.topic_id.hex,
        "source_offset": proof.source_offset,
        "target_offset": proof.target_offset,
        "at": at.replace("+00:00", "Z"),
        "records": proof.records,
        "findings": proof.findings,
        "root": proof.root,
        "mode": proof.mode,
        "copy_id": proof.copy_id.hex,
    }


def decode(key: bytes, value: bytes) -> Proof:
    """One record of the topic.

    Raises:
        ClusterError: it is damaged, or from a newer version of mirror.
    """
    try:
        told = json.loads(value)
        if told["version"] != VERSION:
            raise ClusterError(
                f"there is a proof of version {told['version']}; this mirror reads "
                f"{VERSION}: use the newest mirror for this target"
            )
        topic, _, partition = key.decode().rpartition("-")
        return Proof(
            topic=topic,
            partition=int(partition),
            topic_id=uuid.UUID(told["topic_id"]),
            source_offset=int(told["source_offset"]),
            target_offset=int(told["target_offset"]),
            at=datetime.fromisoformat(told["at"]).timestamp(),
            records=int(told["records"]),
            findings=int(told["findings"]),
            root=str(told["root"]),
            mode=str(told["mode"]),
            copy_id=uuid.UUID(told.get("copy_id", NO_ID.hex)),
        )
    except MALFORMED as error:
        raise ClusterError(f"a proof is damaged: {error!r}") from error
