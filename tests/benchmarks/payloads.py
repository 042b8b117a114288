"""The records' values, the same bytes in every run.

Each function returns a pool of values to use in turn. The pool is so large that it
compresses no better than real data of its kind.
"""

from __future__ import annotations

import json
import random

_SEED = 20_240_601
_POOL = 4096


def incompressible(size: int) -> list[bytes]:
    """Random bytes, as in encrypted or already compressed payloads."""
    randomness = random.Random(_SEED + size)
    return [randomness.randbytes(size) for _ in range(_POOL)]


def json_events() -> list[bytes]:
    """JSON documents of some 130 bytes, as in event streams."""
    randomness = random.Random(_SEED)
    return [
        json.dumps(
            {
                "id": f"{randomness.getrandbits(64):016x}",
                "user": randomness.randrange(1_000_000),
                "event": randomness.choice(["view", "click", "basket", "order"]),
                "at": 1_700_000_000_000 + randomness.randrange(10**9),
                "amount": round(randomness.random() * 500, 2),
                "currency": randomness.choice(["EUR", "USD", "GBP"]),
            }
        ).encode()
        for _ in range(_POOL)
    ]
