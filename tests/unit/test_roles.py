"""Roles of pairs from the entries of journals, and what `/active` answers."""

from __future__ import annotations

from dataclasses import replace
import json

import pytest

from mirror.config.pair_settings import PairConfig
from mirror.errors import ClusterError
from mirror.recovery import journal, roles
from mirror.recovery.journal import Entry, Kind, StepState
from mirror.status.pairs import MemberStatus, PairStatus
from mirror.web.active import is_active

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


def test_entries_of_other_pairs_do_not_count() -> None:
    """Several pairs share one journal."""
    other = replace(entry(0, roles.ROLE), pair="A<->C")
    assert roles.merged([other], pair=PAIR.name) == ()


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
    seconds; what the other journal says does not matter.
    """
    mine = MemberStatus(cluster="B", active=active, read_at=read_at)
    other = MemberStatus(cluster="A", active="A", read_at=100.0)
    pair = PairStatus(name="A<->B", active="A", epoch=9, since=0, members=(other, mine))
    for name in ("A<->B", "B<->A"):
        assert is_active([pair], name, asked, now=101.0).status == status
