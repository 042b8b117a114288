"""The parts of a flow, and services that get in each other's way.

Several services may share out a flow's topics, each with a `part`. Main functions:
`taken_up`, the generation with which a run begins, and `without`, a flow that leaves
the topics of earlier parts alone. Main type: `Instance`, which refuses to begin beside
a service that copies the same. All parts are noted in one generation, and begin one
after the other (`ownership`), so what one of them reads there no other changes.
"""

from __future__ import annotations

from dataclasses import replace
import json
from typing import TYPE_CHECKING

from mirror.clusters.admin import groups
from mirror.clusters.admin.groups import Group, GroupKind
from mirror.config import scopes
from mirror.driver.generation import Generation, Part, new_id
from mirror.errors import MALFORMED, ClusterError, DividedError
from mirror.host import process_name
from mirror.status.wording import some

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mirror.clusters.cluster import Cluster
    from mirror.config.schema import FlowConfig, MirrorConfig
    from mirror.offsets.progress import Position, Progress

TopicPartition = tuple[str, int]

_TOO_OFTEN = 2
"""So many runs of one other instance, outside our group: so it is not gone. During a
rolling restart there is one."""
_REMEDY = (
    "If each service is to copy topics of its own, give the flow another `part: NAME` "
    "in each of them; if they are instances of one service, give them one service.group"
)


class Instance:
    """This process, as it begins runs of one flow."""

    def __init__(self, flow: FlowConfig, *, group: str | None) -> None:
        """`flow`: with all topics that it selects; `group`: None if the instance leads
        whatever it runs.
        """
        self.by = process_name()
        self.group = group or ""
        self.flow = flow
        self._met: dict[str, set[str]] = {}
        """By instance that took over, the runs of it that were found."""

    @classmethod
    def of(cls, flow: FlowConfig, config: MirrorConfig, *, once: bool) -> Instance:
        """`once`: it takes no part in a group."""
        return cls(flow, group=None if once else config.service.group)

    def require_room(self, known: Generation, target: Cluster) -> None:
        """Check that no other service copies the same topics.

        Raises:
            DividedError: one does.
        """
        flow, part = self.flow, self.flow.part
        if part is None and known.parts:
            names = ", ".join(each.name for each in known.parts)
            raise DividedError(
                f"flow {flow.name}: services copy it in parts ({names}), and this one "
                "has no part. Give it a `part: NAME` of its own, with topics that the "
                f"others do not select, or end the parts with `mirror flow unite "
                f"'{flow.name}'`"
            )
        last = known if part is None else known.part(part)
        if last is not None and not (last.group == self.group != ""):
            self._require_gone(last, target, flow.label)
        if part is not None:
            self._require_gone(known, target, flow.name)

    def _require_gone(
        self, run: Generation | Part, target: Cluster, label: str
    ) -> None:
        by = run.by
        if by in {"", self.by}:
            return
        if _leads(by, run.group, target, label):
            raise DividedError(
                f"flow {label}: another service copies it, the process {by} of the "
                f"group {run.group}. {_REMEDY}"
            )
        met = self._met.setdefault(by, set())
        met.add(run.id)
        if len(met) >= _TOO_OFTEN:
            met.clear()
            raise DividedError(
                f"flow {label}: another service, the process {by}, has taken it over "
                f"again and again. {_REMEDY}"
            )


def taken_up(
    flow: FlowConfig,
    committed: Generation,
    earlier: Generation,
    known: Progress,
    *,
    slots: int,
    begun: bool,
    instance: Instance | None,
) -> Generation:
    """The generation of a run that begins, or of a command that moves positions: then
    there is no `instance`. `earlier` may not be committed: it only says how many slots
    may hold ids. A flow without `part` begins for all its parts; a part keeps the noted
    topics until `reselected`.
    """
    # Never fewer than before: the earlier run may have died before it fenced.
    whole = replace(
        committed.renewed() if flow.part is None else replace(committed, id=new_id()),
        slots=max(earlier.slots, committed.slots),
    )
    by, group = ("", "") if instance is None else (instance.by, instance.group)
    if flow.part is None:
        return replace(
            whole,
            slots=max(slots, whole.slots),
            begun=begun or committed.begun,
            by=by,
            group=group,
        )
    last = committed.part(flow.part)
    noted = last or (flow if instance is None else instance.flow)
    former = [each for each in (last, earlier.part(flow.part)) if each is not None]
    part = Part(
        name=flow.part,
        slots=max(slots, *(each.slots for each in former), 0),
        begun=begun or _has_begun(flow, last, committed, known),
        topics=noted.topics,
        topics_exclude=noted.topics_exclude,
        by=by,
        group=group,
    )
    parts = [each for each in committed.parts if each.name != part.name]
    parts.insert(len(parts) if last is None else committed.parts.index(last), part)
    # Its run without parts is over: it begins no more, beside these.
    return replace(whole, parts=tuple(parts), by="", group="")


def reselected(flow: FlowConfig, made: Generation) -> Generation:
    """The next one, in which the part has the topics that it selects now, behind the
    others; the same if they are noted. Others may copy at once what it gives up, so its
    earlier run must be fenced.
    """
    last = made.part(flow.part)
    if last is None or _selects(last) == _selects(flow):
        return made
    part = replace(last, topics=flow.topics, topics_exclude=flow.topics_exclude)
    others = (each for each in made.parts if each.name != part.name)
    return replace(made, id=new_id(), parts=(*others, part))


def begun(flow: FlowConfig, made: Generation) -> Generation:
    """The next one, in which it is settled where the partitions begin."""
    settled = tuple(
        replace(each, id=new_id(), begun=True)
        if flow.part in {None, each.name}
        else each
        for each in made.parts
    )
    return replace(
        made, id=new_id(), parts=settled, begun=made.begun or flow.part is None
    )


def united(made: Generation) -> Generation:
    """The next one, of a flow without parts: what any of them has begun goes on."""
    begun = made.begun or any(each.begun for each in made.parts)
    return replace(made, id=new_id(), parts=(), begun=begun)


def has_begun(flow: FlowConfig, made: Generation) -> bool:
    part = made.part(flow.part)
    return made.begun if part is None else part.begun


def held(flow: FlowConfig, made: Generation) -> list[tuple[str | None, int]]:
    """Whose transactional ids a run fences, and of how many slots: its own, and those
    of a run from before the flow had parts. Without `part`, those of all.
    """
    return [
        (None, made.slots),
        *(
            (each.name, each.slots)
            for each in made.parts
            if flow.part in {None, each.name}
        ),
    ]


def before(flow: FlowConfig, made: Generation) -> tuple[Part, ...]:
    """The parts that copy a topic rather than this one."""
    names = [each.name for each in made.parts]
    return made.parts[: names.index(flow.part)] if flow.part in names else ()


def ahead(flow: FlowConfig, noted: Sequence[Part]) -> tuple[Part, ...]:
    """The parts, of those noted on the target, that are before this one once it runs
    with these settings; none for a flow without `part`.
    """
    if flow.part is None:
        return ()
    names = [each.name for each in noted]
    if flow.part in names:
        place = names.index(flow.part)
        if _selects(noted[place]) == _selects(flow):
            return tuple(noted[:place])
    return tuple(each for each in noted if each.name != flow.part)


def without(flow: FlowConfig, parts: Sequence[Part]) -> FlowConfig:
    """The flow without the topics that these parts select."""
    return scopes.without_selected(flow, map(_selects, parts))


def left(
    flow: FlowConfig, parts: Sequence[Part], topics: Iterable[str]
) -> tuple[str, ...]:
    """The topics of the flow that these parts copy, in words."""
    selected = sorted(filter(flow.topic_filter.matches, topics))
    found = []
    for number, part in enumerate(parts):
        wants = without(flow, [part]).topic_filter
        before = without(flow, parts[:number]).topic_filter
        theirs = [t for t in selected if before.matches(t) and not wants.matches(t)]
        if theirs:
            found.append(
                f"{some(len(theirs), 'topic')}, such as {theirs[0]}: the part "
                f"{part.name} of the flow selects the same and copies them; narrow the "
                "topics of one of both parts"
            )
    return tuple(found)


def selects(part: Part, topic: str, flow: FlowConfig) -> bool:
    """Whether a part of the flow selects a topic."""
    noted = {"topics": part.topics, "topics_exclude": part.topics_exclude}
    theirs = flow.model_copy(update={**noted, "part": part.name})
    return theirs.topic_filter.matches(topic)


def own(
    flow: FlowConfig, positions: Mapping[TopicPartition, Position]
) -> Mapping[TopicPartition, Position]:
    """The positions that a flow may move: all of them, or those of its part."""
    if flow.part is None:
        return positions
    matches = flow.topic_filter.matches
    return {key: each for key, each in positions.items() if matches(key[0])}


def _has_begun(
    flow: FlowConfig, last: Part | None, committed: Generation, known: Progress
) -> bool:
    """A part that was not there before goes on with what the flow copied without parts:
    its other topics are then new ones.
    """
    if last is not None:
        return last.begun
    return committed.begun and bool(own(flow, known.positions))


def _selects(one: Part | FlowConfig) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The same for all that select the same, in whatever order."""
    return tuple(sorted(one.topics)), tuple(sorted(one.topics_exclude))


def _leads(name: str, group: str, target: Cluster, flow: str) -> bool:
    """Whether an instance leads a flow in its group, as far as the target lets us see:
    one that is gone is a member for some seconds more.
    """
    if not group:
        return False
    asked = [Group(group=group, kind=GroupKind.CLASSIC, state="")]
    try:
        members = groups.members(target, asked).get(group, ())
        given = [
            each.assignment for each in members if each.client_id == f"mirror.{name}"
        ]
        return any(flow in json.loads(each)["yours"] for each in given if each)
    except (ClusterError, *MALFORMED) as error:
        import structlog  # noqa: PLC0415  a switch need not wait for it

        log = structlog.get_logger()
        log.debug("members are not known", group=group, error=str(error))
        return False
