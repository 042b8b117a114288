"""HTTP addresses in the configuration.

Main functions: `http`, one address, and `of_one_service`, several that lead to the same
service. Messages do not repeat an address: people write passwords into them.
"""

from __future__ import annotations

import re
from typing import Any

from mirror.config.values import listed, refuse, refuse_all

_ADDRESS = re.compile(r"https?://[^\s/?#@]+(/[^\s?#@]*)?")


def http(value: Any) -> str:
    """One address, without a user, a password or a query."""
    if not isinstance(value, str) or not _ADDRESS.fullmatch(value.strip()):
        refuse(
            "not a valid address; use https://id.example.com/oauth2/token without user "
            "and password"
        )
    return value.strip()


def of_one_service(value: Any) -> tuple[str, ...]:
    """Addresses of one service, without a slash at the end."""
    given = listed(value)
    if not given:
        refuse('at least one address is needed, such as "https://registry.example.com"')
    wrong = []
    for index, each in enumerate(given):
        if "@" in each:
            wrong.append(
                f"[{index}]: has a user or a password in it, which logs would show; "
                "remove them, and use username and password_file"
            )
        elif not _ADDRESS.fullmatch(each):
            wrong.append(
                f"[{index}]: not a valid address; use https://registry.example.com"
            )
    refuse_all(wrong)
    return tuple(each.rstrip("/") for each in given)
