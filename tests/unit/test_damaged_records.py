"""Records of mirror's own topics whose JSON somebody else wrote."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from mirror.errors import MirrorError
from mirror.migration import mirrormaker
from mirror.offsets import standby
from mirror.pairs import control, proofs
from mirror.pairs.control import Pauses
from mirror.pairs.losses import Loss
from mirror.topics import acl_notes

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.unit

_DECODERS: dict[str, Callable[[bytes], Any]] = {
    "pauses": Pauses.decode,
    "losses": Loss.decode,
    "proofs": partial(proofs.decode, b"t-0"),
    "standby": partial(standby.decode, "mirror-standby.A.internal", b"ends/t"),
    "repairs": partial(control.decode_repair, "A->B"),
    "acls": partial(acl_notes.decode_claim, b"{}"),
    "notes of ACLs": partial(acl_notes.decode, b"{}"),
    "Connect's offsets": mirrormaker.parse_value,
}


@pytest.mark.parametrize(
    "value",
    [
        b"", b"\xff", b"7", b"null", b"[]", b"{}", b'{"version": 1}',
        b'{"version": [1]}', b"[" * 100_000, b'{"offset": 1e999}',
    ],
    ids=lambda value: value[:20].decode(errors="replace") or "nothing",
)  # fmt: skip
@pytest.mark.parametrize("topic", _DECODERS)
def test_one_clear_error(topic: str, value: bytes) -> None:
    """Whatever the bytes are, the error is one of ours, which callers handle."""
    with pytest.raises(MirrorError):
        _DECODERS[topic](value)
