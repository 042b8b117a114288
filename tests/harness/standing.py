"""One service for many tests: each has its flows in it for as long as it runs.

Main type: `StandingMirror`. Spark takes seconds to start, a flow that a changed file
adds takes one. It is for tests that look at flows and clusters, and may kill workers;
those that stop or restart the service, or count its processes, start one of their own.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
from typing import TYPE_CHECKING, Any

from tests.harness.service import RunningMirror

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

_OWN = "REST-A->REST-B"
_NOTHING: dict[str, Any] = {"clusters": {}, "flows": {}}
_OF_TESTS = {"clusters", "defaults", "flows"}


class StandingMirror(RunningMirror):
    """A service with an idle flow of its own: without any flow it would end."""

    group = "standing"
    """Tests start other services beside it, which have nothing to share with it."""

    def __init__(self, source: str, target: str, folder: Path) -> None:
        own, other = _OWN.split("->")
        self._resting = {
            "clusters": {
                own: {"bootstrap_servers": source},
                other: {"bootstrap_servers": target},
            },
            "flows": {
                _OWN: {
                    "topics": ["rest"],
                    "policy": "default",  # whatever a test's defaults say
                    "tasks": 1,
                    "refresh_topics_seconds": 300,
                    "emit_heartbeats": False,
                    "emit_checkpoints": False,
                }
            },
        }
        super().__init__({**self._resting, "service": {"group": self.group}}, folder)
        self._file = folder / "mirror.yaml"

    @contextlib.contextmanager
    def hosting(self, config: Mapping[str, Any]) -> Iterator[RunningMirror]:
        """Run these flows while the block runs; the status shows only them."""
        assert config.keys() <= _OF_TESTS, "the rest is for the whole service"
        if not self.runs:
            self.start()
        assert not self.status()["flows"], "one test at a time"
        self._go_by(config)
        try:
            yield self
        finally:
            self._go_by(_NOTHING)

    def status(self) -> dict[str, Any]:
        document = super().status()
        flows = [flow for flow in document["flows"] if flow["name"] != _OWN]
        return {**document, "flows": flows}

    def _go_by(self, config: Mapping[str, Any]) -> None:
        flows = config["flows"].items()
        wanted = {name for name, flow in flows if flow.get("enabled", True)}

        def taken(status: dict[str, Any]) -> bool:
            assert not (refused := status["config"]["refused"]), refused
            names = {flow["name"] for flow in status["flows"]}
            return status["config"]["reloads"] > reloads and names == wanted

        try:
            reloads = self.status()["config"]["reloads"]
            self._write(config)
            os.kill(self.pids()[0], signal.SIGHUP)
            self.wait_until(taken)
        except BaseException:
            self.close()  # the next test starts it again
            self._write(_NOTHING)
            raise

    def _write(self, config: Mapping[str, Any]) -> None:
        document = json.loads(self._file.read_text())
        for part, own in self._resting.items():
            document[part] = {**own, **config[part]}
        document["defaults"] = config.get("defaults", {})
        other = self._file.with_suffix(".new")
        other.write_text(json.dumps(document))
        other.rename(self._file)
