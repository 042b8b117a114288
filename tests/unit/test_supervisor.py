"""What happens to a flow that fails, waits for its lead, or ends."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from mirror.errors import ClusterError
from mirror.service import supervisor as module
from mirror.service.supervisor import Supervisor
from mirror.status.states import FlowState
from mirror.status.store import StatusStore
from tests.harness.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.unit

NAME = "A->B"


class _Flow:
    """A flow whose runs end as listed: with an error, or with whether to run again."""

    name = NAME
    stopping = False
    resting = False
    beating = False
    has_beaten = False
    config: Any = SimpleNamespace(source="A", target="B")

    def __init__(self, *outcomes: Exception | bool) -> None:
        self.outcomes = list(outcomes)
        self.paused: list[float] = []

    def run(self, **_: object) -> bool:
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def resume(self) -> None:
        self.resting = False

    def run_resting_jobs(self) -> None:
        self.beating = True
        self.has_beaten = True

    def stop_resting_jobs(self) -> None:
        self.beating = False

    def pause(self, seconds: float) -> None:
        self.paused.append(seconds)

    def wait_for_news(self, _seconds: float) -> None:
        self.stopping = True


class _Woken(_Flow):
    """A flow that waits as the real one does."""

    def __init__(self) -> None:
        super().__init__(False)
        self.news = threading.Event()
        self.waits: list[float] = []

    def wait_for_news(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.news.wait(seconds)


class _Preferred:
    def __init__(self) -> None:
        self.forgotten: set[str] = set()

    def forget(self, flow: str) -> None:
        self.forgotten.add(flow)


class _Leadership:
    def __init__(self, leader: str = "me") -> None:
        self._leader = leader

    def leads(self, _flow: str) -> bool:
        return self._leader == "me"

    def leader(self, _flow: str) -> str:
        return self._leader

    def trouble(self, _flow: str) -> str:
        return "no broker answers"

    def rivals(self, _flow: str) -> str:
        return ""


def supervisor_of(
    store: StatusStore,
    may: Callable[[], bool | None],
    *,
    leader: str = "me",
    once: bool = False,
    stop: Callable[[], None] = lambda: None,
) -> Supervisor:
    pairs = SimpleNamespace(
        may_copy=lambda *_: may(),
        trouble=lambda *_: "",
        why_rests=lambda *_: "",
    )
    return Supervisor(
        cast("Any", None),
        store,
        cast("Any", _Leadership(leader)),
        cast("Any", pairs),
        once=once,
        most_slots=lambda: 1,
        stop_service=stop,
    )


def supervised(flow: _Flow, *, may: bool | None = True, **settings: Any) -> StatusStore:
    """Runs the flow to its end."""
    store = StatusStore((NAME,))
    supervisor = supervisor_of(store, lambda: may, **settings)
    supervisor.begin(cast("Any", flow))
    while supervisor.wait(1):
        pass
    return store


@pytest.fixture(autouse=True)
def preferred(monkeypatch: pytest.MonkeyPatch) -> _Preferred:
    made = _Preferred()
    monkeypatch.setattr(module, "PreferredExecutors", lambda _: made)
    return made


@pytest.fixture(autouse=True)
def spark(monkeypatch: pytest.MonkeyPatch) -> dict[str, bool]:
    """Whether the JVM lives."""
    state = {"alive": True}
    monkeypatch.setattr(module, "is_alive", lambda _: state["alive"])
    monkeypatch.setattr(module, "warm_up", lambda *_: None)
    return state


def test_a_failed_flow_runs_again_after_growing_pauses(preferred: _Preferred) -> None:
    """Known and unknown errors end one run; a new number of slots needs no pause, nor
    does the first failure. The executors keep its slots.
    """
    flow = _Flow(ClusterError("no leader"), True, ValueError("odd"), False)

    status = supervised(flow).flow(NAME)

    assert flow.paused == [0.0, 0.5]
    assert not preferred.forgotten
    assert status.state is FlowState.STOPPED
    assert status.restarts == 2
    assert status.reason == "ValueError: odd"
    assert status.leader == "me"


def test_a_run_with_an_end_gives_up() -> None:
    """After five failures the flow is FAILED, and keeps its last reason."""
    flow = _Flow(*[ClusterError("no leader")] * 9)

    status = supervised(flow, once=True).flow(NAME)

    assert status.state is FlowState.FAILED
    assert (status.restarts, status.reason) == (5, "no leader")


def test_without_a_jvm_the_service_ends(spark: dict[str, bool]) -> None:
    """No flow can run any more: the service stops, so that it can be restarted."""
    spark["alive"] = False
    stopped = []

    store = supervised(
        _Flow(ClusterError("gone"), True), stop=lambda: stopped.append(1)
    )

    assert stopped == [1]
    assert store.flow(NAME).state is FlowState.FAILED


@pytest.mark.parametrize(
    ("leader", "reason"), [("other", ""), ("", "no broker answers")]
)
def test_a_flow_that_another_leads_waits(
    preferred: _Preferred, leader: str, reason: str
) -> None:
    """Its status has the leader, or why there is none, it never runs, and its slots
    take no other flow's cores.
    """
    flow = _Flow()
    flow.config = cast("Any", SimpleNamespace(source="A", target="B", tasks=1))

    store = supervised(flow, leader=leader)

    assert store.flow(NAME).leader == leader
    assert store.flow(NAME).reason == reason
    assert store.flow(NAME).state is FlowState.STOPPED
    assert preferred.forgotten == {NAME}


@pytest.mark.parametrize(
    ("leader", "may", "beats"),
    [("me", False, True), ("other", False, False), ("me", None, False)],
)
def test_a_flow_that_rests_beats_where_it_is_led(
    preferred: _Preferred, leader: str, may: bool | None, beats: bool
) -> None:
    """The jobs of a flow that may not copy run on the instance that leads it, not
    before the roles are known, and end with it. Its slots take no other flow's cores.
    """
    flow = _Flow()

    supervised(flow, leader=leader, may=may)

    assert flow.has_beaten is beats
    assert not flow.beating
    assert preferred.forgotten == {NAME}


def test_a_flow_that_rests_is_woken() -> None:
    """By itself it looks only every few seconds, and runs at once where it may."""
    flow, store, may = _Woken(), StatusStore((NAME,)), [False]
    supervisor = supervisor_of(store, lambda: may[0])
    supervisor.begin(cast("Any", flow))
    wait_for(lambda: flow.waits, 10)
    may[0] = True
    began = time.monotonic()
    flow.news.set()
    wait_for(lambda: store.flow(NAME).state is FlowState.STOPPED, 10)
    assert time.monotonic() - began < flow.waits[0] - 1
    assert flow.waits == [5.0]
