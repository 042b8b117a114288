"""What a running service proves next, and how much it may read for that.

Pure. Main types: `Budget`, which grows with what a flow copies, `Costs`, what a range
will probably cost, and `Spread`, which picks some ranges evenly where not all are
affordable. `prefix` takes the first ranges that are.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mirror.proofs.ranges import Range

FLOOR = 10_000.0
"""Bytes per second that may be read in any case: a quiet flow is proven, too."""
_LEAST_BYTES, _MOST_BYTES = 4 << 20, 32 << 20
"""Of one range, on both sides: longer than batches, and well below a second of work."""
_SHORTEST_BYTES = 1 << 19
"""Of one range where the budget takes minutes to pay for a longer one: batches of a
flow that copies so little are short, too."""
_SAVED_SECONDS = 60.0
_IN_ONE_GO = 16
"""How many ranges a budget is cut into, to spread them."""
_UNKNOWN, _PROBE = 1_000.0, 20
"""Bytes per offset if nothing is known, and the length of the first range then."""
_RECORD_BYTES = 100
"""What two copies of a record take besides key, value and headers, at most."""
_CAUTION = 2.0
"""By how much ranges may cost more than counters say."""
_RISE = 1.05
"""How fast the cost of an offset follows records that become larger."""


class Lane(Enum):
    """What a budget is for."""

    NEW = auto()
    """What was copied since the last proof."""
    PAST = auto()
    """All that both logs have, again and again."""


class Budget:
    """The bytes that may be read: a share of those copied, or `FLOOR` if that is more.

    Two lanes that both need it get half each; what one does not need, the other may
    use.
    """

    def __init__(self, share: float, *, now: float) -> None:
        """`now`: monotonic seconds, as of all further calls."""
        self.share = share
        self.spent = 0.0
        self.copied = 0
        self._began = self._now = now
        self._known: dict[tuple[str, int], int] = {}
        self._of_lane = dict.fromkeys(Lane, 0.0)

    @property
    def allowed(self) -> float:
        """In all, since the beginning."""
        return max(self.share * self.copied, FLOOR * (self._now - self._began))

    @property
    def least(self) -> int:
        """The size of the smallest range: about what a minute allows."""
        seconds = self._now - self._began
        if seconds <= 0:
            return _LEAST_BYTES
        of_a_minute = self.allowed / seconds * _SAVED_SECONDS
        return int(min(max(of_a_minute, _SHORTEST_BYTES), _LEAST_BYTES))

    def earn(self, copied: Mapping[tuple[str, int], int], now: float) -> None:
        """`copied`: counters of bytes by partition. They may begin at zero again."""
        for key, count in copied.items():
            known = self._known.get(key, 0)
            self.copied += count - known if count >= known else count
            self._known[key] = count
        self._now = now

    def left(self, lane: Lane, *, alone: bool) -> float:
        """What the lane may read now; `alone`: the other one needs nothing."""
        left = self.allowed - self.spent
        if alone:
            return left
        return min(left, self.allowed / 2 - self._of_lane[lane])

    def spend(self, count: float, lane: Lane, *, alone: bool) -> None:
        self.spent += count
        if alone:  # the other one has no claim to it later
            for each in Lane:
                self._of_lane[each] += count / 2
        else:
            self._of_lane[lane] += count


def range_bytes(left: float, least: int = _LEAST_BYTES) -> int:
    """The size of a range, on both sides, when so much may be read."""
    return int(min(max(left / _IN_ONE_GO, least), _MOST_BYTES))


class Costs:
    """What ranges cost in bytes on both sides, by topic.

    So much per source offset, and so much per range: batches are read as a whole, and
    answers have more than was asked for.
    """

    def __init__(self) -> None:
        self.least = _LEAST_BYTES
        """The size of the smallest range now."""
        self._slopes: dict[str, float] = {}
        self._surplus: dict[str, float] = {}
        self._guesses: dict[str, float] = {}

    def guess(self, topic: str, *, copied: int, offsets: int) -> None:
        """What the flow's counters say: each is read twice."""
        if offsets and copied:
            self._guesses[topic] = 2 * copied / offsets

    def learn(self, topic: str, *, fetched: int, offsets: int, payload: int) -> None:
        """What a range did cost; `payload`: keys, values and headers of the source."""
        if offsets and fetched:
            slope = min(fetched, 2 * payload + _RECORD_BYTES * offsets) / offsets
            slope = min(slope, _RISE * self._slopes.get(topic, slope))
            surplus = max(fetched - slope * offsets, 0.0)
            self._slopes[topic] = slope
            self._surplus[topic] = (self._surplus.get(topic, surplus) + surplus) / 2

    def knows(self, topic: str) -> bool:
        """If not, one short range has to tell."""
        return topic in self._slopes or topic in self._guesses

    def offsets(self, topic: str, count: int) -> int:
        """How many source offsets a range of `count` bytes has; at least one."""
        if not self.knows(topic):
            return _PROBE
        return max(int(count / self._slope(topic)), 1)

    def of(self, work: Range) -> float:
        """What a range costs."""
        if work.unknown:  # it is not read
            return 0.0
        return self.of_offsets(work.of.topic, size(work))

    def of_offsets(self, topic: str, count: int, ranges: int = 1) -> float:
        """What `count` offsets cost in this many ranges."""
        bare = self._slope(topic) * count
        surplus = self._surplus.get(topic)
        return _CAUTION * bare if surplus is None else bare + ranges * surplus

    def of_window(self, topic: str, count: int, each: int) -> float:
        """What `count` offsets cost in ranges of `each` bytes."""
        return self.of_offsets(topic, count, -(-count // self.offsets(topic, each)))

    def _slope(self, topic: str) -> float:
        known = self._slopes.get(topic) or self._guesses.get(topic) or _UNKNOWN
        return min(known, self._guesses.get(topic, known))


def size(work: Range) -> int:
    """Offsets of a range, on the side that has more."""
    ups, downs = (
        work.source_end - work.source_first,
        work.target_end - work.target_first,
    )
    return max(ups, downs)


class Spread:
    """Picks a fraction of what it is asked for, at even distances.

    It goes on where it stopped, so that of many short series it picks as many.
    """

    def __init__(self) -> None:
        self.fraction = 1.0
        self._carry = 0.5

    def __call__(self) -> bool:
        self._carry += self.fraction
        if self._carry < 1.0:
            return False
        self._carry = min(self._carry - 1.0, 1.0)
        return True


def prefix(ranges: Iterable[Range], left: float, costs: Costs) -> list[Range]:
    """The first ranges that cost no more than `left` together, one if costs are not
    known; with late records whose copies are among theirs: each of these is proven
    where its copy stands.
    """
    chosen: list[Range] = []
    late: list[Range] = []
    for work in ranges:
        if work.is_late:
            late.append(work)
            continue
        left -= costs.of(work)
        if left < 0:
            break
        chosen.append(work)
        if not costs.knows(work.of.topic):
            break
    if not chosen:
        return []
    end = chosen[-1].target_end
    return [*(each for each in late if each.target_first < end), *chosen]
