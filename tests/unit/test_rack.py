"""What `mirror check` says about a flow's rack."""

from __future__ import annotations

import pytest

from mirror.checks import of_flow
from mirror.checks.finding import State
from mirror.config.schema import FlowConfig

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("racks", "state", "told"),
    [
        ({"a", "b"}, State.OK, "A has brokers in a"),
        ({"b", "c"}, State.WARN, "no broker of A is in a"),
        (set(), State.WARN, "no broker of A has a rack"),
    ],
)
def test_a_rack_that_is_not_there(racks: set[str], state: State, told: str) -> None:
    """A rack that no broker has is a warning that names those there are."""
    flow = FlowConfig(source="A", target="B", rack="a")
    found = of_flow.rack(flow, flow.name, racks)
    assert found.state is state
    assert told in found.detail
    if racks and state is State.WARN:
        assert "use b or c" in found.fix
