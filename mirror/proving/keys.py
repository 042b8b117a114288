"""Reads the keys of the records that findings are about.

Main function: `with_keys`. Comparisons only keep marks of keys, since most records that
have no equal copy are explained later; those that findings name are read once more.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import structlog

from mirror.batches import to_columns
from mirror.errors import MirrorError
from mirror.proving import sides
from mirror.proving.log_stream import Stretch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mirror.proving.account import ProofFinding
    from mirror.proving.copied_partition import CopiedPartition
    from mirror.proving.runner import Runner
    from mirror.proving.sides import ProofTerms

log = structlog.get_logger()

_MOST_BYTES = 256
"""Of a key; a report says its size as well."""
_FAR = 20_000
"""Offsets between two records from which it is faster to ask for each."""


def with_keys(
    terms: ProofTerms,
    runner: Runner,
    of: CopiedPartition,
    findings: Iterable[ProofFinding],
) -> Iterator[ProofFinding]:
    """The same findings, with the key of the first record of each."""
    findings = list(findings)
    tasks = []
    for on_source in (True, False):
        wanted = {place[1] for place in map(_place, findings) if place[0] is on_source}
        if wanted:
            tasks.append(partial(_read, terms, of, sorted(wanted), on_source=on_source))
    keys: dict[tuple[bool | None, int], str] = {}
    try:
        for each in runner.results(tasks):
            keys |= each
    except MirrorError as error:
        log.warning("findings are without keys", topic=of.topic, reason=str(error))
    for each in findings:
        yield replace(each, key=keys.get(_place(each)))


def _place(finding: ProofFinding) -> tuple[bool | None, int]:
    """Whether its record is on the source, and where; (None, -1): it has no key."""
    if finding.key_size is None:
        return None, -1
    if finding.source is not None:
        return True, finding.source
    return (None, -1) if finding.target is None else (False, finding.target)


def _read(
    terms: ProofTerms, of: CopiedPartition, offsets: list[int], *, on_source: bool
) -> dict[tuple[bool | None, int], str]:
    name, topic_id = (
        (of.topic, of.topic_id) if on_source else (of.target_topic, of.copy_id)
    )
    wanted = np.array(offsets, np.int64)
    found: dict[tuple[bool | None, int], str] = {}
    with terms.connected(on_source=on_source) as cluster:
        for near in np.split(wanted, np.flatnonzero(np.diff(wanted) > _FAR) + 1):
            stretch = Stretch(
                topic=name, partition=of.partition, topic_id=topic_id,
                first=int(near[0]), end=int(near[-1]) + 1,
            )  # fmt: skip
            stream = sides.stream(terms, cluster, stretch, on_source=on_source)
            for part in stream.listed():
                rows = np.isin(part.places[:, to_columns.OFFSET], near)
                for place in part.places[rows].tolist():
                    at, size = place[to_columns.KEY_AT], place[to_columns.KEY_SIZE]
                    data = part.buffer[at : at + min(size, _MOST_BYTES)].tobytes()
                    offset = place[to_columns.OFFSET]
                    found[on_source, offset] = data.decode(errors="backslashreplace")
    return found
