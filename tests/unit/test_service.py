"""What the service decides before any flow runs."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from mirror.config.schema import MirrorConfig
from mirror.driver.service import Service

pytestmark = pytest.mark.unit


def service(**tasks: int | None) -> Service:
    """A service of flows into B, by their sources, with such `tasks`."""
    return Service(
        MirrorConfig.model_validate(
            {
                "clusters": {a: {"bootstrap_servers": "b:1"} for a in [*tasks, "B"]},
                "flows": {f"{a}->B": {"tasks": number} for a, number in tasks.items()},
            }
        )
    )


@pytest.mark.parametrize(("cores", "warns"), [(4, True), (5, False), (8, False)])
def test_too_few_cores_are_told(cores: int, *, warns: bool) -> None:
    """Slots that would wait for each other are reported at the start, with the numbers;
    a flow that chooses for itself needs one.
    """
    with capture_logs() as logs:
        service(A=4, C=None)._warn_of_few(cores)

    told = [(log["log_level"], log["cores"], log["slots"]) for log in logs]
    assert told == ([("warning", 4, 5)] if warns else [])
