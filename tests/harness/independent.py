"""Compares topics with their copies without mirror: by the SHA-256 of all records.

Main function: `assert_agrees`, which holds every count of a proof against what ordinary
consumers of confluent-kafka find on both sides.
"""

from __future__ import annotations

from collections import Counter
import hashlib
import itertools
from typing import TYPE_CHECKING, Any

from mirror.proofs.account import FindingKind
from tests.harness.witness import read_topics

if TYPE_CHECKING:
    from collections.abc import Iterable

    from confluent_kafka import Message

    from mirror.proofs.account import ProofFinding
    from mirror.proofs.verification import Proven
    from tests.harness.slots import SparklessFlow

_VIA = "mirror.via"
_IN_PLACE = ("out of order", "the copy is right")
"""How findings begin whose copy says the same, and stands elsewhere than expected."""


def assert_agrees(flow: SparklessFlow, found: Proven, *, bare: bool = False) -> None:
    """Records, equal pairs, and what only one side has: as many as a comparison of
    hashes says, in every partition. `bare`: copies may be without our header.
    """
    assert isinstance(flow.source, str)
    assert isinstance(flow.target, str)
    every = {each.of.topic: each.of.target_topic for each in found.partitions}
    # It is a finding of ours if a checksum is wrong; the records are there.
    here = read_topics(flow.source, every, **{"check.crcs": False})
    there = read_topics(flow.target, every.values(), **{"check.crcs": False})
    stamp = (_VIA, f"{flow.alias}/{found.source_id}".encode())
    for part in found.partitions:
        key = (part.of.topic, part.of.partition)
        own_time = found.own_times.get(part.of.topic, True)
        ups = _hashes(here[key], own_time=own_time)
        downs = _hashes(
            there[part.of.target_topic, part.of.partition],
            own_time=own_time, stamp=stamp, bare=bare,
        )  # fmt: skip
        # By the map, copies of what precedes the source's log are no part of the proof.
        if part.of.source_start > 0 and not found.by_content:
            downs = [
                *itertools.dropwhile(
                    frozenset(downs).difference(ups).__contains__, downs
                )
            ]
        common = (Counter(ups) & Counter(downs)).total()  # as of two sorted lists
        mine = [f for f in found.findings if (f.topic, f.partition) == key]
        account = part.account
        moved = _count(mine, FindingKind.SWAPPED) + _count(
            mine, FindingKind.DIFFERENT, moved=True
        )
        changed = _count(mine, FindingKind.DIFFERENT, moved=False)
        damaged = _count(mine, FindingKind.DAMAGED)
        missing = _count(mine, FindingKind.MISSING)
        strange = _count(mine, FindingKind.DOUBLED) + _count(
            mine, FindingKind.UNEXPECTED
        )
        others = (
            account.foreign + account.repeats + account.older
            + account.compacted_source + account.expired_source
        )  # fmt: skip
        explained = sum(account.explained.values())
        same = account.equal + moved + damaged
        told = {
            "records": account.records,
            "the same": same,
            "of the source": same + changed + missing + explained,
            "in the copy": same + changed + strange + others,
        }
        seen = {
            "records": len(ups),
            "the same": common,
            "of the source": len(ups),
            "in the copy": len(downs),
        }
        assert told == seen, (key, told, seen)


def _hashes(
    messages: Iterable[Message],
    *,
    own_time: bool,
    stamp: tuple[str, bytes] | None = None,
    bare: bool = False,
) -> list[str]:
    """Of all records, in order; of copies without their stamp, which must be there."""
    return [
        hashlib.sha256(
            repr(_says(each, own_time=own_time, stamp=stamp, bare=bare)).encode()
        ).hexdigest()
        for each in messages
    ]


def _says(
    message: Message, *, own_time: bool, stamp: tuple[str, bytes] | None, bare: bool
) -> tuple[Any, ...]:
    headers = list(message.headers() or [])
    stamped = stamp is None or bare
    if stamp is not None and headers and headers[-1] == stamp:
        del headers[-1]
        stamped = True
    time = message.timestamp()[1] if own_time else 0
    return message.key(), message.value(), headers, time, stamped


def _count(
    found: Iterable[ProofFinding], kind: FindingKind, *, moved: bool | None = None
) -> int:
    return sum(
        each.count
        for each in found
        if each.kind is kind
        and (moved is None or each.detail.startswith(_IN_PLACE) is moved)
    )
