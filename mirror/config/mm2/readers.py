"""How a text of MirrorMaker 2's file becomes a value that the model reads.

Functions from one text to one value, named in the traits of the settings (`Key.read`).
They raise ValueError for a text that they cannot read, with what to write instead.
"""

from __future__ import annotations

import re
import textwrap
from urllib.parse import SplitResult, urlsplit

from mirror.config.values import near

DEFAULT = "org.apache.kafka.connect.mirror.DefaultReplicationPolicy"
_POLICIES = {
    DEFAULT: "default",
    "org.apache.kafka.connect.mirror.IdentityReplicationPolicy": "identity",
}
_OLDER_POLICIES = {
    # From before Kafka 3.0, which had none that keeps names.
    "io.strimzi.kafka.connect.mirror.IdentityReplicationPolicy": "identity",
}
_FLAGS = re.compile(r"\(\?([a-zA-Z]+)\)")
_LISTENER = re.compile(r"(?i)http://(\[[0-9a-f:.%]+\]|[^:/\[\]@]*):\d+/?")
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?")
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
_BLOCK = re.compile(r"-----BEGIN ([A-Z ]+)-----([A-Za-z0-9+/=\s]+)-----END \1-----")


def text(value: str) -> str:
    return value


def lower(value: str) -> str:
    return value.lower()


def listed(value: str) -> list[str]:
    """MirrorMaker 2 joins a list of patterns to one, so that `(?i)` at the start of an
    entry is also meant for those after it.
    """
    found, ignores_case = [], False
    for each in value.split(",") if value else []:
        flags = _FLAGS.match(each.strip())
        found.append(f"(?i){each.strip()}" if ignores_case and not flags else each)
        ignores_case = ignores_case or (flags is not None and "i" in flags[1])
    return found


def servers(value: str) -> list[str]:
    """Java allows a protocol before each host; `security.protocol` says it again."""
    return [part.strip().rpartition("://")[2] for part in value.split(",")]


def listening_host(value: str) -> str:
    """Where Connect's HTTP port would listen: on all addresses if none is named."""
    return _listener(value).hostname or "0.0.0.0"  # noqa: S104  as the file says


def listening_port(value: str) -> str:
    return _listener(value).netloc.rpartition("]")[2].rpartition(":")[2]


def _listener(value: str) -> SplitResult:
    """The first one without TLS, for which a certificate is a setting of its own."""
    for each in value.split(","):
        if _LISTENER.fullmatch(each.strip()):
            return urlsplit(each.strip())
    raise ValueError(
        f'"{value}" has no address such as http://127.0.0.1:8083; for TLS write one, '
        "and set MIRROR_SERVICE__http_certificate_file"
    )


def policy(value: str) -> str:
    known = _POLICIES | _OLDER_POLICIES
    if value not in known:
        raise ValueError(
            f'there is no replication policy "{value}" here; '
            f"use {' or '.join(_POLICIES)}; policy rename in a YAML file "
            "can name copies as another class does"
        )
    return known[value]


def exactly_once(value: str) -> bool:
    known = {"enabled": True, "preparing": True, "required": True, "disabled": False}
    if value.lower() not in known:
        raise ValueError(
            f'"{value}" is not one of enabled, preparing, disabled'
            f"{near(value, ('enabled', 'preparing', 'disabled'))}"
        )
    return known[value.lower()]


def duration(value: str) -> str:
    """Guides write 30s, 1m or 2h; MirrorMaker 2 only knows seconds."""
    match = _DURATION.fullmatch(value)
    if not match:
        raise ValueError(f'"{value}" is not a duration; use 30s, 5m or 1h')
    number, unit = match.groups()
    return f"{float(number) * _SECONDS[unit or 's']:g}"


def milliseconds(value: str) -> str:
    try:
        return f"{float(value) / 1000:g}"
    except ValueError as error:
        raise ValueError(f'"{value}" is not a number of milliseconds') from error


def whether_set(value: str) -> str:
    """An algorithm for checking names: without one, nothing is checked."""
    return "true" if value else "false"


def pem(value: str) -> str:
    """PEM in lines, as OpenSSL wants it; Java does not mind if lines are joined."""
    return _BLOCK.sub(
        lambda block: "\n".join(
            [
                f"-----BEGIN {block[1]}-----",
                *textwrap.wrap("".join(block[2].split()), 64),
                f"-----END {block[1]}-----\n",
            ]
        ),
        value,
    )
