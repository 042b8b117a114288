"""Spark as a streaming query sees it: `MicroBatches` calls the query's function."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

from mirror.errors import FlowError


class MicroBatches:
    """Calls the function of the one query that begins there for micro-batches, in a
    thread, as Spark does, until the query is stopped or the function fails.
    """

    def __init__(self) -> None:
        self.stopped = threading.Event()
        self.failure: FlowError | None = None
        self.readStream = self.writeStream = self
        self.isActive = True

    def _same(self, *_: object, **__: object) -> MicroBatches:
        return self

    format = option = load = queryName = _same  # noqa: N815  Spark's names

    @property
    def sparkContext(self) -> Any:  # noqa: N802
        client = SimpleNamespace(getPerThreadConnection=lambda: self)
        server = SimpleNamespace(getCallbackClient=lambda: client)
        return SimpleNamespace(_gateway=SimpleNamespace(java_gateway_server=server))

    def foreachBatch(self, function: Any) -> MicroBatches:  # noqa: N802
        self._function = function
        return self

    def start(self) -> MicroBatches:
        self.thread = threading.Thread(target=self._work, daemon=True)
        self.thread.start()
        return self

    def _work(self) -> None:
        number = 0
        while not self.stopped.is_set():
            try:
                self._function(None, number)
            except FlowError as error:
                self.failure = error
                break
            number += 1
        self.isActive = False

    def exception(self) -> FlowError | None:
        return self.failure

    def stop(self) -> None:
        self.stopped.set()
        self.thread.join(10)
        assert not self.thread.is_alive(), "a micro-batch does not end"

    def shutdown(self) -> None:
        """The connection of its thread."""
