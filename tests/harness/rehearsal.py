"""Switches without a service, so that a test acts in between the steps.

Main type: `Rehearsal`. The operator and the steps are the real ones; what a service
would copy is copied before the switch begins, or in what the test does `before` a step.
"""

from __future__ import annotations

from dataclasses import replace
import time
from typing import TYPE_CHECKING, Any, Self

from mirror.clusters.reach import Reach
from mirror.pairs import selection
from mirror.pairs.journal import Kind
from mirror.recovery.runner import Operator, Terms
from mirror.recovery.stage import Done, Stage, Step, both_flows
from mirror.recovery.steps import STEPS
from mirror.service.standby import StandbyJob
from mirror.status.store import StatusStore
from mirror.topics.topics import select
from tests.harness.configurations import configuration
from tests.harness.slots import SparklessFlow, copy_until
from tests.harness.switching import pair_of
from tests.harness.waiting import crowd, deadline_in
from tests.harness.witness import Witness

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mirror.clusters.cluster import Cluster
    from mirror.pairs.roles import Run
    from mirror.status.values import PartitionStatus


class Rehearsal:
    """A pair of two clusters and one topic; a context manager."""

    def __init__(
        self,
        one: tuple[str, str],
        other: tuple[str, str],
        topic: str,
        *,
        clusters: Mapping[str, Mapping[str, Any]] | None = None,
        flows: Mapping[str, Any] | None = None,
        pair: Mapping[str, Any] | None = None,
        pairs: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        """`one` and `other`: alias and bootstrap. Further clusters and flows, or their
        settings, and settings of the pair and of all flows. `pairs`: several by name,
        of which the first one is switched.
        """
        document = pair_of(one, other, topic)
        if pairs is not None:
            ((name, whole),) = document["recovery"].items()
            document["recovery"] = {
                f"{name}/{scope}": {**whole, **each} for scope, each in pairs.items()
            }
        document["defaults"] |= settings
        for alias, more in (clusters or {}).items():
            document["clusters"].setdefault(alias, {}).update(more)
        document["flows"].update(flows or {})
        for each in document["recovery"].values():
            each.update(pair or {})
        self.document = document
        """For a service, or a command."""
        self.config = configuration(document)
        self.topic = topic
        self.said: dict[str, Done] = {}
        """What steps said, by step."""
        self.found: list[str] = []
        """What step 1 found last, in words."""
        self.run: Run | None = None
        """As the last operator knows it."""
        self._sections = document["clusters"]
        self._settings = {"heartbeats_replication": False, **settings}
        self._ends = one[0], other[0]
        self._reach = Reach(self.config.clusters, client_id="rehearsal")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._reach.__exit__(None, None, None)

    def cluster(self, alias: str) -> Cluster:
        return self._reach(alias)

    def copying(self, *, back: bool = False) -> SparklessFlow:
        """One of the flows, which takes over as its driver does; or the one back."""
        source, target = self._ends[::-1] if back else self._ends
        return SparklessFlow(
            source=self._sections[source],
            target=self._sections[target],
            topic=self.topic,
            alias=source,
            into=target,
            settings=self._settings,
        )

    def copy(
        self, bootstrap: str, copy: str, count: int, *, back: bool = False
    ) -> None:
        """Copy until a witness finds `count` records in a copy."""
        flow = self.copying(back=back).own()
        with flow.slot() as slot, Witness(bootstrap) as witness:
            witness.begin(copy)
            copy_until(witness, slot, flow.lease(60), count=count, timeout=60)

    def see(self, *partitions: PartitionStatus) -> None:
        """Look at the source, as a service that shows these does all the time."""
        one, other = self._ends
        name = f"{one}->{other}"
        flow = self.config.flows[name]
        names = [each.topic for each in select(self.cluster(one), flow).topics]
        store = StatusStore((name,))
        store.update(name, lambda shown: replace(shown, partitions=partitions))
        notes = selection.noted(self.config, name)
        job = StandbyJob(flow, lambda: names, store=store, notes=lambda: notes).job()
        job.work(self.cluster(one), self.cluster(other))

    def stage(self, kind: Kind = Kind.SWITCH, *, seconds: float = 60.0) -> Stage:
        one, other = self._ends
        pair = next(iter(self.config.recovery.values()))
        flow, reverse = both_flows(self.config, pair, one, other)
        return Stage(
            kind=kind,
            config=self.config,
            pair=pair,
            flow=flow,
            reverse=reverse,
            source_or_none=self.cluster(one) if kind is Kind.SWITCH else None,
            target_or_none=self.cluster(other),
            notes={step: {} for step in STEPS},
            note=lambda _: None,
            tell=lambda _: None,
            deadline=deadline_in(seconds),
            show=lambda found, unseen: self._find(*map(str, found), *unseen),
        )

    def _find(self, *found: str) -> None:
        self.found = [*found]

    def carry_out(
        self,
        before: Mapping[str, Callable[[], object]] | None = None,
        *,
        kind: Kind = Kind.SWITCH,
        after: Mapping[str, Callable[[], object]] | None = None,
        step_seconds: float | None = None,
        in_vain: str = "",
        tell: Callable[[str, str], None] = lambda _step, _text: None,
    ) -> None:
        """Switch. `before`, `after`: what to do around steps; `step_seconds`: what a
        step may take at most; `in_vain`: a step that waits for what never comes, and
        soon gives up. Raises what that raises.
        """
        stage = self.stage(kind)
        steps = {**STEPS}
        for name, act in (before or {}).items():
            steps[name] = _after(act, steps[name])
        for name, act in (after or {}).items():
            steps[name] = _before(steps[name], act)
        if in_vain:
            steps[in_vain] = _brief(steps[in_vain])

        def did(step: str, done: Done, _seconds: float) -> None:
            self.said[step] = done

        seconds = step_seconds or 30.0 * crowd()
        operator = Operator(
            stage, Terms(step_seconds=seconds, tell=tell, did=did), steps
        )
        try:
            operator.carry_out()
        finally:
            self.run = operator.run

    def abort(self, kind: Kind = Kind.SWITCH, *, source: bool = True) -> dict[str, str]:
        """Undo what an operator that is gone has done; what is so now, by step. Both
        clusters answer, or the `source` does not. Raises what that raises.
        """
        stage = replace(self.stage(), kind=kind)
        if not source:
            stage = replace(stage, source_or_none=None)
        terms = Terms(
            step_seconds=30.0 * crowd(), tell=lambda *_: None, did=lambda *_: None
        )
        return dict(Operator(stage, terms).abort())


def _after(act: Callable[[], object], step: Step) -> Step:
    def do(stage: Stage) -> Done:
        act()
        return step.do(stage)

    return replace(step, do=do)


def _before(step: Step, act: Callable[[], object]) -> Step:
    def do(stage: Stage) -> Done:
        done = step.do(stage)
        act()
        return done

    return replace(step, do=do)


def _brief(step: Step) -> Step:
    """It waits for two seconds, and brokers still have all of their time to answer."""

    def do(stage: Stage) -> Done:
        return step.do(replace(stage, deadline=time.monotonic() + 2))

    return replace(step, do=do)
