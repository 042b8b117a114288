"""The rules against a model in which topics and records really travel."""

from __future__ import annotations

from collections import deque
from itertools import permutations
from typing import TYPE_CHECKING, Any

from hypothesis import assume, event, given, settings
from hypothesis import strategies as st
import pytest

from mirror.config.rules import problems
from tests.harness import configurations

if TYPE_CHECKING:
    from mirror.config.schema import FlowConfig

pytestmark = pytest.mark.unit

NAMES = ("o", "p", "A.o", "B.o", "topic")
MOST_TOPICS = 40
FLOWS = st.fixed_dictionaries(
    {
        "topics": st.sampled_from([["o"], ["p"], ["o", "p"], ["A.o"], [".*o"], [".*"]]),
        "provenance": st.booleans() | st.just(value=True),
    }
) | st.just({})
POLICIES = st.sampled_from(
    [
        {"policy": "default"},
        {"policy": "identity"},
        {"policy": "rename", "rename": [{"match": "o", "to": "p"}]},
    ]
)
TOPOLOGIES = st.dictionaries(
    st.sampled_from([f"{a}->{b}" for a, b in permutations("ABCD", 2)]),
    st.builds(lambda flow, policy: {**flow, **policy}, FLOWS, POLICIES),
    min_size=1,
    max_size=6,
)


def copies(flow: FlowConfig, topic: str) -> str | None:
    policy = flow.replication_policy
    if not flow.topic_filter.matches(topic) or policy.is_cycle(topic, flow.target):
        return None
    return policy.target_topic(topic)


def topics_without_end(flows: list[FlowConfig], cluster: str, topic: str) -> bool:
    """Whether a topic of a cluster leads to more topics without end."""
    known = {(cluster, topic)}
    new = deque(known)
    while new and len(known) < MOST_TOPICS:
        here, name = new.popleft()
        for flow in flows:
            if flow.source == here and (copy := copies(flow, name)) is not None:
                place = (flow.target, copy)
                new.extend({place} - known)
                known.add(place)
    return len(known) >= MOST_TOPICS


def repeats(flows: list[FlowConfig], cluster: str, topic: str) -> bool:
    """Whether a record written to a topic reaches any topic a second time."""
    there = {(cluster, topic)}
    copied: dict[tuple[str, str], str] = {}
    new: deque[tuple[str, str, tuple[str, ...]]] = deque([(cluster, topic, ())])
    while new:
        here, name, via = new.popleft()
        for flow in flows:
            copy = copies(flow, name) if flow.source == here else None
            if copy is None or (flow.provenance and flow.target in via):
                continue
            # Two topics of one flow with one copy are refused while it runs.
            if copied.setdefault((flow.name, copy), name) != name:
                continue
            if (flow.target, copy) in there:
                return True
            there.add((flow.target, copy))
            behind = (*via, here) if flow.provenance else via
            new.append((flow.target, copy, behind))
    return False


@settings(max_examples=200, deadline=None)
@given(topology=TOPOLOGIES)
def test_what_would_harm_is_refused_and_nothing_else(
    topology: dict[str, dict[str, Any]],
) -> None:
    """Any topology of four clusters is refused exactly if it would make topics without
    end, or bring a record to a topic twice.
    """
    config = configurations.config(topology, "ABCD")
    flows = list(config.flows.values())
    # A record that comes back unstamped and under another name may go on from there.
    assume(
        all(flow.provenance for flow in flows)
        or all(flow.policy != "rename" for flow in flows)
    )
    found = problems(config)
    # Topics that are mixed up are another matter.
    assume(not any("would both be copied to" in text for text in found))
    grown = [
        (cluster, name)
        for cluster in "ABCD"
        for name in NAMES
        if topics_without_end(flows, cluster, name)
    ]
    harmed = grown or [
        (cluster, name)
        for cluster in "ABCD"
        for name in NAMES
        if repeats(flows, cluster, name)
    ]
    event("refused" if found else "sound")
    assert bool(found) is bool(harmed), (found, harmed)
