"""What the service does before any flow runs."""

from __future__ import annotations

import threading

import pytest
from structlog.testing import capture_logs

from mirror.errors import JavaMissingError
from mirror.service import service as module
from mirror.service.service import Service
from tests.harness.configurations import configuration

pytestmark = pytest.mark.unit


def service(**tasks: int | None) -> Service:
    """A service of flows into B, by their sources, with such `tasks`."""
    return Service(
        configuration(
            {
                "clusters": {
                    a: {"bootstrap_servers": "127.0.0.1:1"} for a in [*tasks, "B"]
                },
                "flows": {f"{a}->B": {"tasks": number} for a, number in tasks.items()},
                "service": {"http_port": 0},
            }
        )
    )


@pytest.mark.parametrize(("cores", "warns"), [(4, True), (5, False), (8, False)])
def test_too_few_cores_are_told(cores: int, *, warns: bool) -> None:
    """The service warns at its start, with the numbers, if slots must take turns; a
    flow without `tasks` needs one.
    """
    with capture_logs() as logs:
        service(A=4, C=None)._warn_of_few(cores)

    told = [(log["log_level"], log["cores"], log["slots"]) for log in logs]
    assert told == ([("warning", 4, 5)] if warns else [])


def test_without_java_nothing_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A service that cannot start Spark leaves no thread behind: with one, the process
    would not end, and nothing would restart it.
    """

    def no_session(*_: object, **__: object) -> None:
        raise JavaMissingError

    monkeypatch.setattr(module, "session", no_session)
    monkeypatch.setattr(Service, "_listen_to_signals", lambda _: None)
    before = set(threading.enumerate())

    with pytest.raises(JavaMissingError):
        service(A=1).run()

    left = [each for each in threading.enumerate() if each not in before]
    assert [each.name for each in left if not each.daemon] == []
