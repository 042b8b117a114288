"""Pauses between attempts, and how long a cluster may say "not yet"."""

from __future__ import annotations

import logging
import time

import pytest

from mirror import patience
from mirror.errors import BrokerError, NoLeaderError, UnreachableError
from mirror.retry import Backoff, patiently

pytestmark = pytest.mark.unit

_NOT_YET = (
    BrokerError(name="COORDINATOR_LOAD_IN_PROGRESS", what="asking", retriable=True),
    NoLeaderError("A: topic t has no leader"),
)


def _answers(*answers: Exception | int):
    left = iter(answers)

    def ask() -> int:
        answer = next(left)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return ask


def test_a_pause_doubles_up_to_the_longest() -> None:
    """Each failure in a row doubles the pause; a success resets it."""
    backoff, pause, pauses = Backoff(0.5, 30.0), 0.0, []
    for _ in range(2000):
        pause = backoff.after(pause)
        pauses.append(pause)
    assert pauses[:8] == [0.5, 1, 2, 4, 8, 16, 30, 30]
    assert pauses[-1] == 30


@pytest.mark.parametrize("error", _NOT_YET)
def test_a_cluster_is_asked_until_it_answers(
    error: Exception,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Three answers of "not yet" are neither logged nor printed."""
    caplog.set_level(logging.DEBUG)
    assert patiently(_answers(error, error, error, 7)) == 7
    assert (*capfd.readouterr(), caplog.text) == ("", "", "")


def test_patience_ends_with_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work that has a deadline does not ask for longer than that leaves, as if for the
    last time.
    """
    monkeypatch.setattr(patience, "_LEAST_SECONDS", 0.2)
    began = time.monotonic()
    with patience.until(began), pytest.raises(NoLeaderError):
        patiently(_answers(*[_NOT_YET[1]] * 1000), seconds=20.0)
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("error", _NOT_YET)
def test_patience_ends(error: Exception) -> None:
    """When time is up, the last "not yet" is the error."""
    began = time.monotonic()
    with pytest.raises(type(error)):
        patiently(_answers(*[error] * 1000), seconds=0.2)
    assert 0.1 < time.monotonic() - began < 5


@pytest.mark.parametrize(
    "error",
    [
        BrokerError(name="INVALID_GROUP_ID", what="asking", retriable=False),
        UnreachableError(),
        ValueError(),
    ],
)
def test_other_errors_are_raised_at_once(error: Exception) -> None:
    """This includes that no broker answers: the caller knows better what to do."""
    with pytest.raises(type(error)):
        patiently(_answers(error, 7))
