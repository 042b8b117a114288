"""What a failover has cost: records that were not copied, positions, seconds.

Main functions: `standing`, how old each group's position is and what it may read again,
noted when positions are set; and `told`, the report, from that, from the service's last
look at the source, and from the times in the journal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mirror.clusters.admin import topic_admin
from mirror.offsets import checkpoints
from mirror.offsets.mm2_records import checkpoints_topic
from mirror.recovery import roles
from mirror.status.wording import moment, some
from mirror.switching.stage import Done

if TYPE_CHECKING:
    from mirror.status.risk import RiskStatus
    from mirror.switching.group_places import GroupPlaces
    from mirror.switching.stage import Stage

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

    The position is from the group's last checkpoint; what it committed after that, it
    reads again, and it cannot have read more than was copied. -1: not known.

    Raises:
        ClusterError: the target does not answer.
    """
    if stage.planned:
        return []
    flow = stage.flow
    seen = float(stage.notes["assess"].get("as_of", 0.0))
    written = checkpoints.times(
        stage.target, checkpoints_topic(flow.source, flow.mm2_separator)
    )
    ends = topic_admin.list_offsets(
        stage.target,
        {key for places in found.places.values() for key in places},
        timestamp=topic_admin.LATEST,
    )
    rows: list[list[Any]] = []
    for group, places in sorted(found.places.items()):
        known = {k: p.offset for k, p in places.items() if p.offset >= 0 and k in ends}
        again = sum(max(ends[key] - offset, 0) for key, offset in known.items())
        age = max(seen - written[group], 0.0) if seen and group in written else -1.0
        rows.append([group, round(age, 3), again, len(places) - len(known)])
    return rows


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
    return Done(
        text=f"{stage.flow.target} is active; {text}",
        warnings=tuple(stage.notes["positions"].get(PARTIAL, ())),
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
            "groups": [
                dict(zip(_OF_GROUP, row, strict=True))
                for row in stage.notes["positions"].get(STANDING, [])
            ],
        },
    )


_OF_GROUP = (
    *("group", "position_age_seconds", "may_read_again", "unknown_partitions"),
)
