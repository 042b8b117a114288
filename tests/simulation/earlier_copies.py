"""Copies that another tool has made before a flow begins: true ones, and nearly so.

Main function: `make`. Histories of copies with the source's offsets may begin with
some. A flow must go on with those that are the beginning of the source's log, and
translate the others.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.simulation.judge import Judge
    from tests.simulation.model import ModelCluster
    from tests.simulation.partition import Batch
    from tests.simulation.sources import Writer

_STEPS = 20
_TRUE = 0.6


def make(
    writer: Writer, target: ModelCluster, judge: Judge, names: Iterable[str], seed: int
) -> None:
    """Write to the source, and copy a part of that."""
    random = Random(f"earlier copies {seed}")
    for _ in range(_STEPS):
        writer.step()
    for name in names:
        logs = [each.log for each in writer.cluster.topics[name].partitions]
        copy = target.create(judge.prefix + name, len(logs), {})
        wrong = -1 if random.random() < _TRUE else random.randrange(len(logs))
        is_true = True
        for number, log in enumerate(logs):
            batches = log.batches[: random.randint(0, len(log.batches))]
            first = batches[0].base if batches else log.start
            if number == wrong:
                found = _nearly(batches, random)
                is_true, batches = found == batches, found
            made = copy.partitions[number].log
            made.start = made.end = first
            for batch in batches:
                made.append(batch.data, target.world.now)
        target.world.note(f"{judge.prefix}{name} is there, and true: {is_true}")
        if not is_true:
            judge.begins_with_others(judge.prefix + name)


def _nearly(batches: list[Batch], random: Random) -> list[Batch]:
    """With a batch missing, or twice, or with another one in the place of one in the
    middle, which takes as many offsets.
    """
    if not batches[1:]:
        return batches
    at = random.randrange(len(batches) - 1)
    alike = [
        each
        for each in batches
        if each is not batches[at] and each.count == batches[at].count
    ]
    missing = [*batches[:at], *batches[at + 1 :]]
    twice = [*batches, batches[at]]
    if not alike:
        return random.choice((missing, twice))
    other = [*batches[:at], random.choice(alike), *batches[at + 1 :]]
    return random.choice((missing, twice, other, other))
