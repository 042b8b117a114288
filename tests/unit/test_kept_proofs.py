"""How far partitions are proven, as the target keeps it."""

from __future__ import annotations

import json
import uuid

import pytest

from mirror.errors import ClusterError
from mirror.pairs import proofs
from mirror.pairs.proofs import Proof

pytestmark = pytest.mark.unit

PROOF = Proof(
    topic="a-b", partition=7, topic_id=uuid.UUID(int=1), source_offset=12,
    target_offset=14, at=1_700_000_000.25, records=12, findings=1, root="ab" * 32,
    mode=proofs.BY_CONTENT, copy_id=uuid.UUID(int=2),
)  # fmt: skip


def test_a_proof_has_the_documented_fields() -> None:
    """They are what the page of formats names, and say the same when they are read; a
    proof without the id of the copy holds for any.
    """
    told = proofs.document(PROOF)

    assert list(told) == [
        "version", "topic_id", "source_offset", "target_offset", "at", "records",
        "findings", "root", "mode", "copy_id",
    ]  # fmt: skip
    assert told["at"] == "2023-11-14T22:13:20.250Z"
    assert proofs.decode(b"a-b-7", json.dumps(told).encode()) == PROOF
    del told["copy_id"]
    assert proofs.decode(b"a-b-7", json.dumps(told).encode()).copy_id.int == 0


def test_a_newer_proof_is_refused() -> None:
    """Where the next proof begins is not guessed from it."""
    told = json.dumps(proofs.document(PROOF) | {"version": 2}).encode()

    with pytest.raises(ClusterError, match="use the newest mirror"):
        proofs.decode(b"a-b-7", told)
