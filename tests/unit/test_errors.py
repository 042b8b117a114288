"""Which errors may pass by themselves, and what `mirror group` makes of that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from mirror import errors
from mirror.cli.group import _look
from mirror.clusters import codes
from mirror.errors import (
    AuthenticationError,
    AuthorizationError,
    BrokerError,
    ClusterChangedError,
    ClusterError,
    FencedError,
    FenceError,
    LeaderError,
    NoLeaderError,
    OutdatedRoleError,
    PrincipalError,
    RecreatedError,
    SupersededError,
    UnknownRoleError,
    UnreachableError,
    UnsupportedBrokerError,
)
from mirror.offsets import group_survey
from mirror.topics.merging import Merging

if TYPE_CHECKING:
    from mirror.config.schema import FlowConfig

pytestmark = pytest.mark.unit

_PASSES = {
    "unreachable": UnreachableError(),
    "leader": LeaderError("gone", ()),
    "no leader": NoLeaderError(),
    "broker, for now": BrokerError(name="X", what="asking", retriable=True),
    "coordinator": codes.error_for(codes.COORDINATOR_NOT_AVAILABLE, "asking"),
    "leadership": codes.error_for(6, "asking"),
    "re-created": RecreatedError(),
}
_STAYS = {
    "cluster": ClusterError(),
    "broker": BrokerError(name="X", what="asking", retriable=False),
    "config": codes.error_for(codes.INVALID_CONFIG, "asking"),
    "login": AuthenticationError(),
    "right": codes.error_for(codes.GROUP_AUTHORIZATION_FAILED, "asking"),
    "rights": AuthorizationError(),
    "version": UnsupportedBrokerError(),
    "other cluster": ClusterChangedError(),
    "fenced": codes.error_for(codes.PRODUCER_FENCED, "asking"),
    "fence": FencedError(),
    "role": OutdatedRoleError("rests", epoch=2),
    "lost role": UnknownRoleError("knew more", pair="A<->B", role=2, begun=2),
    "ACLs": FenceError(),
    "principal": PrincipalError(),
    "superseded": SupersededError(),
}


class _Said:
    """A part of an answer, with the broker's own words."""

    def __init__(self, code: int) -> None:
        self.error_code = code
        self.error_message = "in its words"


def _survey(error: ClusterError) -> Any:
    """One that fails as soon as it has to ask the source."""

    def survey(_flow: Any, _target: Any, source: Any, _writers: Any) -> str:
        if source is not None:
            raise error
        return "from the last checkpoints"

    return survey


class _Flow:
    name, source, target = "A->B", "A", "B"


def _look_at(error: ClusterError, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(group_survey, "survey", _survey(error))
    return _look(
        cast("FlowConfig", _Flow),
        cast("Any", lambda alias: alias),
        Merging(()),
        target_only=False,
    )


@pytest.mark.parametrize("error", _PASSES.values(), ids=_PASSES)
def test_groups_are_shown_as_of_the_last_checkpoints(
    error: ClusterError, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a source cannot answer for now, groups are shown without it."""
    assert error.retriable
    assert _look_at(error, monkeypatch) == "from the last checkpoints"


@pytest.mark.parametrize("error", _STAYS.values(), ids=_STAYS)
def test_what_somebody_has_to_put_right_is_said(
    error: ClusterError, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What does not pass by itself is an error, not a reason for older figures."""
    assert not error.retriable
    with pytest.raises(type(error)):
        _look_at(error, monkeypatch)


@pytest.mark.parametrize(
    ("code", "retriable"), [(codes.COORDINATOR_NOT_AVAILABLE, True), (40, False)]
)
def test_a_brokers_words_leave_an_errors_kind(code: int, *, retriable: bool) -> None:
    """An error that comes with the broker's own words passes, or does not, as one
    without.
    """
    error = codes.error_of(_Said(code), "asking")
    assert "in its words" in str(error)
    assert error.retriable is retriable


def test_every_kind_of_error_is_sorted() -> None:
    """A new kind of cluster error must be sorted into one of the two above."""
    sorted_here = {type(error) for error in (*_PASSES.values(), *_STAYS.values())}
    kinds = {
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, ClusterError)
    }
    assert kinds == sorted_here
