"""What a failover has cost: records that were not copied, positions, seconds.

Main functions: `standing`, how old each group's position is and what it may read again,
noted when positions are set; and `told`, the report, from that, from the service's last
look at the source, and from the times in the journal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mirror.clusters.admin import group_offsets, topic_admin
from mirror.config import scopes
from mirror.offsets import checkpoints, progress
from mirror.offsets.checkpoints import checkpoints_topic
from mirror.pairs import roles
from mirror.policy.selection import GroupFilter
from mirror.recovery.stage import Done
from mirror.status.wording import moment, some

if TYPE_CHECKING:
    from mirror.recovery.group_places import GroupPlaces
    from mirror.recovery.stage import Stage
    from mirror.status.values import RiskStatus

STANDING = "standing"
PARTIAL = "partial"


def lost(risk: RiskStatus) -> str:
    """What a failover loses, in words."""
    text = f"{some(risk.records, 'record')} not copied"
    if risk.unknown:
        text += f", and an unknown number in {some(risk.unknown, 'partition')}"
    return text


def standing(stage: Stage, found: GroupPlaces) -> list[list[Any]]:
    """Without the source: of each group its name, the age of its position in seconds
    when the source was last seen, how many records it reads again at most, and in how
    many partitions that is not known.

    The position in a copy is from the group's last checkpoint; what it committed after
    that, it reads again, and it cannot have read more than was copied. In topics that
    the flow back copies it is where the group stopped here, whatever it read of their
    copies since. Where it has no position, `auto.offset.reset` decides. -1: not known.

    Raises:
        ClusterError: the target does not answer.
    """
    if stage.planned:
        return []
    flow, target = stage.flow, stage.target
    seen = float(stage.notes["assess"].get("as_of", 0.0))
    written = checkpoints.times(
        target, checkpoints_topic(flow.source, flow.mm2_separator)
    )
    copies = {
        (flow.replication_policy.target_topic(topic), number)
        for topic, number in progress.read(
            target, progress.topic_name(flow.source), committed=False
        ).positions
    }
    known = {
        group: offsets | {k: p.offset for k, p in places.items() if p.offset >= 0}
        for group, offsets in _offsets(stage, found).items()
        if (places := found.places.get(group, {})) or offsets
    }
    topics = target.topics()  # somebody may have deleted a copy
    keys = {key for key in copies.union(*known.values()) if key[0] in topics}
    first, ends = (
        topic_admin.list_offsets(target, keys, timestamp=at)
        for at in (topic_admin.EARLIEST, topic_admin.LATEST)
    )
    filled = {key for key in copies if ends.get(key, 0) > first.get(key, 0)}
    rows: list[list[Any]] = []
    for group, offsets in sorted(known.items()):
        again = sum(max(ends[k] - at, 0) for k, at in offsets.items() if k in ends)
        unknown = len((filled | found.places.get(group, {}).keys()) - offsets.keys())
        age = max(seen - written[group], 0.0) if seen and group in written else -1.0
        if group in found.places or again or unknown:
            rows.append([group, round(age, 3), again, unknown])
    return rows


def _offsets(stage: Stage, found: GroupPlaces) -> dict[str, dict[tuple[str, int], int]]:
    """Where the pair's groups are on the target, in the topics of either flow."""
    flow, back = stage.flow, stage.reverse
    wanted = GroupFilter(include=flow.groups, exclude=flow.groups_exclude)
    names = {
        name
        for name in found.on_target
        if wanted.matches(name) and scopes.has_group(stage.pair, name)
    } | found.places.keys()
    upstream = flow.replication_policy.upstream_topic
    return {
        group: {
            key: committed.offset
            for key, committed in offsets.items()
            if back.topic_filter.matches(key[0]) or upstream(key[0])
        }
        for group, offsets in group_offsets.fetch(stage.target, names).groups.items()
    }


def told(stage: Stage, risk: RiskStatus) -> Done:
    """The report, now that nothing copies any more.

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


_OF_GROUP = (
    *("group", "position_age_seconds", "may_read_again", "unknown_partitions"),
)
