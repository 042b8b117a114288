"""Pauses and losses as values, and what a quota teaches."""

from __future__ import annotations

import json
import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
import pytest

from mirror.copying.target import Quota
from mirror.errors import ClusterError
from mirror.pairs.control import EVERY_TOPIC, Pauses
from mirror.pairs.losses import Cause, Loss

pytestmark = pytest.mark.unit

_NAMES = ("orders", "payments", "payments.eu")
_PATTERNS = (*_NAMES, r"payments.*", EVERY_TOPIC)


def test_the_last_rule_that_matches_counts() -> None:
    """A topic is paused unless a later rule resumes it; a pause of all overrides
    earlier rules.
    """
    held = Pauses().changed(EVERY_TOPIC, paused=True, now=1.0)
    held = held.changed("payments.*", paused=False, now=2.0)
    held = held.changed("payments.eu", paused=True, now=3.0)
    assert [held.since(name) for name in _NAMES] == [1.0, 0.0, 3.0]
    held = held.changed(EVERY_TOPIC, paused=True, now=4.0)
    assert [held.since(name) for name in _NAMES] == [4.0, 4.0, 4.0]


@given(st.lists(st.tuples(st.sampled_from(_PATTERNS), st.booleans()), max_size=12))
def test_rules_are_kept_short_and_mean_the_same(
    changes: list[tuple[str, bool]],
) -> None:
    """Dropping overridden rules changes nothing, and neither does writing and reading
    them; after resuming all, no rule is left.
    """
    held = Pauses()
    for now, (pattern, paused) in enumerate(changes, 1):
        held = held.changed(pattern, paused=paused, now=float(now))
    for name in _NAMES:
        expected = 0.0
        for now, (pattern, paused) in enumerate(changes, 1):
            if re.fullmatch(pattern, name):
                expected = float(now) if paused else 0.0
        assert held.since(name) == expected
    assert Pauses.decode(_json(held.document())) == held
    assert len(held.rules) <= len(_PATTERNS)
    assert held.changed(EVERY_TOPIC, paused=False, now=99.0) == Pauses()


def _json(document: dict[str, Any]) -> bytes:
    return json.dumps(document).encode()


def _loss(last: int | None) -> Loss:
    return Loss(
        at=1_700_000_000.125,
        flow="A->B",
        topic="orders",
        partition=3,
        target_topic="A.orders",
        cause=Cause.DELETED,
        first=5,
        last=last,
        topic_id="0" * 32,
    )


@pytest.mark.parametrize(("last", "count"), [(9, 5), (5, 1), (None, None)])
def test_a_loss_survives_the_ledger(last: int | None, count: int | None) -> None:
    """What is written is what is read, exact to the offset."""
    loss = _loss(last)
    assert Loss.decode(_json(loss.document())) == loss
    assert loss.document()["count"] == loss.count == count
    assert loss.document()["at"] == "2023-11-14T22:13:20.125Z"


def test_newer_documents_are_refused() -> None:
    """A document of a newer mirror is refused, not guessed at."""
    with pytest.raises(ClusterError, match="version 2"):
        Loss.decode(_json({**_loss(9).document(), "version": 2}))
    with pytest.raises(ClusterError, match="version 2"):
        Pauses.decode(_json({"version": 2, "rules": []}))


def test_a_quota_makes_transactions_small_and_is_forgotten() -> None:
    """A long rest leads to about a second's worth at a time; without rests the size
    grows back to where it was, never beyond.
    """
    quota = Quota()
    most = quota.most_bytes
    quota.learn(16 << 20, 80.0)
    assert 150_000 < quota.most_bytes < 250_000
    quota.learn(200_000, 1000.0)
    assert quota.most_bytes == 64 << 10
    for _ in range(100):
        quota.learn(64 << 10, 0.0)
    assert quota.most_bytes == most
