"""How Spark's JVM is started."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

from pyspark import SparkContext
import pytest

from mirror.config.service_settings import ServiceConfig
from mirror.service import session as session_module

pytestmark = pytest.mark.unit


def test_a_jvm_that_is_being_launched_is_waited_for(monkeypatch: pytest.MonkeyPatch):
    """A session that begins meanwhile starts no second one; after a failed launch it
    starts one itself, and so says what is wrong.
    """
    launches: list[str] = []
    begun, may_go_on = threading.Event(), threading.Event()

    def launch_gateway(*_: Any) -> Any:
        name = threading.current_thread().name
        launches.append(f"{name} begins")
        begun.set()
        assert may_go_on.wait(10)
        launches.append(f"{name} ends")
        if name == "jvm-launch":
            raise RuntimeError("no room")
        return SimpleNamespace()

    def remember(gateway: Any) -> None:
        monkeypatch.setattr(SparkContext, "_gateway", gateway)

    monkeypatch.setattr(SparkContext, "_gateway", None)
    monkeypatch.setattr(SparkContext, "_ensure_initialized", remember)
    monkeypatch.setattr(session_module, "launch_gateway", launch_gateway)
    monkeypatch.setattr(session_module, "_settings", lambda *_, **__: {})
    session_module.launch(ServiceConfig())
    assert begun.wait(10)
    threading.Timer(0.2, may_go_on.set).start()
    for _ in range(2):
        session_module._launch({})
    own = threading.current_thread().name
    assert launches == [
        *("jvm-launch begins", "jvm-launch ends"),
        *(f"{own} begins", f"{own} ends"),
    ]
