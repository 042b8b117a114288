"""Step 6: groups go on at the same record on the other cluster.

Offsets are set, not only moved forward: what a group once read in a test there does not
count. They are read back afterwards. Without the source they come from the last
checkpoints, brought up to date by the map.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from mirror.clusters import codes
from mirror.clusters.admin import group_offsets
from mirror.clusters.admin.group_offsets import CommittedOffset
from mirror.recovery import arrivals, failover_report
from mirror.recovery.group_places import places_of
from mirror.recovery.stage import Done, Stage, Step, StepError, nothing_to_undo
from mirror.recovery.steps import consumers
from mirror.status.wording import named, some

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mirror.clusters.topics import TopicPartition
    from mirror.recovery.group_places import GroupPlaces


def _set(stage: Stage) -> Done:
    found = places_of(stage)
    if found.failures:
        raise StepError(_named(found.failures))
    unknown = found.unknown
    if unknown and stage.planned:
        raise StepError(
            f"the position of {unknown[0]} on {stage.flow.target} is not known, nor of "
            f"{len(unknown) - 1} more: `mirror group describe` shows them; leave the "
            "group out with groups_exclude, or set its offsets there afterwards"
        )
    wanted = _wanted(found)
    back, sums = _apply(stage, wanted)
    exact = Counter(
        str(place.exactness)
        for places in found.places.values()
        for place in places.values()
    )
    partitions = sum(map(len, wanted.values()))
    counts = ", ".join(f"{count} {name}" for name, count in exact.most_common())
    return Done(
        text=f"{some(len(wanted), 'group')}, {some(partitions, 'partition')} set on "
        f"{stage.flow.target} and read back: {counts or 'none'}",
        notes={
            "groups": len(wanted),
            "exactness": dict(exact),
            "moved_back": back,
            arrivals.SUMS: sums,
            failover_report.STANDING: failover_report.standing(stage, found),
            failover_report.PARTIAL: list(found.partial),
        },
        warnings=tuple(
            f"{name}: its position is not known; it begins where its "
            "auto.offset.reset says"
            for name in unknown
        ),
    )


def require_settled(stage: Stage) -> None:
    """Set again what groups have committed since; from here on they stand still.

    Raises:
        StepError: a group came back, or an offset cannot be set.
    """
    found = places_of(stage)
    if stage.planned and (found.failures or found.unknown):
        problems = (_named(found.failures), named(found.unknown))
        raise StepError(f"no longer known: {', '.join(filter(None, problems))}")
    _apply(stage, _wanted(found))
    if not stage.planned:
        return
    if left := consumers.busy(stage, found.places):
        raise StepError(f"{left}: they came back after the groups were empty")


def _named(failures: Iterable[tuple[str, str]]) -> str:
    return named([f"{group}: {why}" for group, why in failures])


def _wanted(found: GroupPlaces) -> dict[str, dict[TopicPartition, CommittedOffset]]:
    return {
        group: {
            key: CommittedOffset(place.offset, place.metadata)
            for key, place in places.items()
            if place.offset >= 0
        }
        for group, places in found.places.items()
    }


def _apply(
    stage: Stage, wanted: Mapping[str, Mapping[TopicPartition, CommittedOffset]]
) -> tuple[list[str], dict[str, int]]:
    """Set offsets and read them back; returns what moved back, in words, and what
    `arrivals` compares with later.

    Raises:
        StepError: they are not as they should be.
    """
    target = stage.target
    there = group_offsets.fetch(target, wanted)
    steps = {
        group: changed
        for group, places in wanted.items()
        if (
            changed := {
                key: value
                for key, value in places.items()
                if there.groups.get(group, {}).get(key) != value
            }
        )
    }
    back = [
        f"{group} in {key[0]}-{key[1]} from {old.offset} to {value.offset}"
        for group, changed in steps.items()
        for key, value in changed.items()
        if (old := there.groups.get(group, {}).get(key)) and old.offset > value.offset
    ]
    now = there
    if steps:
        stage.note({})
        refused = group_offsets.commit(target, steps)
        for group, answers in refused.items():
            key, code = next(iter(answers.items()))
            raise StepError(
                f"{target.alias} refuses to set group {group} in {key[0]}-{key[1]}: "
                f"{codes.name_of(code)}"
            )
        now = group_offsets.fetch(target, wanted)
    for group, places in wanted.items():
        for key, value in places.items():
            found = now.groups.get(group, {}).get(key)
            if found is None or found.offset != value.offset:
                raise StepError(
                    f"group {group} in {key[0]}-{key[1]} on {target.alias} is at "
                    f"{found.offset if found else 'no offset'}, not at {value.offset}: "
                    "something else sets it"
                )
    return back, arrivals.sums(now.groups)


STEP = Step(do=_set, undo=nothing_to_undo)
