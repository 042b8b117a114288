"""One journey of a canary: there and back, with an application that goes along.

Main type: `Journey`. It adds to the steps of a switch what people and hooks do around
them: the producer stops when it is fenced, and starts on the other cluster once that is
active, where the group reads on.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
import time
from typing import TYPE_CHECKING

from mirror.batches.writing import ensure_topic
from mirror.clusters.admin import topic_admin
from mirror.config import own_topics
from mirror.drilling.canaries import own_pair, way_home
from mirror.drilling.canaries.application import Application, begin_at_end
from mirror.drilling.canaries.outcome import Leg
from mirror.errors import FencedError, MirrorError
from mirror.offsets import progress
from mirror.offsets.progress import ProgressReader
from mirror.policy.naming import CANARY
from mirror.recovery import risk
from mirror.recovery.journal import Kind
from mirror.status.values import RiskStatus
from mirror.switching.runner import Operator
from mirror.switching.steps import STEPS, assess

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mirror.config.schema import FlowConfig
    from mirror.switching.runner import Terms
    from mirror.switching.stage import Done, Stage, Step

_BROKERS_CHOOSE = -1
_UNREAD = 10
"""How many records the group has not read when a switch begins."""


class Journey:
    """Made once."""

    def __init__(
        self,
        stage: Stage,
        terms: Terms,
        *,
        rests: bool,
        require_turn: Callable[[], object],
    ) -> None:
        """`rests`: no service copies along the flow home; `require_turn` raises if one
        may by now, or a switch is under way.
        """
        self.application = Application()
        self.legs: list[Leg] = []
        """The switches that went through."""
        self._stage, self._terms, self._rests = stage, terms, rests
        self._require_turn = require_turn

    def make(self) -> str:
        """Go there and back; returns why it ended early, if it did.

        Raises:
            FencedError: another operator of these clusters took over.
        """
        try:
            self._make()
        except FencedError:
            raise
        except MirrorError as error:
            return str(error)
        finally:
            self.application.end()
        return ""

    def _make(self) -> None:
        there, app = self._stage, self.application
        home = _turned(there)
        if self._rests:
            # Taking the flow home over would fence a service that copies along it now.
            self._require_turn()
            way_home.end_earlier(there)
        self._prepare()
        app.start(there.config.clusters[there.flow.source])
        self._switch(there)
        if self._rests:
            self._require_turn()  # once more
        with ExitStack() as stack:
            carrier = (
                stack.enter_context(way_home.WayHome(home)) if self._rests else None
            )
            try:
                self._switch(home)
            except FencedError:
                raise
            except MirrorError as error:
                if carrier is not None and carrier.error:
                    text = f"{error}. The flow home stopped: {carrier.error}"
                    raise MirrorError(text) from error
                raise
        app.stop()
        app.read(there.source, _topics(home.flow))

    def _prepare(self) -> None:
        stage = self._stage
        for cluster, flow in (
            (stage.source, stage.reverse),
            (stage.target, stage.flow),
        ):
            # A copy of the same name is made by the flow.
            if cluster is stage.source or flow.replication_policy.names_source:
                ensure_topic(
                    cluster, own_topics.REHEARSAL, CANARY,
                    replication_factor=_BROKERS_CHOOSE,
                )  # fmt: skip
            begin_at_end(cluster, _topics(flow))
        if stage.pair.fence == "acl":
            own_pair.plant(stage.pair, stage.config, stage.source)

    def _switch(self, stage: Stage) -> None:
        app, at = self.application, stage.source
        app.wait_for_writes(_UNREAD, seconds=self._terms.step_seconds)
        self._wait_for_copies(stage)
        app.read(at, _topics(stage.reverse))
        app.wait_for_writes(_UNREAD, seconds=self._terms.step_seconds)
        around = _Around(stage, app, seconds=self._terms.step_seconds)
        ends = ((stage.flow.source, at), (stage.flow.target, stage.target))
        operator = Operator(stage.pair, Kind.SWITCH, *ends)
        operator.carry_out(around.steps, stage, self._terms)
        block = None if operator.run is None else operator.run.block
        if block is None or block.ended is None:
            raise MirrorError("another canary has made this switch meanwhile")
        self.legs.append(
            Leg(
                source=stage.flow.source,
                target=stage.flow.target,
                block_seconds=round(block.ended - block.began, 3),
                rto_seconds=round(around.arrived_at - block.began, 3),
                rpo_seconds=round(max(around.risk.seconds, 0.0), 3),
                rpo_records=around.risk.records,
            )
        )

    def _wait_for_copies(self, stage: Stage) -> None:
        """
        Raises:
            MirrorError: none come.
        """
        flow, key = stage.flow, (CANARY, 0)
        reader = ProgressReader(stage.target, progress.topic_name(flow.source))
        topic_id = stage.source.wait_for_topic(CANARY).topic_id.hex
        end = topic_admin.offsets_of_all(
            stage.source, [key], timestamp=topic_admin.LATEST
        )[key]

        def missing() -> str:
            known = risk.position(reader.read(wait=False), key, topic_id)
            if known is not None and known >= end:
                return ""
            return (
                f"{flow.name} does not copy {CANARY} yet: a service must run, which "
                f"looks for topics every {flow.refresh_topics_seconds:g} s"
            )

        deadline = time.monotonic() + self._terms.step_seconds
        replace(
            stage, deadline=deadline, tell=lambda text: self._terms.tell("copy", text)
        ).wait(missing)


class _Around:
    """What happens around the steps of one switch."""

    def __init__(self, stage: Stage, app: Application, *, seconds: float) -> None:
        self.risk = RiskStatus()
        """What a failover right before the block would have lost."""
        self.arrived_at = 0.0
        """When the first record was written on the other cluster."""
        self._app, self._seconds = app, seconds
        self._there = stage.config.clusters[stage.flow.target]
        self._topics = _topics(stage.flow)

    @property
    def steps(self) -> Mapping[str, Step]:
        return {
            **STEPS,
            "hold": replace(STEPS["hold"], do=self._hold),
            "fence": replace(STEPS["fence"], do=self._fence),
            "redirect": replace(STEPS["redirect"], do=self._redirect),
        }

    def _hold(self, stage: Stage) -> Done:
        self.risk = assess.look(stage)
        return STEPS["hold"].do(stage)

    def _fence(self, stage: Stage) -> Done:
        self._app.stop()
        return STEPS["fence"].do(stage)

    def _redirect(self, stage: Stage) -> Done:
        done = STEPS["redirect"].do(stage)
        self._app.start(self._there)
        self.arrived_at = self._app.wait_for_writes(1, seconds=self._seconds)
        self._app.read(stage.target, self._topics)
        return done


def _topics(into: FlowConfig) -> list[str]:
    """Which topics the canary's group reads on the cluster that this flow writes to."""
    copy = into.replication_policy.target_topic(CANARY)
    return list(dict.fromkeys((CANARY, copy)))


def _turned(stage: Stage) -> Stage:
    """The stage of the way home."""
    return replace(
        stage,
        flow=stage.reverse,
        reverse=stage.flow,
        source_or_none=stage.target_or_none,
        target_or_none=stage.source_or_none,
    )
