"""Roles of pairs from the entries of journals, and what `/active` answers."""

from __future__ import annotations

from dataclasses import replace
import json
import uuid

import pytest

from mirror.config.pair_settings import PairConfig
from mirror.errors import ClusterError, MirrorError
from mirror.observing.server import is_active
from mirror.offsets.progress import UNSETTLED, Position
from mirror.pairs import journal, roles
from mirror.pairs.journal import Entry, Kind, StepState
from mirror.pairs.roles import Run
from mirror.recovery import procedure
from mirror.status.values import MemberStatus, PairStatus

pytestmark = pytest.mark.unit

PAIR = PairConfig(one="A", other="B", active="A")


def entry(
    number: int, step: str, state: StepState = StepState.DONE, *, epoch: int = 2
) -> Entry:
    """One of a switch from A to B."""
    return Entry(
        pair=PAIR.name,
        run=f"run-{epoch}",
        number=number,
        kind=Kind.SWITCH,
        epoch=epoch,
        source="A" if epoch % 2 == 0 else "B",
        target="B" if epoch % 2 == 0 else "A",
        step=step,
        state=state,
        at=1000.0 + epoch,
        by="me@here",
    )


def test_the_configuration_counts_until_there_is_a_role() -> None:
    """Without any entry the configured cluster is active, with epoch 0."""
    found = roles.role((), PAIR)
    assert (found.active, found.epoch) == ("A", 0)


def test_the_role_before_this_one() -> None:
    """Epochs of runs that were undone made no cluster active, so they are left out."""
    start = roles.first_role(PAIR, at=1.0, by="service")
    assert (roles.former_epoch(()), roles.former_epoch(start)) == (0, 0)
    undone = entry(0, roles.ROLE, StepState.UNDONE, epoch=2)
    assert roles.former_epoch((*start, undone)) == 0
    assert roles.former_epoch((*start, undone, entry(0, roles.ROLE, epoch=3))) == 1


def test_the_highest_epoch_wins() -> None:
    """Whichever journal has it, and in whichever order they are read: a journal that
    was cut off for two switches does not bring back its role.
    """
    start = roles.first_role(PAIR, at=1.0, by="service")
    there = (*start, entry(0, roles.ROLE, epoch=2), entry(0, roles.ROLE, epoch=3))
    behind = (*start, entry(0, roles.ROLE, epoch=2))
    for journals in ((there, behind), (behind, there), (there, ())):
        entries = roles.merged(*journals, pair=PAIR.name)
        assert roles.role(entries, PAIR).active == "A"
        assert roles.role(entries, PAIR).epoch == 3
        assert len(entries) == len(there), "each entry counts once"


def test_a_run_is_open_until_its_end() -> None:
    """A switch that has made B active is open still: its last steps are to come."""
    so_far = [
        entry(0, "fence", StepState.BEGUN),
        entry(1, "fence"),
        entry(2, roles.ROLE),
    ]
    run = roles.open_run(so_far)
    assert run is not None
    assert run.text == "SWITCH A->B: open DONE"
    assert run.state("fence") is StepState.DONE
    assert roles.open_run([*so_far, entry(3, roles.END)]) is None


def test_a_run_that_was_overtaken_is_not_open() -> None:
    """A switch began in the journal of A alone, and A died; a failover that did not
    know of it left A with the same epoch. Once both journals are read, the switch
    holds up nothing; one that begins later is open.
    """
    begun = entry(0, "assess", StepState.BEGUN)
    made = replace(
        entry(0, roles.ROLE), run="other", kind=Kind.FAILOVER, at=begun.at + 9
    )
    ended = replace(made, number=1, step=roles.END)
    found = roles.merged([begun], [made, ended], pair=PAIR.name)
    assert roles.open_run(found) is None
    later = entry(0, "assess", StepState.BEGUN, epoch=3)
    run = roles.open_run((*found, later))
    assert run is not None
    assert run.first == later


@pytest.mark.parametrize(
    ("source", "moved", "gives_way"),
    [("A", False, True), ("B", False, False), ("A", True, False), ("B", True, True)],
)
def test_a_failover_takes_the_place_of_an_open_switch(
    source: str, moved: bool, gives_way: bool
) -> None:
    """Of one that has not moved where its source died, and of one that has moved where
    the cluster died that it made active: else nobody could leave that.
    """
    state = StepState.DONE if moved else StepState.BEGUN
    run = Run(entries=(entry(0, roles.ROLE, state),))
    assert procedure.gives_way(run, Kind.FAILOVER, source) is gives_way
    assert not procedure.gives_way(run, Kind.SWITCH, source)


def test_which_clusters_were_active() -> None:
    """The first one, and each that was left or moved to; not one that never was."""
    start = roles.first_role(PAIR, at=1.0, by="service")
    assert roles.was_active(start, "A")
    assert not roles.was_active(start, "B")
    assert roles.was_active((*start, entry(0, roles.ROLE)), "B")
    assert roles.was_active([entry(0, roles.ROLE)], "A")


def test_only_a_failover_leaves_a_tail() -> None:
    """On the cluster that was active before, and until the pair's next role."""
    switched = [entry(0, roles.ROLE, epoch=2)]
    failed = [*switched, replace(entry(0, roles.ROLE, epoch=3), kind=Kind.FAILOVER)]
    source = failed[-1].source
    assert roles.leaves_tail(failed, source)
    assert not roles.leaves_tail(failed, failed[-1].target)
    assert not roles.leaves_tail([], source)
    assert not roles.leaves_tail(switched, source)
    assert not roles.leaves_tail([*failed, entry(0, roles.ROLE, epoch=4)], source)


def run(
    name: str, epoch: int, *said: tuple[str, StepState], kind: Kind = Kind.SWITCH,
    back: bool = False, **end: object,
) -> list[Entry]:  # fmt: skip
    """The entries of a run from A to B, or `back`; `end`: of its last entry."""
    source, target = ("B", "A") if back else ("A", "B")
    made = [
        replace(
            entry(number, step, state, epoch=epoch),
            run=name, kind=kind, source=source, target=target, at=1000.0 + epoch,
        )
        for number, (step, state) in enumerate(said)
    ]  # fmt: skip
    made[-1] = replace(made[-1], details=end)
    return made


BEGUN, DONE, UNDONE = StepState.BEGUN, StepState.DONE, StepState.UNDONE
START = roles.first_role(PAIR, at=1.0, by="service")
HELD = ("hold", DONE)
FENCED = ("fence", BEGUN)
GAVE_WAY = run("s", 2, HELD, FENCED, (roles.END, UNDONE), instead="FAILOVER")
OPEN = run("f", 3, ("assess", BEGUN), kind=Kind.FAILOVER)
GIVEN_UP = run(
    "f", 3, ("assess", BEGUN), ("assess", UNDONE), (roles.END, UNDONE),
    kind=Kind.FAILOVER,
)  # fmt: skip
MOVED = run("f", 3, (roles.ROLE, DONE), (roles.END, DONE), kind=Kind.FAILOVER)
HOME = run("h", 4, (roles.ROLE, DONE), (roles.END, DONE), back=True)
ALL_UNDONE = [
    roles.undone(Run(entries=(*GAVE_WAY,)), "fence", at=9.0, by="service"),
    replace(GAVE_WAY[-1], number=4, step="hold", details={}),
]
TAKEN_BACK = run(
    "t", 4, (roles.ROLE, DONE), (roles.END, DONE), kind=Kind.FAILOVER, back=True,
    instead="f",
)  # fmt: skip


@pytest.mark.parametrize(
    ("entries", "found", "pending"),
    [
        pytest.param((), "", "", id="nothing"),
        pytest.param(OPEN, "f", "", id="open"),
        pytest.param(GAVE_WAY, "s", "s", id="the failover died before its first note"),
        pytest.param((*GAVE_WAY, *OPEN), "sf", "", id="replaced"),
        pytest.param((*GAVE_WAY, *GIVEN_UP), "sf", "s", id="left pending"),
        pytest.param((*GAVE_WAY, *GIVEN_UP, *ALL_UNDONE), "", "", id="all undone"),
        pytest.param((*GAVE_WAY, *OPEN, *ALL_UNDONE), "sf", "", id="undone in part"),
        pytest.param((*GAVE_WAY, *ALL_UNDONE), "", "", id="undone without a failover"),
        pytest.param((*GAVE_WAY, *MOVED), "", "", id="B is active"),
        pytest.param((*GAVE_WAY, *MOVED, *HOME), "", "", id="home again"),
        pytest.param(
            (*GAVE_WAY, *OPEN, *TAKEN_BACK), "sf", "", id="B is lost, and A active"
        ),
        pytest.param(
            (*GAVE_WAY, *GIVEN_UP, *run("n", 4, HELD)), "sfn", "", id="and a next one"
        ),
        pytest.param(
            (*GAVE_WAY, *GIVEN_UP, *ALL_UNDONE, *run("n", 4, HELD)), "n", "", id="next"
        ),
    ],
)
def test_what_is_undone_together(
    entries: tuple[Entry, ...], found: str, pending: str
) -> None:
    """Whoever gives up a run also undoes the runs whose place it took, and what earlier
    ones have left; nothing from before the cluster was last left. What is left once no
    run is open is pending.
    """
    known = roles.merged((*START, *entries), pair=PAIR.name)
    assert "".join(each.first.run for each in roles.to_undo(known, PAIR)) == found
    left = "".join(each.first.run for each in roles.pending(known, PAIR))
    assert left == pending
    text = roles.pending_text(known, PAIR)
    if pending:
        assert "undoing hold, fence is pending" in text
        assert "`mirror switch 'A->B' --abort`" in text
    else:
        assert text == ""


def failed_over(epoch: int = 2) -> list[Entry]:
    """A failover from A, through."""
    steps = ("fence", roles.ROLE, roles.END)
    return [
        replace(entry(n, step, epoch=epoch), kind=Kind.FAILOVER)
        for n, step in enumerate(steps)
    ]


def test_a_failover_owes_a_fence_until_it_is_noted() -> None:
    """From the moment the other cluster is active, and after the command died; a
    planned switch owes none.
    """
    through = failed_over()
    made = through[1]
    assert roles.owed(through[:1]) is None
    assert roles.owed(through[:2]) == made, "its own run is open still"
    assert roles.owed(through) == made
    noted = roles.fence_laid(made, through, ["t"], at=5.0, by="service")
    assert roles.owed([*through, noted]) is None
    assert roles.open_run([*through, noted]) is None
    assert roles.role([*through, noted], PAIR) == roles.role(through, PAIR)
    assert roles.owed([replace(each, kind=Kind.SWITCH) for each in through]) is None


def test_two_services_note_the_same_fence() -> None:
    """Both journals together have one entry, no matter who wrote each."""
    through = failed_over()
    one, other = (
        roles.fence_laid(through[1], through, ["t"], at=5.0, by=by)
        for by in ("one", "other")
    )
    assert len(roles.merged([one], [other], pair=PAIR.name)) == 1


@pytest.mark.parametrize(
    ("laid", "is_owed"),
    [
        ([], True),
        ([{}], True),
        ([{"topics": ["orders"]}], True),
        ([{"topics": ["orders", "billing", "more"]}], False),
        ([{"topics": ["orders"], "absent": ["billing"]}], False),
        ([{"topics": ["orders"]}, {"topics": ["billing"]}], False),
    ],
)
def test_a_fence_is_owed_until_it_covers_what_was_noted(
    laid: list[dict[str, list[str]]], is_owed: bool
) -> None:
    """Whoever lays it: by an earlier version, on a part of the topics, on all of them,
    with one that is not there, and in two turns.
    """
    first, *others = failed_over()
    noted = {"owed": {"selection": {}, "topics": ["billing", "orders"]}}
    through = [replace(first, details=noted), *others]
    entries = list(through)
    for details in laid:
        fence = roles.fence_laid(through[1], entries, [], at=5.0, by="service")
        entries.append(replace(fence, details=details))
    merged = roles.merged(entries, pair=PAIR.name)
    assert len(merged) == len(entries), "a later fence is another entry"
    assert (roles.owed(merged) is not None) is is_owed
    whole = roles.fence_laid(through[1], entries, ["orders"], at=6.0, by="service")
    assert roles.owed([*merged, whole]) is None, "the other one is not there"


def test_the_next_run_settles_what_is_owed() -> None:
    """While a switch home is open its own steps decide, and once it is through nothing
    is owed; if it is undone, the fence is owed as before.
    """
    begun = [*failed_over(), entry(0, "assess", StepState.BEGUN, epoch=3)]
    assert roles.owed(begun) is None
    assert roles.leads_to(begun, PAIR) == "A"
    assert roles.owed([*begun, entry(1, roles.ROLE, epoch=3)]) is None
    undone = [*begun, entry(1, roles.END, StepState.UNDONE, epoch=3)]
    assert roles.owed(undone) == failed_over()[1]
    assert roles.leads_to(undone, PAIR) == "B"


def at(seconds: float, *said: tuple[str, StepState]) -> roles.Run:
    """A run whose entries are a second apart."""
    entries = [
        replace(entry(n, step, state), at=seconds + n)
        for n, (step, state) in enumerate(said)
    ]
    return roles.Run(entries=tuple(entries))


def test_for_how_long_producers_are_blocked() -> None:
    """From the beginning of the fence to the step that makes B active, or until the
    fence is undone; a fence that begins once more after that counts from there.
    """
    begun, done, undone = StepState.BEGUN, StepState.DONE, StepState.UNDONE
    assert at(10, ("assess", begun), ("hold", done)).block is None
    fenced = [("hold", done), ("fence", begun), ("fence", done)]
    assert at(10, *fenced).block == roles.WriteBlock(began=11)
    through = at(10, *fenced, (roles.ROLE, begun), (roles.ROLE, done))
    assert through.block == roles.WriteBlock(began=11, ended=14)
    back = [*fenced, ("fence", StepState.FAILED), ("fence", undone)]
    assert at(10, *back).block == roles.WriteBlock(began=11, ended=14)
    assert at(10, *back, ("fence", begun)).block == roles.WriteBlock(began=15)


def test_the_step_of_a_run() -> None:
    """Steps count from 1, as the command prints them; a run that ended has none."""
    begun = StepState.BEGUN
    assert at(1, ("assess", begun)).step == 1
    assert at(1, ("fence", begun), ("prove", begun)).step == 9
    assert at(1, ("prove", begun), (roles.END, StepState.DONE)).step == 0


def test_entries_of_other_pairs_do_not_count() -> None:
    """Several pairs share one journal: another pair's first role, which has the same
    run and number, is not this one's.
    """
    other = replace(entry(0, roles.ROLE), pair="A<->C")
    assert roles.merged([other], pair=PAIR.name) == ()
    start = roles.first_role(PAIR, at=1.0, by="service")
    others = [replace(each, pair="A<->C") for each in start]
    assert journal.missing(start, others) == start
    assert journal.missing(start, [*others, *start]) == ()


def test_a_role_is_decided_once() -> None:
    """B is active once one journal says so, whatever another operator, which could not
    read that, wrote under the same number to the other one.
    """
    so_far = [entry(0, "fence"), entry(1, roles.ROLE, StepState.BEGUN)]
    there = [*so_far, entry(2, roles.ROLE)]
    here = [
        *so_far,
        entry(2, roles.ROLE, StepState.FAILED),
        entry(3, roles.ROLE, StepState.UNDONE),
    ]
    for journals in ((there, here), (here, there)):
        run = roles.open_run(roles.merged(*journals, pair=PAIR.name))
        assert run is not None
        assert run.moved
        assert procedure.left(run)[-2:] == ("redirect", "prove")
        assert roles.ROLE not in procedure.left(run)
        role = roles.Role(active="B", epoch=2, since=0.0)
        with pytest.raises(MirrorError, match="B is active since switch"):
            procedure.require_undoable(run, role, answers=True)
        # A became active again, as B seemed to be lost.
        later = roles.Role(active="A", epoch=3, since=0.0)
        procedure.require_undoable(run, later, answers=True)


@pytest.mark.parametrize(
    ("step", "state", "may"),
    [
        ("positions", StepState.DONE, False),
        (roles.ROLE, StepState.BEGUN, True),
        (roles.ROLE, StepState.FAILED, False),
        (roles.ROLE, StepState.UNDONE, False),
        (roles.ROLE, StepState.DONE, True),
    ],
)
def test_what_the_journal_of_the_source_tells(
    step: str, state: StepState, *, may: bool
) -> None:
    """The target's journal is one entry ahead at most, so it can say that B is active
    only if A's has `open` BEGUN; of a failover, A's journal says nothing.
    """
    last = entry(9, step, state)
    assert procedure.may_have_moved(Run(entries=(last,))) is may
    failed_over = replace(last, kind=Kind.FAILOVER)
    assert procedure.may_have_moved(Run(entries=(failed_over,)))


def test_a_configuration_that_says_another_active_cluster() -> None:
    """It is shown while the pair has its first role, and not once it was switched."""
    start = roles.first_role(PAIR, at=1.0, by="service here:1")
    other = PairConfig(one="A", other="B", active="B")
    assert roles.remark(start, PAIR) == ""
    assert "active: B, but the pair began with A (service" in roles.remark(start, other)
    assert roles.remark((*start, entry(0, roles.ROLE)), PAIR) == ""


def test_an_entry_comes_back_as_it_was() -> None:
    """What is written is what is read, except for parts of a millisecond."""
    written = replace(entry(7, "fence", StepState.FAILED), details={"n": [1, "ü"]})
    assert journal.decode(*written.record()) == written


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"version": 2}, "this mirror reads 1"),
        ({"kind": "OTHER"}, "is damaged"),
        ({"at": 3}, "is damaged"),
        ({"details": 3}, "is damaged"),
    ],
)
def test_a_damaged_entry_is_refused(change: dict[str, object], text: str) -> None:
    """An entry that cannot be understood is never skipped: it may be the last role."""
    key, value = entry(0, roles.ROLE).record()
    with pytest.raises(ClusterError, match=text):
        journal.decode(key, json.dumps(json.loads(value) | change).encode())


@pytest.mark.parametrize(
    ("asked", "active", "read_at", "status"),
    [
        ("B", "B", 100.0, 200),
        ("B", "B", 71.0, 200),
        ("B", "B", 69.0, 503),
        ("B", "A", 100.0, 503),
        ("B", "", 100.0, 503),
        ("C", "B", 100.0, 404),
    ],
)
def test_active(asked: str, active: str, read_at: float, status: int) -> None:
    """The cluster asked about is active by its own journal, read in the last 30
    seconds; what the other journal says does not matter, nor a clock that was set.
    """
    mine = MemberStatus(cluster="B", active=active, read_at=5.0, read_monotonic=read_at)
    other = MemberStatus(cluster="A", active="A", read_at=9e9, read_monotonic=100.0)
    pair = PairStatus(name="A<->B", active="A", epoch=9, since=0, members=(other, mine))
    for name in ("A<->B", "B<->A"):
        assert is_active([pair], name, asked, now=101.0).status == status


def test_beginnings_come_back_as_they_were() -> None:
    """Where a flow begins after a failover outlasts the journal's JSON, also for a
    partition that did not answer; other entries say nothing about it.
    """
    ids = [uuid.UUID(int=number) for number in (1, 2)]
    given = {
        ("t", 0): Position(offset=7, topic_id=ids[0]),
        ("t", 11): Position(offset=UNSETTLED, leader_epoch=3, topic_id=ids[0]),
        ("u", 0): Position(offset=0, topic_id=ids[1]),
    }
    details = {roles.BEGINS: roles.noted_begins(given)}
    assert roles.read_begins(json.loads(json.dumps(details))) == given
    assert roles.read_begins({}) is None


def test_active_before_the_journal_was_read() -> None:
    """A machine that has just started has a monotonic clock near zero: a journal that
    was never read says nothing even then.
    """
    member = MemberStatus(cluster="B", active="B")
    pair = PairStatus(name="A<->B", active="B", epoch=1, since=0, members=(member,))
    assert is_active([pair], "A<->B", "B", now=3.0).status == 503
