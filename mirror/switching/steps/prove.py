"""Step 9: what a look from outside shows after the switch.

The logs of the cluster that was active must stand where they were cut: a producer that
goes on writing there is a warning, with the partition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror.clusters.admin import topic_admin
from mirror.status.wording import moment, some
from mirror.switching.stage import Done, Stage, Step, nothing_to_undo
from mirror.switching.steps.assess import look, lost
from mirror.switching.steps.fence import cut_of

if TYPE_CHECKING:
    from mirror.status.risk import RiskStatus


def _prove(stage: Stage) -> Done:
    if not stage.planned:
        return _told(look(stage), stage)
    cut = cut_of(stage)
    now = topic_admin.list_offsets(
        stage.source, list(cut), timestamp=topic_admin.LATEST, committed=False
    )
    grown = sorted(key for key, end in now.items() if end > cut[key])
    warnings = []
    if grown:
        first = f"{grown[0][0]}-{grown[0][1]}"
        warnings.append(
            f"somebody writes to {stage.flow.source} still: "
            f"{some(len(grown), 'partition')}, such as {first}. These records are not "
            f"copied: point the producer at {stage.flow.target}"
        )
    return Done(
        text=f"{stage.flow.source} is {'not quiet' if warnings else 'quiet'}",
        warnings=tuple(warnings),
    )


def _told(risk: RiskStatus, stage: Stage) -> Done:
    """What was lost, now that nothing copies any more."""
    text = f"as of {moment(risk.at)}, {lost(risk)}"
    return Done(
        text=f"{stage.flow.target} is active; {text}",
        notes={
            "text": text,
            "records": risk.records,
            "bytes": risk.bytes,
            "seconds": risk.seconds,
            "unknown_partitions": risk.unknown,
            "as_of": risk.at,
            "lost": [
                [each.topic, each.partition, each.records, each.seconds, each.reason]
                for each in risk.partitions
            ],
        },
    )


STEP = Step(do=_prove, undo=nothing_to_undo)
