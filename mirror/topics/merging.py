"""Flows that write the same topic, and whether one of them copies it back.

Main type: `Merging`, made from all flows of a configuration, in its order. It knows
only names and filters and contacts no cluster: whether a topic really exists at another
flow's source is for its caller to find out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from mirror.config.schema import FlowConfig

_Place = tuple[str, str]
"""A cluster's alias and a topic's name there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contributor:
    """A flow that would copy a topic of its source to a given copy."""

    flow: FlowConfig
    topic: str


def by_role(
    flows: Iterable[FlowConfig], passive: Collection[str]
) -> tuple[FlowConfig, ...]:
    """Flows in order of precedence: of the two flows of a pair, first the one out of
    the active cluster. `passive`: the names of those out of the other clusters.
    """
    given = tuple(flows)
    order = {(flow.source, flow.target): n for n, flow in enumerate(given)}

    def place(flow: FlowConfig) -> tuple[int, int]:
        own = order[flow.source, flow.target]
        back = order.get((flow.target, flow.source))
        if back is None or given[back].name not in passive:
            return own, 1
        return min(own, back), 0

    return tuple(sorted(given, key=place))


class Merging:
    """What a configuration's flows do to each other's topics. Not thread-safe."""

    def __init__(
        self, flows: Iterable[FlowConfig], *, pair: Collection[str] = ()
    ) -> None:
        """`flows` are all enabled ones, in order of precedence. `pair`: the names of
        the two that a switch is about: what others write counts as written there.
        """
        self._flows = tuple(flows)
        self._pair = frozenset(pair)
        self._order = {flow.name: number for number, flow in enumerate(self._flows)}
        self._rules = {
            flow.name: (flow.topic_filter, flow.replication_policy)
            for flow in self._flows
        }
        self._led_back: dict[tuple[str, str], bool] = {}

    def contributors(self, target: str, copy: str) -> tuple[Contributor, ...]:
        """The flows that write this topic of this cluster, or would if their source
        had it; in order of precedence.
        """
        found = []
        for flow in self._flows:
            if flow.target == target:
                topic = self._rules[flow.name][1].upstream_topic(copy)
                if topic is not None and self._copy(flow, topic) == copy:
                    found.append(Contributor(flow=flow, topic=topic))
        return tuple(found)

    def is_alone(self, flow: FlowConfig, topic: str) -> bool:
        """Whether no other flow writes the topic's copy, or copies it back into the
        topic. Then, as far as the configuration can tell, the copy contains what this
        flow wrote, in its order.
        """
        copy = self._copy(flow, topic)
        if copy is None or len(self.contributors(flow.target, copy)) > 1:
            return False
        return not self._reaches((flow.target, copy), (flow.source, topic))

    def back(self, flow: FlowConfig, topic: str) -> FlowConfig | None:
        """The flow that copies the topic's copy back into the topic, if no other flow
        writes either of them, and both flows stamp what they copy and copy exactly
        once: then their two maps say where each record is. Else None.
        """
        copy = self._copy(flow, topic)
        if copy is None or len(self._writers(flow, flow.target, copy)) > 1:
            return None
        writers = self._writers(flow, flow.source, topic)
        if len(writers) != 1:
            return None
        back = writers[0].flow
        if (back.source, writers[0].topic) != (flow.target, copy):
            return None
        exact = all(each.exactly_once and each.provenance for each in (flow, back))
        return back if exact else None

    def _writers(
        self, flow: FlowConfig, alias: str, topic: str
    ) -> tuple[Contributor, ...]:
        """The contributors that count for a flow."""
        found = self.contributors(alias, topic)
        if flow.name not in self._pair:
            return found
        return tuple(each for each in found if each.flow.name in self._pair)

    def beside(self, flow: FlowConfig, topic: str) -> tuple[Contributor, ...]:
        """The other flows that write the topic's copy, if it leads back to none of the
        topics that they copy: then each source has records of its own. Else none.
        """
        copy = self._copy(flow, topic)
        if copy is None:
            return ()
        writers = self.contributors(flow.target, copy)
        for each in writers:
            if self._reaches((flow.target, copy), (each.flow.source, each.topic)):
                return ()
        return tuple(each for each in writers if each.flow.name != flow.name)

    def _reaches(self, place: _Place, goal: _Place) -> bool:
        """Whether flows copy one topic into the other one."""
        seen: set[_Place] = set()
        ahead = [place]
        while ahead:
            place = ahead.pop()
            if place == goal:
                return True
            if place in seen:
                continue
            seen.add(place)
            ahead += [
                (other.target, onward)
                for other in self._flows
                if other.source == place[0]
                and (onward := self._copy(other, place[1])) is not None
            ]
        return False

    def leads_back(self, flow: FlowConfig, topic: str) -> bool:
        """Whether the topic itself comes from the copy, through flows that take
        precedence: then those decide its configs, and this one may not.

        Of two flows that copy one topic both ways, each would undo changes made on
        its target. This leaves one of them.
        """
        key = (flow.name, topic)
        if key not in self._led_back:
            self._led_back[key] = self._is_led_back(flow, topic)
        return self._led_back[key]

    def _is_led_back(self, flow: FlowConfig, topic: str) -> bool:
        copy = self._copy(flow, topic)
        if copy is None or flow.name not in self._order:
            return False
        goal: _Place = (flow.source, topic)
        first = self._flows[: self._order[flow.name]]
        seen: set[_Place] = set()
        ahead: list[_Place] = [(flow.target, copy)]
        while ahead:
            place = ahead.pop()
            if place == goal:
                return True
            seen.add(place)
            for other in first:
                if other.source != place[0]:
                    continue
                onward = self._copy(other, place[1])
                if (
                    onward is not None
                    and (other.target, onward) not in seen
                    and not self.leads_back(other, place[1])
                ):
                    ahead.append((other.target, onward))
        return False

    def _copy(self, flow: FlowConfig, topic: str) -> str | None:
        """The name of this topic's copy in a flow, which may rest and so be none of
        ours; None if it does not copy it.
        """
        wanted, naming = self._rules.get(flow.name) or (
            flow.topic_filter,
            flow.replication_policy,
        )
        if not wanted.matches(topic) or naming.is_cycle(topic, flow.target):
            return None
        return naming.target_topic(topic)
