"""Which topics of the cluster that is back can be filled from the active one.

Main functions: `origins`, where what was copied of them is; `require_possible`, which
refuses what cannot come home as it was; `require_no_own`, which refuses topics that
have records from elsewhere, since filling begins with emptying. Nothing here changes a
cluster.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from mirror.clusters.wire import fetch
from mirror.errors import NoLeaderError
from mirror.offsets import runs
from mirror.offsets.reverse_start import edges, find_starts
from mirror.proofs.log_stream import LogStream, OffsetRange
from mirror.recovery.stage import StepError
from mirror.retry import patiently
from mirror.topics.topics import select

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import TopicPartition
    from mirror.offsets.reverse_start import Edges
    from mirror.recovery.stage import Stage


def origins(stage: Stage, topics: Collection[str]) -> dict[str, str]:
    """The topic of the active cluster that has what was copied of each."""
    name = stage.reverse.replication_policy.target_topic
    return {topic: name(topic) for topic in topics}


def copied_home(stage: Stage) -> dict[str, str]:
    """The topics that the flow home copies, by the name of their copies."""
    found = select(stage.source, stage.flow).topics
    return {each.target_topic: each.topic for each in found}


def require_possible(stage: Stage, topics: Collection[str]) -> None:
    """Check that these topics can be filled.

    Raises:
        StepError: with the reason.
    """
    home, out = stage.flow, stage.reverse
    both = (home, out)
    names, written = origins(stage, topics), copied_home(stage)
    there = stage.source.topics(names.values())
    reason = ""
    if not all(flow.provenance and flow.exactly_once for flow in both):
        reason = "that needs provenance and exactly_once in both flows"
    elif any(flow.transform is not None for flow in both):
        reason = "a flow with a function changes records"
    elif gone := sorted(each for each in names.values() if not there[each].partitions):
        reason = f"{home.source} has no {gone[0]}"
    else:
        for topic, origin in sorted(names.items()):
            if (other := written.get(topic, origin)) != origin:
                reason = f"{home.name} copies {other} to {topic}, not {origin}"
    if reason:
        raise StepError(
            f"`--restore` cannot fill {', '.join(sorted(topics))}: {reason}; nothing "
            "has changed"
        )
    own = (runs.topic_name(home.source, home.separator), 0)
    log = edges(stage.target, [own]).get(own)
    if log is None or log.cut == log.end:
        require_no_own(stage, names)
    # Else a restore that was killed may hide the map's end: the restore looks.


def require_no_own(
    stage: Stage,
    names: Mapping[str, str],
    ends: Mapping[TopicPartition, int] = MappingProxyType({}),
) -> None:
    """Refuse where a topic has records that did not come from the active cluster: they
    would go when it is emptied, up to these ends. Behind those there may be no records
    at all. `names` is what `origins` says.

    Raises:
        StepError: it has.
        NoLeaderError: a partition has no leader for a long time.
    """
    home, back = stage.flow, stage.target
    here = back.topics(names)
    keys = [(name, n) for name in names for n in range(here[name].partitions)]

    def ask() -> dict[TopicPartition, Edges]:
        logs = edges(back, keys)
        if missing := set(keys) - logs.keys():
            topic, number = min(missing)
            raise NoLeaderError(f"{topic}-{number} on {home.target} has no leader")
        return logs

    logs = patiently(ask)  # the leaders of a new topic do not lead it at once
    filled = [key for key in keys if logs[key].start < logs[key].end]
    found = {}
    if back.topic(runs.topic_name(home.source, home.separator)) is not None:
        asked = {(topic, n): (names[topic], n) for topic, n in filled}
        starts = find_starts(home, back, asked, {})
        found = {key: start.offset for key, start in starts.items()}
    for key in filled:
        if key in ends and (
            logs[key].cut < ends[key] or _has_records(back, key, logs[key], ends[key])
        ):
            raise StepError(
                f"another command or a client writes to {key[0]}-{key[1]} on "
                f"{home.target}: run this one again"
            )
        first = found.get(key, logs[key].start)
        if _has_records(back, key, logs[key], first):
            raise StepError(
                f"{key[0]}-{key[1]} was re-created on {home.target} and has records "
                f"that did not come from {home.source}: move them away and delete the "
                "topic, then run this again"
            )


def _has_records(cluster: Cluster, key: TopicPartition, log: Edges, first: int) -> bool:
    wanted = OffsetRange(
        topic=key[0], partition=key[1], topic_id=log.topic_id, first=first, end=log.cut
    )
    if first >= log.cut:
        return False
    stream = LogStream(cluster, wanted, isolation=fetch.READ_COMMITTED)
    return any(len(some.places) for some in stream.listed())
