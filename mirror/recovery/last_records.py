"""Whether the last records of each partition are the same on both clusters.

Main function: `compare`, which gives the outcome of `equal_ends`. `begin` has that done
ahead in a thread, which also loads it: what was copied until the cut stays as it is,
and while producers are stopped the clusters have time for it.
"""

from __future__ import annotations

from concurrent.futures import Future, wait
from dataclasses import dataclass, replace
import threading
import time
from typing import TYPE_CHECKING

from mirror import patience
from mirror.clusters.reach import Reach
from mirror.errors import MirrorError

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirror.recovery.stage import Stage

_BESIDE = "last records"


@dataclass(frozen=True, slots=True, kw_only=True)
class LastRecords:
    """The outcome."""

    text: str
    warnings: tuple[str, ...] = ()


def load() -> None:
    """Begin to load what compares, which takes Python half a second of CPU."""
    threading.Thread(target=_loaded, name="mirror-load-ahead", daemon=True).start()


def begin(stage: Stage) -> None:
    """Compare on connections of its own while the next steps are done, for as long as
    this one may take. The thread ends with the process.
    """
    begun: Future[LastRecords] = Future()
    stage.beside[_BESIDE] = begun

    def run() -> None:
        try:
            with (
                patience.until(stage.deadline),
                Reach(stage.config.clusters, client_id="mirror.switch") as reach,
            ):
                alone = replace(
                    stage,
                    source_or_none=reach(stage.flow.source),
                    target_or_none=reach(stage.flow.target),
                    tell=lambda _text: None,
                )
                begun.set_result(_compare(alone))
        except Exception as error:  # noqa: BLE001  `compare` does it once more
            begun.set_exception(error)

    threading.Thread(target=run, name="mirror-last-records", daemon=True).start()


def compare(stage: Stage) -> LastRecords:
    """Compare the ends of all partitions that the flow copies, once more if that was
    done ahead and anything was not as it should be. Where that fails, or takes too
    long, is a warning: it proves what is so already.
    """
    if (begun := stage.beside.get(_BESIDE)) is not None:
        stage.tell("comparing the last records")
        wait([begun], timeout=max(stage.deadline - time.monotonic(), 0.0))
        if begun.done() and begun.exception() is None:
            found: LastRecords = begun.result()
            if not found.warnings:
                return found
    try:
        return _compare(stage)
    except MirrorError as error:
        return LastRecords(
            text="the last records were not compared",
            warnings=(f"the last records were not compared: {error}",),
        )


def _compare(stage: Stage) -> LastRecords:
    text, warnings = _loaded()(stage)
    return LastRecords(text=text, warnings=warnings)


def _loaded() -> Callable[[Stage], tuple[str, tuple[str, ...]]]:
    from mirror.recovery.equal_ends import compare as compared  # noqa: PLC0415

    return compared
