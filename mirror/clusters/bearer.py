"""The OAUTHBEARER exchange of SASL (RFC 7628), from our side.

Main type: `Bearer`, with the verbs of kafka-python's mechanisms. A broker that refuses
a token says why in an answer that looks like a success; it wants one byte more before
it says so plainly. Where the token comes from is not known here (see `tokens`).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_SEPARATOR = "\x01"
_MOST_WORDS = 200


class Bearer:
    """One exchange."""

    def __init__(self, token: str, extensions: Mapping[str, str]) -> None:
        pairs = [f"auth=Bearer {token}"]
        pairs += [f"{name}={value}" for name, value in extensions.items()]
        self._next = ("n,," + "".join(f"{_SEPARATOR}{pair}" for pair in pairs)).encode()
        self._next += (_SEPARATOR * 2).encode()
        self._done = False
        self.said = ""
        """Why the broker refuses the token; empty if it does not."""

    def auth_bytes(self) -> bytes:
        return self._next

    def receive(self, answer: bytes) -> None:
        if not answer:
            if self.said:
                raise ValueError(f"the token was refused: {self.said}")
            self._done = True
            return
        self.said = _words(answer)
        self._next = _SEPARATOR.encode()

    def is_done(self) -> bool:
        return self._done


def _words(answer: bytes) -> str:
    text = answer.decode("utf-8", errors="replace")
    try:
        said = json.loads(text)
    except ValueError:
        said = None
    if isinstance(said, dict):
        text = ", ".join(
            str(said[key])
            for key in ("status", "error_description", "scope")
            if said.get(key)
        )
    return " ".join(text.split())[:_MOST_WORDS] or "without a reason"
