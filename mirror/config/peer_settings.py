"""The services of other sites whose flows this one shows.

Main type: `PeerConfig`. `web.peers` asks them.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator

from mirror.config import values
from mirror.config.section import File, Section
from mirror.config.traits import setting

MOST_PEERS = 50
"""Each is asked by a thread of its own."""
_ADDRESS = re.compile(
    r"https?://([A-Za-z0-9._-]+|\[[0-9a-fA-F:.%]+\])(:[0-9]{1,5})?(/[^\s?#]*)?"
)


def _address(value: Any) -> str:
    """The message does not repeat it: people write passwords into addresses."""
    if not isinstance(value, str) or not _ADDRESS.fullmatch(value.strip()):
        values.refuse(
            "not a valid address of a service; use https://mirror.eu.example.com:8083 "
            "without user and password"
        )
    return value.strip().rstrip("/")


class PeerConfig(Section):
    """One service of another site."""

    url: Annotated[str, BeforeValidator(_address)] = setting(
        description="Where its HTTP port can be reached."
    )
    token_file: File | None = setting(
        default=None,
        description="A file that holds only that service's token, read again for each "
        "request. Null: it asks for none.",
    )
    ca_file: File | None = setting(
        default=None,
        description="PEM file with certificates to trust there. Null: the system's.",
    )


def checked_peers(value: Any) -> Any:
    """A list of peers, of which each is there once."""
    if not isinstance(value, (list, tuple)):
        values.refuse(
            "not a list of peers; use [{url: https://mirror.eu.example.com:8083}]"
        )
    for number, each in enumerate(value):
        if not isinstance(each, (dict, PeerConfig)):
            values.refuse(
                f"entry {number} is not a mapping; use "
                "{url: https://mirror.eu.example.com:8083, token_file: /path}"
            )
        if not isinstance(each, PeerConfig):
            for name in each.keys() - PeerConfig.model_fields.keys():
                suggested = values.near(str(name), PeerConfig.model_fields)
                values.refuse(f'entry {number}: unknown setting "{name}"{suggested}')
            if "url" not in each:
                values.refuse(f"entry {number} has no url")
    if len(value) > MOST_PEERS:
        values.refuse(f"{len(value)} peers are too many; {MOST_PEERS} are possible")
    urls = [
        str(each["url"]).strip().rstrip("/")
        for each in value
        if isinstance(each, dict) and "url" in each
    ]
    if len(set(urls)) < len(urls):
        values.refuse("names a service twice; keep one entry for each")
    return value
