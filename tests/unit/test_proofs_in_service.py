"""What a running service proves next: shares are kept, and nothing starves.

And proofs in a service are loaded when a flow wants some.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest

from mirror.errors import MirrorError
from mirror.pairs.proofs import Proof
from mirror.proofs import in_service
from mirror.proofs.account import FindingKind
from mirror.proofs.in_service import (
    OneTask,
    ServiceProofs,
    StoppedError,
    Turn,
    UnresolvedFindings,
)
from mirror.proofs.ranges import ranges_of
from mirror.proofs.steps import (
    FLOOR,
    Budget,
    Costs,
    Lane,
    Spread,
    prefix,
    range_bytes,
)
from mirror.status.store import StatusStore
from tests.harness.compared import ID, copied

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from mirror.proofs.account import ProofFinding
    from mirror.proofs.in_service import FlowProofs
    from mirror.proofs.ranges import Range

pytestmark = pytest.mark.unit

_GB = 1 << 30


def ranges(end: int, most: int, late: tuple[int, int] | None = None) -> list[Range]:
    """Of a partition that was copied in one run; `late`: the offset of a record, and
    where a repair put it.
    """
    runs = np.array([[0, 0, end]], np.int64)
    lates = np.array([[*late, 1]] if late else [], np.int64).reshape(-1, 3)
    return list(ranges_of(copied(end), runs, late=lates, most=most))


def costs(per_offset: float) -> Costs:
    """Of the topic t, without surplus."""
    found = Costs()
    size = 1_000_000
    found.learn(
        "t", fetched=int(per_offset * size), offsets=size,
        payload=int(per_offset * size),
    )  # fmt: skip
    return found


def test_the_share_is_kept() -> None:
    """Whatever is copied and read in whatever order, no lane is ever allowed more than
    the share of all that was copied, or the floor; counters that begin again lose
    nothing.
    """
    chance = random.Random(7)
    budget = Budget(0.05, now=0.0)
    count = total = 0
    for second in range(1, 2000):
        news = chance.choice([0, 0, 10 * _GB, 3])
        count, total = (news, total + news) if second % 97 == 0 else (
            count + news, total + news
        )  # fmt: skip
        budget.earn({("t", 0): count}, float(second))
        for lane in Lane:
            alone = chance.random() < 0.3
            if (left := budget.left(lane, alone=alone)) > 0:
                budget.spend(left * chance.random(), lane, alone=alone)
        assert budget.spent <= max(0.05 * total, FLOOR * second) + 1


def test_a_small_flow_is_compared_within_minutes() -> None:
    """A few hundred records of 100 bytes a second: the share alone would take an hour
    to pay for a range, and what is saved up pays for one within two minutes, and for
    the next ones as soon.
    """
    budget = Budget(0.05, now=0.0)
    spent_at = [0.0]
    for second in range(1, 601):
        budget.earn({("t", 0): second * 300 * 100}, float(second))
        left = budget.left(Lane.NEW, alone=True)
        if left >= (each := range_bytes(left, budget.least)):
            budget.spend(each, Lane.NEW, alone=True)
            spent_at.append(float(second))
    assert max(after - at for at, after in itertools.pairwise(spent_at)) < 120


@pytest.mark.parametrize("hungry", [(1.0, 1.0), (1.0, 0.1), (0.1, 1.0)])
def test_no_lane_starves(hungry: tuple[float, float]) -> None:
    """Of two lanes that both take all that they may, however seldom they look, each
    gets half of the budget.
    """
    chance = random.Random(3)
    budget = Budget(1.0, now=0.0)
    got = dict.fromkeys(Lane, 0.0)
    for second in range(1, 1000):
        budget.earn({("t", 0): second * _GB}, float(second))
        for lane, often in zip(Lane, hungry, strict=True):
            left = budget.left(lane, alone=False)
            if left > 0 and chance.random() < often:
                budget.spend(left, lane, alone=False)
                got[lane] += left
    assert min(got.values()) > 0.45 * sum(got.values())


def test_a_lane_that_was_alone_owes_nothing() -> None:
    """What the past has read while nothing was new does not stop it later."""
    budget = Budget(1.0, now=0.0)
    budget.earn({("t", 0): 100 * _GB}, 1.0)
    budget.spend(100 * _GB, Lane.PAST, alone=True)
    budget.earn({("t", 0): 102 * _GB}, 2.0)
    for lane in Lane:
        assert budget.left(lane, alone=False) == pytest.approx(_GB)


@pytest.mark.parametrize("fraction", [0.0, 0.03, 0.2, 1 / 3, 0.5, 0.99, 1.0])
def test_picks_are_spread_evenly(fraction: float) -> None:
    """Of many short series as of a long one, as many are picked as the fraction says,
    and no two picks are further apart than it says.
    """
    spread = Spread()
    spread.fraction = fraction
    picked = [number for number in range(1000) if spread()]
    assert len(picked) == pytest.approx(1000 * fraction, abs=1)
    for one, other in itertools.pairwise(picked):
        assert other - one <= 1 / fraction + 1


def test_ranges_that_are_not_picked_leave_no_gap() -> None:
    """The cuts are the same whichever ranges are picked, and the last one is made."""
    every = ranges(1000, 10)
    spread = Spread()
    spread.fraction = 0.1
    runs = np.array([[0, 0, 1000]], np.int64)
    some = list(ranges_of(copied(1000), runs, most=10, picked=spread))

    def cuts(of: Iterable[Range]) -> list[tuple[int, ...]]:
        return [
            (r.source_first, r.source_end, r.target_first, r.target_end) for r in of
        ]

    assert set(cuts(some)) <= set(cuts(every))
    assert cuts(some)[-1] == cuts(every)[-1]
    assert 10 <= len(some) <= 11


def test_the_first_ranges_are_those_that_are_affordable() -> None:
    """They follow each other, and cost no more than is left; the next one would."""
    chosen = prefix(ranges(1000, 10), 3_500.0, costs(10))
    assert [each.source_first for each in chosen] == list(range(0, 350, 10))


def test_late_records_are_proven_where_their_copies_are() -> None:
    """A record that a repair appended is compared in the step that comes to its copy,
    in no other, and does not stop the steps before.
    """
    made = ranges(1000, 10, late=(5, 900))
    early = prefix(made, 1_000.0, costs(10))
    assert early
    assert not any(each.is_late for each in early)
    assert sum(each.is_late for each in prefix(made, 1e9, costs(10))) == 1


def test_costs_follow_what_ranges_did_cost() -> None:
    """Batches that are larger than ranges make ranges dear, not shorter and shorter."""
    known = Costs()
    assert known.offsets("t", _GB) < 100
    known.guess("t", copied=500_000, offsets=1000)
    wanted = known.offsets("t", 100_000)
    assert wanted == 100
    for _ in range(10):
        known.learn("t", fetched=2_000_000, offsets=wanted, payload=wanted * 480)
        assert known.offsets("t", 100_000) == wanted
    assert known.of_offsets("t", wanted) == pytest.approx(2_000_000, rel=0.1)
    assert known.of_offsets("t", 100 * wanted) < 100 * 2_000_000


def test_ranges_are_small_enough_to_pause() -> None:
    """Much may be left after a long pause; a range stays short of a second's work."""
    assert range_bytes(-5.0) == range_bytes(0.0) <= 4 << 20
    assert range_bytes(1e15) <= 32 << 20


def finding(source: int | None, target: int | None = None) -> ProofFinding:
    return copied().finding(FindingKind.DIFFERENT, source=source, target=target)


def proof(offset: int, at: float) -> dict[tuple[str, int], Proof]:
    return {
        ("t", 0): Proof(
            topic="t", partition=0, topic_id=ID, source_offset=offset,
            target_offset=offset, at=at, records=0, findings=0, root="",
        )
    }  # fmt: skip


def test_findings_stand_until_they_are_gone() -> None:
    """A finding stays when other ranges are proven, is news once, and goes when its own
    range is proven without it, or when a later proof by hand has passed it.
    """
    key, standing = ("t", 0), UnresolvedFindings()
    first, second, *_ = ranges(20, 10)
    assert len(standing.proven(key, [first], [finding(3), finding(5)], at=100.0)) == 2
    assert standing.proven(key, [first], [finding(3), finding(5)], at=101.0) == ()
    standing.proven(key, [second], [finding(None, 15)], at=102.0)
    assert len(standing) == 3
    standing.seen(proof(20, at=50.0))
    assert len(standing) == 3
    standing.proven(key, [first], [finding(5)], at=103.0)
    assert [each.source for each in standing.shown] == [None, 5]
    standing.seen(proof(10, at=200.0))
    assert [each.target for each in standing.shown] == [15]
    standing.only({"other"})
    assert len(standing) == 0


class Held:
    """A runner whose tasks go on until they are cancelled, or let go."""

    def __init__(self) -> None:
        self.begun = self.cancelled = 0
        self.free = threading.Event()
        self._cancel = threading.Event()

    def results(self, tasks: Iterable[Callable[[], Any]]) -> Iterator[Any]:
        for task in tasks:
            self.begun += 1
            self._cancel.clear()
            while not self.free.is_set():
                if self._cancel.wait(0.01):
                    raise MirrorError("cancelled")
            yield task()

    def cancel(self) -> None:
        self.cancelled += 1
        self._cancel.set()


def until(predicate: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not predicate():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_running_task_gives_way_and_runs_again() -> None:
    """It is cancelled when a flow begins to catch up; once that is over it runs again,
    and its result is whole.
    """
    held, reasons, shown = Held(), [""], []
    tasks = OneTask(held, lambda: reasons[0])
    turn = Turn(
        tasks=tasks, stopping=threading.Event(), waits=shown.append,
        done=lambda *_: None,
    )  # fmt: skip
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.extend(turn.results([lambda: 7])))
    thread.start()
    until(lambda: held.begun == 1)
    reasons[0] = "flow A->B is catching up"
    until(lambda: reasons[0] in shown)
    assert held.cancelled
    assert held.begun == 1
    held.free.set()
    reasons[0] = ""
    thread.join(20)
    assert results == [7]
    assert held.begun == 2
    assert shown[-1] == ""


def test_a_task_ends_with_its_flow() -> None:
    """A flow that stops waits for no task, neither a running one nor another flow's."""
    held = Held()
    tasks = OneTask(held, lambda: "")
    stopping = threading.Event()
    turn = Turn(
        tasks=tasks, stopping=stopping, waits=lambda _: None, done=lambda *_: None
    )
    failed: list[BaseException] = []

    def run() -> None:
        try:
            list(turn.results([lambda: 7]))
        except StoppedError as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    until(lambda: held.begun == 1)
    with tasks.turn(threading.Event()):
        stopping.set()
        with pytest.raises(StoppedError), tasks.turn(stopping):
            pass
    thread.join(20)
    assert failed


# ---- loaded when wanted ----


_FLOW = "A->B"
_OFF, _ON = (
    cast("Any", SimpleNamespace(name=_FLOW, verify=verify, verify_share=0.1))
    for verify in ("off", "new")
)
_CONFIG = cast("Any", None)


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was loaded, and the process that was started ahead."""
    found: list[str] = []
    monkeypatch.setattr(in_service, "load", lambda: found.append("kernels"))
    return found


@pytest.fixture
def warm(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set when the process of proofs is started ahead."""
    begun = threading.Event()
    runner = SimpleNamespace(warm_up=begun.set)
    monkeypatch.setattr(in_service, "BesideSlots", lambda *_: runner)
    return begun


def _of(service: ServiceProofs, flow: Any) -> tuple[FlowProofs, StatusStore]:
    store = StatusStore((_FLOW,))
    return service.of_flow(flow, _CONFIG, store), store


def _begin(service: ServiceProofs) -> None:
    service.begin(*cast("Any", (None, None, None)))


def test_a_flow_that_proves_nothing_loads_nothing(
    loaded: list[str], warm: threading.Event
) -> None:
    """Without `verify` there is no job, and nothing is loaded that could do one."""
    service = ServiceProofs()
    flow, _ = _of(service, _OFF)
    _begin(service)
    flow.adopt(_OFF, _CONFIG)
    flow.stop()

    assert flow.job() is None
    assert loaded == []
    assert not warm.wait(0.1)


def test_another_configuration_turns_proofs_on(
    loaded: list[str], warm: threading.Event
) -> None:
    """What compares is loaded once, and a later one turns them off again."""
    service = ServiceProofs()
    flow, store = _of(service, _OFF)
    _begin(service)
    flow.adopt(_ON, _CONFIG)

    assert flow.job() is not None
    assert store.flow(_FLOW).verify.mode == "new"
    flow.adopt(_OFF, _CONFIG)
    assert flow.job() is None
    assert store.flow(_FLOW).verify.mode == "off"
    flow.adopt(_ON, _CONFIG)
    assert flow.job() is not None
    assert loaded == ["kernels"]
    assert not warm.wait(0.1)


def test_proofs_wanted_from_the_beginning_start_their_process(
    loaded: list[str], warm: threading.Event
) -> None:
    """It takes a second, in which slots cannot start theirs."""
    service = ServiceProofs()
    for _ in range(2):
        _of(service, _ON)
    assert not warm.is_set()
    _begin(service)

    assert warm.wait(20)
    assert loaded == ["kernels", "kernels"]
