"""What commands of a pair answer before they wait for anything, and when they are
interrupted: from what journals say to the words that people read.
"""

from __future__ import annotations

import pytest

from mirror.config.pair_settings import PairConfig
from mirror.errors import MirrorError
from mirror.pairs import roles
from mirror.pairs.journal import Entry, Kind, StepState
from mirror.pairs.roles import Run
from mirror.recovery import procedure
from mirror.recovery.procedure import Asks

pytestmark = pytest.mark.unit

PAIR = PairConfig(one="A", other="B", active="A")
ORDERS = PairConfig(
    one="A", other="B", scope="orders", topics=("o",), groups=(), active="A"
)
START = roles.first_role(PAIR, at=1.0, by="service")


def run(
    *said: tuple[str, StepState],
    epoch: int = 2,
    kind: Kind = Kind.SWITCH,
    ends: tuple[str, str] = ("A", "B"),
    pair: PairConfig = PAIR,
) -> tuple[Entry, ...]:
    """The entries of one run."""
    return tuple(
        Entry(
            pair=pair.name, run=f"{epoch:08}", number=number, kind=kind, epoch=epoch,
            source=ends[0], target=ends[1], step=step, state=state,
            at=1000.0 + epoch + number, by="me@here",
        )
        for number, (step, state) in enumerate(said)
    )  # fmt: skip


def through(**options: object) -> tuple[Entry, ...]:
    done = StepState.DONE
    return run((roles.ROLE, done), (roles.END, done), **options)  # type: ignore[arg-type]


SWITCHED = (*START, *through())
FAILED_OVER = (*START, *through(kind=Kind.FAILOVER))
HOME = (*FAILED_OVER, *through(epoch=3, ends=("B", "A")))
OPEN = (*START, *run(("fence", StepState.BEGUN)))
MOVED = (*START, *run((roles.ROLE, StepState.DONE), ("redirect", StepState.BEGUN)))
NOTHING, GO = "nothing", "go"


@pytest.mark.parametrize(
    ("asks", "way", "entries", "found", "words"),
    [
        # The direction is right.
        (Asks.SWITCH, "AB", START, GO, ()),
        (Asks.SWITCH, "AB", (), GO, ()),
        (Asks.FAILOVER, "AB", START, GO, ()),
        (Asks.FAILBACK, "BA", FAILED_OVER, GO, ()),
        (Asks.DRILL, "AB", START, GO, ()),
        (Asks.TAIL, "AB", FAILED_OVER, GO, ()),
        (Asks.TAIL, "AB", SWITCHED, GO, ()),
        # It is there already, or the direction is wrong.
        (Asks.SWITCH, "BA", (), NOTHING,
         ("A is the active cluster by the configuration (recovery.A<->B.active)",
          "To make B the active one: `mirror switch 'A->B'`")),
        (Asks.SWITCH, "BA", START, NOTHING, ("A is the active cluster since 1970",)),
        (Asks.SWITCH, "AB", SWITCHED, NOTHING,
         ("B is the active cluster since 1970-01-01T00:16:42Z",
          "(switch A->B 00000002 by me@here)", "`mirror switch 'B->A'`")),
        (Asks.FAILOVER, "BA", START, NOTHING, ("`mirror switch 'A->B'`",)),
        (Asks.FAILOVER, "AB", FAILED_OVER, NOTHING, ("(failover A->B 00000002",)),
        (Asks.FAILBACK, "BA", START, NOTHING, ("`mirror switch 'A->B'`",)),
        (Asks.FAILBACK, "AB", FAILED_OVER, NOTHING, ("`mirror switch 'B->A'`",)),
        (Asks.DRILL, "BA", (), "", ("A is the active", "`mirror drill 'A->B'`")),
        (Asks.DRILL, "AB", SWITCHED, "", ("`mirror drill 'B->A'`",)),
        # Nothing was failed over.
        (Asks.FAILBACK, "AB", START, "",
         ("nothing was failed over from B", "`mirror switch 'A->B'`")),
        (Asks.FAILBACK, "BA", SWITCHED, "",
         ("`mirror switch 'B->A'`", "`mirror failback 'B->A' --restore`")),
        (Asks.FAILBACK, "AB", HOME, "", ("nothing was failed over from B",)),
        (Asks.TAIL, "AB", START, "", ("is lag, and no tail", "`mirror lag`")),
        (Asks.TAIL, "BA", FAILED_OVER, "", ("`mirror tail list 'A->B'`",)),
        # Another run is open.
        (Asks.SWITCH, "AB", OPEN, GO, ()),
        (Asks.FAILOVER, "AB", OPEN, GO, ()),
        (Asks.FAILBACK, "BA", OPEN, "",
         ("switch A->B 00000002 is open, at step fence, begun by me@here at 1970",
          "finish it with `mirror switch 'A->B'`",
          "undo it with `mirror switch 'A->B' --abort`")),
        (Asks.SWITCH, "BA", OPEN, "", ("is open, at step fence",)),
        (Asks.FAILOVER, "BA", OPEN, "", ("is open, at step fence",)),
        (Asks.TAIL, "BA", OPEN, "", ("is open, at step fence",)),
        (Asks.SWITCH, "BA", MOVED, "", ("finish it with `mirror switch 'A->B'`",)),
    ],
)  # fmt: skip
def test_an_answer(
    asks: Asks, way: str, entries: tuple[Entry, ...], found: str, words: tuple[str, ...]
) -> None:
    """For each command and what the journals say: go ahead, nothing to do, or a
    refusal, with what is so and the command to type.
    """
    journals = {"A": entries, "B": entries}
    known = procedure.known(PAIR, journals)
    if found == GO:
        assert procedure.answer(asks, *way, known) == ""
        return
    if found == NOTHING:
        text = procedure.answer(asks, *way, known)
        assert "nothing to do" in text
    else:
        with pytest.raises(MirrorError) as refusal:
            procedure.answer(asks, *way, known)
        text = str(refusal.value)
    for each in words:
        assert each in text


def test_what_moved_is_not_undone() -> None:
    """Of a run that has made the other cluster active, no command to undo is named."""
    with pytest.raises(MirrorError) as refusal:
        procedure.answer(Asks.SWITCH, "B", "A", procedure.known(PAIR, {"A": MOVED}))
    assert "--abort" not in str(refusal.value)


@pytest.mark.parametrize(
    ("read", "entries", "decides"),
    [
        ("A", SWITCHED, True),  # A's journal says that B is active: B's came first
        ("B", SWITCHED, False),  # A may be active since, by its own journal
        ("B", HOME, True),
        ("A", HOME, False),
        ("A", (), False),
        ("A", OPEN, False),
        ("AB", SWITCHED, True),
        ("AB", (), True),
        ("AB", OPEN, False),
        ("", (), False),
    ],
)
def test_one_journal_decides(
    read: str, entries: tuple[Entry, ...], decides: bool
) -> None:
    """One journal is enough if it names the other cluster, which is active by its own
    journal before any other says so; never while a run is open.
    """
    known = procedure.known(PAIR, dict.fromkeys(read, entries))
    assert known.decides is decides


def test_a_journal_is_missing() -> None:
    """What one journal alone cannot decide is no success of a switch, which needs both
    clusters, and says what is missing; a failover, which does without, has nothing to
    do.
    """
    known = procedure.known(PAIR, {"B": SWITCHED})
    with pytest.raises(MirrorError, match="without the journal of A"):
        procedure.answer(Asks.SWITCH, "A", "B", known)
    text = procedure.answer(Asks.FAILOVER, "A", "B", known)
    assert "without the journal of A: nothing to do" in text


def test_another_pair_is_switched() -> None:
    """The run of another pair of the two clusters is named with its whole name."""
    entries = run(("fence", StepState.BEGUN), pair=ORDERS)
    billing = ORDERS.model_copy(update={"scope": "billing"})
    with pytest.raises(MirrorError, match=r"`mirror switch 'A->B/orders' --abort`"):
        procedure.answer(
            Asks.SWITCH, "A", "B", procedure.known(billing, {"A": entries, "B": ()})
        )
    with pytest.raises(MirrorError, match=r"`mirror drill 'A->B/billing'`"):
        procedure.answer(
            Asks.DRILL, "B", "A", procedure.known(billing, {"A": (), "B": ()})
        )


@pytest.mark.parametrize(
    ("entries", "read", "undone", "words"),
    [
        (START, "AB", False, "none was ever begun"),
        (SWITCHED, "AB", False, "switch A->B 00000002 was completed at 1970"),
        (SWITCHED, "AB", False, "to go back: `mirror switch 'B->A'`"),
        ((*START, *run(("fence", StepState.UNDONE), (roles.END, StepState.UNDONE))),
         "AB", True, "switch A->B 00000002 was undone at 1970"),
        ((*START, *run(("fence", StepState.UNDONE), (roles.END, StepState.UNDONE))),
         "A", False, "without that of B"),
    ],
)  # fmt: skip
def test_nothing_to_undo(
    entries: tuple[Entry, ...], read: str, undone: bool, words: str
) -> None:
    """Without an open run --abort says which one was last and how it ended; it has
    nothing to do only where both journals say that this one was undone.
    """
    known = procedure.known(PAIR, dict.fromkeys(read, entries))
    if undone:
        assert words in procedure.undo_answer(Kind.SWITCH, "A", "B", known)
        return
    with pytest.raises(MirrorError) as refusal:
        procedure.undo_answer(Kind.SWITCH, "A", "B", known)
    assert words in str(refusal.value)


def test_the_wrong_run_is_to_be_undone() -> None:
    """--abort of another direction names the run that is open."""
    known = procedure.known(PAIR, {"A": OPEN, "B": OPEN})
    assert procedure.undo_answer(Kind.SWITCH, "A", "B", known) == ""
    with pytest.raises(MirrorError, match="is open, at step fence"):
        procedure.undo_answer(Kind.SWITCH, "B", "A", known)


def test_a_source_that_answers() -> None:
    """A failover is refused with the switch to make; of one that is open, the answer
    says how to finish and to undo it, as a switch is refused meanwhile.
    """
    known = procedure.known(PAIR, {"A": START, "B": START})
    text = str(procedure.source_answers("A", known, "A->B"))
    assert "`mirror switch 'A->B'`; --force" in text
    begun = (*START, *run(("fence", StepState.BEGUN), kind=Kind.FAILOVER))
    known = procedure.known(PAIR, {"A": START, "B": begun})
    text = str(procedure.source_answers("A", known, "A->B"))
    assert "`mirror failover 'A->B' --force`" in text
    assert "`mirror failover 'A->B' --abort`" in text


BEGUN, DONE, UNDONE = StepState.BEGUN, StepState.DONE, StepState.UNDONE
FENCED = (("assess", DONE), ("fence", BEGUN), ("fence", DONE), ("drain", BEGUN))
BLOCKED = ", and producers of A have been blocked for 98 s"
IN = "interrupted in step"
UNDOING = "interrupted while step"
RUN = "run 00000002 is open"
SWITCH = "switch A->B 00000002 is"
UNDO = "undo: U"


@pytest.mark.parametrize(
    ("entries", "options", "first", "undo"),
    [
        ((), {"began": False}, "interrupted: nothing was changed", ""),
        (run(("assess", BEGUN)), {}, f"{IN} 1 (assess); {RUN}", UNDO),
        (
            run(("fence", BEGUN)),
            {},
            f"{IN} 3 (fence); {RUN}{BLOCKED.replace('have', 'may have')[:-4]}99 s",
            UNDO,
        ),
        (run(*FENCED), {}, f"{IN} 4 (drain); {RUN}{BLOCKED}", UNDO),
        (
            run(*FENCED),
            {"fence": "confirmed"},
            f"{IN} 4 (drain); {RUN}{BLOCKED.replace('blocked', 'stopped')}",
            UNDO,
        ),
        (
            run(*FENCED),
            {"began": False},
            f"interrupted; {SWITCH} open still, at step 4 (drain){BLOCKED}",
            UNDO,
        ),
        (
            run(*FENCED),
            {"undoes": True},
            f"{UNDOING} 4 (drain) was being undone; {RUN}{BLOCKED}",
            UNDO,
        ),
        (
            run(*FENCED, ("drain", UNDONE)),
            {},
            f"{UNDOING} 3 (fence) was being undone; {RUN}{BLOCKED}",
            UNDO,
        ),
        (
            run(*FENCED, ("drain", UNDONE), ("fence", UNDONE)),
            {},
            f"{UNDOING} 1 (assess) was being undone; {RUN}",
            UNDO,
        ),
        (
            run((roles.ROLE, BEGUN)),
            {},
            f"{IN} 7 (open); {RUN}",
            "undo, unless B is active by then: U",
        ),
        (
            run((roles.ROLE, DONE), ("redirect", BEGUN)),
            {},
            f"{IN} 8 (redirect); {RUN}, and B is active",
            "to go back after that: mirror switch 'B->A'",
        ),
        (run(*FENCED, kind=Kind.FAILOVER), {}, f"{IN} 4 (drain); {RUN}", UNDO),
        (
            through(),
            {},
            f"interrupted at the end: {SWITCH} through, and B is active",
            "",
        ),
        (
            run(("assess", UNDONE), (roles.END, UNDONE)),
            {},
            f"interrupted at the end: {SWITCH} undone",
            "",
        ),
        (
            (),
            {},
            "interrupted as step 1 began: `mirror pair` shows whether a run is open",
            UNDO,
        ),
    ],
)
def test_an_interrupted_run(
    entries: tuple[Entry, ...], options: dict[str, object], first: str, undo: str
) -> None:
    """Whatever step a run has reached, its lines say which run is open, what producers
    meet, and how to go on and to undo it, if that is possible.
    """
    told = {"began": True, "undoes": False, "fence": "acl", **options}
    lines = procedure.interrupted(
        Run(entries=entries) if entries else None,
        PAIR.model_copy(update={"fence": told.pop("fence")}),
        at=1101.0,
        forward="F",
        undo="U",
        **told,  # type: ignore[arg-type]
    )
    assert lines == [first, *(["go on: F", undo] if undo else [])]


def test_the_configuration_names_the_active_cluster() -> None:
    """While the journals have no role it is that of the configuration; a journal that
    was not read may have another one.
    """
    pair = PAIR.model_copy(update={"active": "B"})
    known = procedure.known(pair, {"B": ()})
    with pytest.raises(MirrorError, match=r"by the configuration.*without the journal"):
        procedure.answer(Asks.SWITCH, "A", "B", known)
