"""How long to wait before the next attempt: one policy for all that mirror repeats.

`Backoff` is a pause that doubles. Those who use it wait themselves, since they must be
woken meanwhile, or show that they wait: flows, jobs, slots, partitions set aside.
`patiently` sleeps: it asks a cluster again that says "not yet". What an error means is
not known here. Most questions are answered at once, so stamina is loaded once one is
not: with asyncio, that takes a command a twentieth of a second.
"""

from __future__ import annotations

from dataclasses import dataclass
import time
from typing import TYPE_CHECKING, TypeVar

from mirror import patience
from mirror.errors import BrokerError, NoLeaderError

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirror.errors import ClusterError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Backoff:
    """A pause after each failure, twice as long as the last one."""

    first: float
    longest: float

    def after(self, last: float = 0.0) -> float:
        """The pause in seconds that follows one of `last`; 0 was none."""
        return min(max(2 * last, self.first), self.longest)


RUN = Backoff(0.5, 30.0)
"""Of a flow, or a job of one, that failed."""
SLOT = Backoff(0.05, 0.25)
"""Of a slot, after an error of a broker or a connection: it must not sleep through the
election of another leader or coordinator."""
PARTITION = Backoff(1.0, 60.0)
"""Of a partition that is set aside."""
QUESTION = Backoff(0.002, 0.1)
"""Of a question to a cluster that says "not yet"."""
_PATIENCE_SECONDS = 30.0


def patiently(
    ask: Callable[[], T],
    *,
    seconds: float = _PATIENCE_SECONDS,
    also: type[ClusterError] = NoLeaderError,
) -> T:
    """What `ask` returns, once the cluster no longer says "not yet". `also`: what else
    is no answer; `UnreachableError`: that no broker gives any. It waits for `seconds`,
    or less if `patience` allows less.

    Raises:
        ClusterError: what `ask` raised: at once, or as "not yet" when time was up.
    """

    def is_not_yet(error: Exception) -> bool:
        if isinstance(error, BrokerError):
            return error.retriable
        return isinstance(error, also)

    ends = time.monotonic() + patience.left(seconds)
    try:
        return ask()
    except Exception as error:
        if not is_not_yet(error):
            raise
    time.sleep(QUESTION.first)
    import stamina  # noqa: PLC0415  see the module's first lines
    from stamina.instrumentation import set_on_retry_hooks  # noqa: PLC0415

    set_on_retry_hooks(())  # they would print and count each attempt
    for attempt in stamina.retry_context(
        is_not_yet,
        attempts=None,
        timeout=max(ends - time.monotonic(), QUESTION.first),
        wait_initial=QUESTION.first,
        wait_max=QUESTION.longest,
        wait_jitter=0.0,
    ):
        with attempt:
            return ask()
    raise AssertionError  # stamina raises what the last attempt did
