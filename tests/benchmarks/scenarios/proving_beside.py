"""What proving beside the copy costs it: `verify: new` compared with `verify: off`.

Main type: `Beside`. The load and the latency are those of `paced`; meanwhile `/status`
tells of the gaps between leases. Each run needs something proven to count.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
import threading
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

from tests.benchmarks import latency
from tests.benchmarks.columns import Column
from tests.benchmarks.latency import LatencyResult
from tests.benchmarks.processes import PeerError
from tests.benchmarks.scenarios.paced import Paced, copy_of, paced, primed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.benchmarks.bench import Bench, Measure, Start
    from tests.benchmarks.processes import Service

_LOOK_SECONDS = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class BesideResult(LatencyResult):
    COLUMNS: ClassVar = (
        *(Column(*each) for each in LatencyResult.COLUMNS),
        Column("gap_p50_ms", "gap p50 ms", ",.0f", "less"),
        Column("gap_max_ms", "gap max ms", ",.0f", "less"),
        Column("leases", "leases", ",.0f"),
        Column("proven", "records proven", ",.0f"),
    )

    leases: int
    gap_p50_ms: float
    gap_max_ms: float
    is_proving: bool
    proven: int
    """Records compared meanwhile."""

    def flaw(self) -> str | None:
        if self.is_proving and not self.proven:
            return "nothing was proven meanwhile"
        return LatencyResult.flaw(self)


@dataclass(slots=True)
class _Watch:
    """Looks at the status while something else is measured."""

    service: Service
    gaps: dict[int, float] = field(default_factory=dict)
    """By lease."""
    proven: int = 0
    is_proving: bool = False
    _end: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._end.set()
        if self._thread is not None:
            self._thread.join()

    def _look(self) -> None:
        while not self._end.wait(_LOOK_SECONDS):
            # It has none before it is up and once it is stopped.
            with suppress(PeerError, IndexError):
                told = self.service.status()
                self.is_proving = told["verify"]["mode"] != "off"
                self.proven = sum(told["verify"]["records"].values())
                if told["lease_gap_ms"] >= 0:
                    self.gaps[told["leases"]] = told["lease_gap_ms"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside(Paced):
    lease_seconds: float = 5.0
    """Short enough for some gaps, long enough that they do not make the p99."""

    @contextmanager
    def ready(self, bench: Bench) -> Iterator[Measure]:
        def measure(start: Start) -> BesideResult:
            with ExitStack() as stack:
                topic = stack.enter_context(primed(bench, self.name))
                task = stack.enter_context(
                    bench.task(topic, lease_seconds=self.lease_seconds)
                )
                service = start(task)
                watch = stack.enter_context(_Watch(service))
                found = latency.measure(
                    service,
                    copy_of(task, bench),
                    paced(bench, topic, per_second=self.per_second),
                    per_second=self.per_second,
                    warm_up_seconds=self.warm_up_seconds,
                    seconds=self.seconds,
                )
            gaps = list(watch.gaps.values())
            if not gaps:
                raise PeerError(f"no lease ended:\n{service.log_tail()}")
            return BesideResult(
                **asdict(found),
                leases=len(gaps),
                gap_p50_ms=float(np.percentile(gaps, 50)),
                gap_max_ms=max(gaps),
                is_proving=watch.is_proving,
                proven=watch.proven,
            )

        yield measure


BESIDE = Beside(
    name="verify-new",
    title="1000 records/s, with `verify: new` beside it",
    peers=("mirror", "mirror-verify"),
    # At this pace the share for proofs pays for the first one after some 50 s.
    seconds=120.0,
    warm_up_seconds=60.0,
)
