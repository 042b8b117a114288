"""How a switch has ended, as a look from outside shows; step 9 tells it.

Whether applications have arrived at the cluster that is active now: `ends` is noted
before they could write there, and `first_write` and `not_arrived` look what has changed
since. A group with nothing to read does not move, so one with members has arrived as
well.

Whether the last records of each partition are the same on both clusters, record by
record, as `mirror verify` compares them: `compare_last_records`. `begin_comparing` has
that done ahead in a thread, which also loads what compares: what was copied until the
cut stays as it is, and while producers are stopped the clusters have time for it.

What a failover has cost: `failover_report`, from the service's last look at the source,
what was noted when positions were set, and the times in the journal.
"""

from __future__ import annotations

from concurrent.futures import Future, wait
from dataclasses import dataclass, replace
from importlib import import_module
from itertools import islice
import threading
import time
from typing import TYPE_CHECKING

from mirror import patience
from mirror.clusters.admin import group_offsets, groups, topic_admin
from mirror.clusters.reach import Reach
from mirror.errors import MirrorError
from mirror.pairs import roles
from mirror.records.reading import TopicReader
from mirror.recovery.stage import Done
from mirror.recovery.steps.positions import PARTIAL, STANDING, sums
from mirror.status.wording import moment, some

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import TopicPartition
    from mirror.proofs.verification import PartitionProof
    from mirror.recovery.stage import Stage
    from mirror.status.values import RiskStatus

ENDS = "ends"
_MOST_READ = 100
"""Partitions in which the first new record is read."""
_FETCH_BYTES = 64 << 10
MOST_COMPARED = 1000
"""Source offsets of each partition."""
_RANGE_BYTES = 32 << 20
"""Fetches are an eighth of it; at the end of a log none brings more than is needed."""
_COMPARED_AT_ONCE = 8
_BESIDE = "last records"
_OF_GROUP = (
    *("group", "position_age_seconds", "may_read_again", "unknown_partitions"),
)


def ends(cluster: Cluster, topics: Collection[str]) -> dict[str, list[int]]:
    """Where the partitions of these topics end, in their order; -1: not known. A topic
    that does not exist has none.
    """
    there = cluster.topics()
    keys = [
        (name, number)
        for name in topics
        if name in there
        for number in range(there[name].partitions)
    ]
    found = topic_admin.list_offsets(
        cluster, keys, timestamp=topic_admin.LATEST, committed=False, topics=there
    )
    by_topic: dict[str, list[int]] = {name: [] for name in topics}
    for key in keys:
        by_topic[key[0]].append(found.get(key, -1))
    return by_topic


def first_write(cluster: Cluster, before: Mapping[str, list[int]]) -> float | None:
    """When the first record came after these ends, by its own timestamp, epoch seconds;
    None if none has come. Partitions that did not exist then are in no list; of those
    without a leader then nothing can be said.
    """
    grown = {
        (name, number): (start, end)
        for name, now in ends(cluster, before).items()
        for number, end in enumerate(now)
        for start in [dict(enumerate(before[name])).get(number, 0)]
        if end > start >= 0
    }
    read = dict(islice(grown.items(), _MOST_READ))
    # Retention may have removed what came first.
    kept = topic_admin.list_offsets(cluster, [*read], timestamp=topic_admin.EARLIEST)
    times = [
        _time_at(cluster, key, max(start, kept[key]), end)
        for key, (start, end) in read.items()
        if key in kept
    ]
    return min(times, default=None)


def _time_at(cluster: Cluster, key: TopicPartition, offset: int, end: int) -> float:
    """Of the first record between these offsets; infinite: there is none any more, or
    there are markers only.
    """
    if offset >= end:
        return float("inf")
    from mirror.records import scan  # noqa: PLC0415  loads kernels

    reader = TopicReader(
        cluster, key[0], partition=key[1], position=offset, committed=False,
        fetch_bytes=_FETCH_BYTES,
    )  # fmt: skip
    for _, rows in reader.batches(offset + 1):
        if len(rows):
            return float(rows[0, scan.BASE_TIME]) / 1000
    return float("inf")


def not_arrived(
    cluster: Cluster, before: Mapping[str, int]
) -> tuple[list[str], list[str]]:
    """The groups that have not moved since these sums, and those of them that have no
    members, so that they have not arrived.
    """
    now = sums(group_offsets.fetch(cluster, before).groups)
    still = sorted(name for name, at in before.items() if now.get(name, at) == at)
    there = groups.list_groups(cluster) if still else {}
    return still, [name for name in still if name not in there or there[name].idle]


@dataclass(frozen=True, slots=True, kw_only=True)
class LastRecords:
    """The outcome."""

    text: str
    warnings: tuple[str, ...] = ()


def load_comparing() -> None:
    """Begin to load what compares, which takes Python half a second of CPU."""
    threading.Thread(target=_load, name="mirror-load-ahead", daemon=True).start()


def begin_comparing(stage: Stage) -> None:
    """Compare on connections of its own while the next steps are done, for as long as
    this one may take. The thread ends with the process.
    """
    begun: Future[LastRecords] = Future()
    stage.beside[_BESIDE] = begun

    def run() -> None:
        try:
            with (
                patience.until(stage.deadline),
                Reach(stage.config.clusters, client_id="mirror.switch") as reach,
            ):
                alone = replace(
                    stage,
                    source_or_none=reach(stage.flow.source),
                    target_or_none=reach(stage.flow.target),
                    tell=lambda _text: None,
                )
                begun.set_result(_compare(alone))
        except Exception as error:  # noqa: BLE001  `compare_last_records` does it once more
            begun.set_exception(error)

    threading.Thread(target=run, name="mirror-last-records", daemon=True).start()


def compare_last_records(stage: Stage) -> LastRecords:
    """Compare the ends of all partitions that the flow copies, once more if that was
    done ahead and anything was not as it should be. Where that fails, or takes too
    long, is a warning: it proves what is so already.
    """
    if (begun := stage.beside.get(_BESIDE)) is not None:
        stage.tell("comparing the last records")
        wait([begun], timeout=max(stage.deadline - time.monotonic(), 0.0))
        if begun.done() and begun.exception() is None:
            found: LastRecords = begun.result()
            if not found.warnings:
                return found
    try:
        return _compare(stage)
    except MirrorError as error:
        return LastRecords(
            text="the last records were not compared",
            warnings=(f"the last records were not compared: {error}",),
        )


def _load() -> None:
    import_module("mirror.proofs.steps")  # and compiled kernels


def _compare(stage: Stage) -> LastRecords:
    """Only the end of each partition, in this process, until the step's time is up.

    Raises:
        MirrorError: a cluster does not answer, or refuses.
    """
    # Compiled kernels, for which steps that block producers must not wait.
    from mirror.proofs.ranges import RunFiles  # noqa: PLC0415
    from mirror.proofs.runners import InProcess  # noqa: PLC0415
    from mirror.proofs.sides import keeping  # noqa: PLC0415
    from mirror.proofs.steps import ProofStep  # noqa: PLC0415

    step = ProofStep(stage.config, stage.flow, stage.source, stage.target, InProcess())
    proofs: list[PartitionProof] = []
    with RunFiles() as files, keeping():
        found = step.survey(files, {}, ".*")
        ends = [
            replace(
                of, source_first=max(of.source_first, of.source_end - MOST_COMPARED)
            )
            for of in found.partitions
        ]
        for at in range(0, len(ends), _COMPARED_AT_ONCE):
            if time.monotonic() > stage.deadline:
                break
            stage.tell(f"compared {at} of {some(len(ends), 'partition')}")
            some_ends = tuple(ends[at : at + _COMPARED_AT_ONCE])
            chosen = {
                of.key: list(found.ranges(of, most=MOST_COMPARED)) for of in some_ends
            }
            proven = step.prove(
                replace(found, partitions=some_ends),
                chosen, at=time.time(), range_bytes=_RANGE_BYTES,
            )  # fmt: skip
            proofs += proven.values()
    findings = [each for proof in proofs for each in proof.wrong]
    failures = [each.failure for each in proofs if each.failure]
    warnings = [*found.unproven.values(), *failures[:1]]
    if findings:
        first = findings[0]
        warnings.append(
            f"{some(len(findings), 'finding')} among the last records, such as "
            f"{first.kind} in {first.topic}-{first.partition} at offset "
            f"{first.source if first.source is not None else first.target}: "
            f"`mirror verify --flow '{stage.flow.name}'` names all"
        )
    if left := len(ends) - len(proofs):
        warnings.append(f"{some(left, 'partition')} not compared: no time was left")
    alike = sum(not each.wrong and not each.failure for each in proofs)
    text = f"the last {MOST_COMPARED:,} records are equal in {alike} of "
    text += some(len(ends), "partition")
    return LastRecords(text=text, warnings=tuple(warnings))


def lost(risk: RiskStatus) -> str:
    """What a failover loses, in words."""
    text = f"{some(risk.records, 'record')} not copied"
    if risk.unknown:
        text += f", and an unknown number in {some(risk.unknown, 'partition')}"
    return text


def failover_report(stage: Stage, risk: RiskStatus) -> Done:
    """What the failover has cost, now that nothing copies any more.

    RPO is the time before the last look of which something was not copied. RTO is from
    the command's beginning to when the other cluster was active, as far as mirror is
    concerned: hooks of step 8 come after it.
    """
    seconds = {
        step: round(last - began, 3) for step, (began, last) in stage.times.items()
    }
    began = min(each for each, _ in stage.times.values())
    _, opened = stage.times[roles.ROLE]
    text = f"as of {moment(risk.at)}, {lost(risk)}"
    groups = stage.notes["positions"].get(STANDING, [])
    warnings = [*stage.notes["positions"].get(PARTIAL, ())]
    if not groups:
        warnings.append(
            f"no group has a checkpoint or an offset on {stage.flow.target}: each "
            "begins there as its auto.offset.reset says"
        )
    return Done(
        text=f"{stage.flow.target} is active; {text}",
        warnings=tuple(warnings),
        notes={
            "text": text,
            "records": risk.records,
            "bytes": risk.bytes,
            "seconds": risk.seconds,
            "unknown_partitions": risk.unknown,
            "as_of": risk.at,
            "rpo_seconds": risk.seconds,
            "rto_seconds": round(opened - began, 3),
            "step_seconds": seconds,
            "lost": [
                {
                    "topic": each.topic,
                    "partition": each.partition,
                    "records": each.records,
                    "bytes": each.bytes,
                    "seconds": each.seconds,
                    "reason": each.reason,
                }
                for each in risk.partitions
            ],
            "groups": [dict(zip(_OF_GROUP, row, strict=True)) for row in groups],
        },
    )
