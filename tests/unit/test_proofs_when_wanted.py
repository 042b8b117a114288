"""Proofs in a service are loaded when a flow wants some."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from mirror.proofs import in_service
from mirror.proofs.in_service import ServiceProofs
from mirror.status.store import StatusStore

if TYPE_CHECKING:
    from mirror.proofs.in_service import FlowProofs

pytestmark = pytest.mark.unit

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
    return service.of(flow, _CONFIG, store), store


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
