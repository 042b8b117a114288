"""Proofs in a service are loaded when a flow wants some."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from mirror.proofs.when_wanted import ProofsWhenWanted
import pytest

from mirror.proofs import in_service

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.unit

_OFF, _ON = (cast("Any", SimpleNamespace(verify=verify)) for verify in ("off", "new"))


class _Proofs:
    """What is asked of the real ones, of the service and of its flow alike."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def begin(self, *session: object) -> None:
        self.asked.append(f"begin {session}")

    def of(self, flow: Any, *_: object) -> _Proofs:
        self.asked.append(f"of {flow.verify}")
        return self

    def adopt(self, flow: Any, _config: object) -> None:
        self.asked.append(f"adopt {flow.verify}")

    def job(self) -> str:
        return "job"

    def stop(self) -> None:
        self.asked.append("stop")


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> Callable[[], _Proofs]:
    """The one that stands for the real ones, once it is made."""
    made: list[_Proofs] = []

    def make() -> _Proofs:
        made.append(_Proofs())
        return made[-1]

    monkeypatch.setattr(in_service, "ServiceProofs", make)

    def one() -> _Proofs:
        (found,) = made
        return found

    return one


def test_a_flow_that_proves_nothing_loads_nothing(
    loaded: Callable[[], _Proofs],
) -> None:
    """Without `verify` there is no job, and nothing is made that could do one."""
    service = ProofsWhenWanted()
    flow = service.of(_OFF, cast("Any", None), cast("Any", None))
    service.begin(*cast("Any", (1, 2, 3)))
    flow.adopt(_OFF, cast("Any", None))
    flow.stop()

    assert flow.job() is None
    with pytest.raises(ValueError, match="not enough values"):
        loaded()


def test_another_configuration_turns_proofs_on(
    loaded: Callable[[], _Proofs],
) -> None:
    """They get the session that began long before, and later settings, also those that
    turn them off again.
    """
    service = ProofsWhenWanted()
    flow = service.of(_OFF, cast("Any", None), cast("Any", None))
    service.begin(*cast("Any", (1, 2, 3)))
    flow.adopt(_ON, cast("Any", None))
    flow.adopt(_OFF, cast("Any", None))

    assert cast("Any", flow.job()) == "job"
    assert loaded().asked == ["begin (1, 2, 3)", "of new", "adopt off"]


def test_proofs_wanted_from_the_beginning_get_the_session_when_it_is_there(
    loaded: Callable[[], _Proofs],
) -> None:
    """Two flows share one, which begins with the session."""
    service = ProofsWhenWanted()
    for _ in range(2):
        service.of(_ON, cast("Any", None), cast("Any", None))
    service.begin(*cast("Any", (1, 2, 3)))

    assert loaded().asked == ["of new", "of new", "begin (1, 2, 3)"]
