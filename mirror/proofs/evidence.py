"""Evidence: a proof as a JSON document that can be signed, checked and shown.

Main functions: `document` describes proofs, `signed` adds a signature (Ed25519, over
the document's canonical form: sorted keys, no spaces, ASCII), `problems` says what is
wrong with a document that somebody hands in, and `page` is the same as HTML. No I/O.
"""

from __future__ import annotations

import base64
import binascii
from collections import defaultdict
from functools import cache
import json
from typing import TYPE_CHECKING, Any

from cryptography.exceptions import InvalidSignature
from jinja2 import Environment, PackageLoader, StrictUndefined

from mirror import __version__
from mirror.config import changes
from mirror.pairs.proofs import BY_MAP
from mirror.proofs.account import Account
from mirror.status import wording

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )

    from mirror.config.schema import MirrorConfig
    from mirror.proofs.verification import Proven

FORMAT_VERSION = 1
_ALGORITHM = "Ed25519"
_SIGNATURE = "signature"


def document(
    config: MirrorConfig, proofs: Iterable[Proven], *, mode: str = BY_MAP
) -> dict[str, Any]:
    """Everything that was proven, and everything that was found."""
    return {
        "format_version": FORMAT_VERSION,
        "mirror": __version__,
        "configuration": changes.version(config),
        "mode": mode,
        "flows": [_of_flow(each) for each in proofs],
    }


def by_topic(proven: Proven) -> dict[str, Account]:
    """The accounts of topics, by name."""
    accounts: dict[str, Account] = defaultdict(Account)
    for each in proven.partitions:
        accounts[each.of.topic] += each.account
    return dict(sorted(accounts.items()))


def signed(unsigned: dict[str, Any], key: Ed25519PrivateKey) -> dict[str, Any]:
    """The document with a signature."""
    value = base64.b64encode(key.sign(_canonical(unsigned))).decode()
    return {**unsigned, _SIGNATURE: {"algorithm": _ALGORITHM, "value": value}}


def problems(told: Any, key: Ed25519PublicKey) -> list[str]:
    """What is wrong with a signed document; nothing if it is genuine and whole."""
    if not isinstance(told, dict) or "format_version" not in told:
        return ["it is no report of mirror verify"]
    if told["format_version"] != FORMAT_VERSION:
        newer = f"it has format {told['format_version']}"
        return [f"{newer}; this mirror reads {FORMAT_VERSION}: use the newest one"]
    if _SIGNATURE not in told:
        return ["it is not signed"]
    unsigned = {name: value for name, value in told.items() if name != _SIGNATURE}
    try:
        if told[_SIGNATURE]["algorithm"] != _ALGORITHM:
            return [f"its signature is not made with {_ALGORITHM}"]
        value = base64.b64decode(told[_SIGNATURE]["value"], validate=True)
        key.verify(value, _canonical(unsigned))
    except (KeyError, TypeError, binascii.Error):
        return ["its signature is damaged"]
    except InvalidSignature:
        return ["its signature is not of this key, or it was changed afterwards"]
    return [each for flow in told["flows"] for each in _contradictions(flow)]


def page(told: dict[str, Any]) -> str:
    """The document as one HTML page without references."""
    return _templates().get_template("report.html").render(report=told)


def _of_flow(proven: Proven) -> dict[str, Any]:
    return {
        "flow": proven.flow,
        "source_id": proven.source_id,
        "target_id": proven.target_id,
        "at": wording.moment(proven.at),
        "topics": [
            {
                "topic": topic,
                "times_compared": proven.own_times[topic],
                **account.document(),
            }
            for topic, account in by_topic(proven).items()
        ],
        "partitions": [
            {
                "topic": each.of.topic,
                "partition": each.of.partition,
                "target_topic": each.of.target_topic,
                "topic_id": each.of.topic_id.hex,
                "copy_id": each.of.copy_id.hex,
                "source": [each.of.source_first, each.of.source_end],
                "target": [each.of.target_first, each.target_end],
                "root": each.root,
                "whole": each.whole,
                "findings": len(each.findings),
                **each.account.document(),
            }
            for each in proven.partitions
        ],
        "findings": [each.document() for each in proven.findings],
    }


def _contradictions(flow: dict[str, Any]) -> list[str]:
    """Sums that are not right: a signature only says who wrote them."""
    return [
        f"flow {flow['flow']}: {name} of {topic['topic']} is not the sum of its "
        "partitions"
        for topic in flow["topics"]
        for name in ("records", "equal", "wrong")
        if topic[name]
        != sum(p[name] for p in flow["partitions"] if p["topic"] == topic["topic"])
    ]


def _canonical(unsigned: dict[str, Any]) -> bytes:
    return json.dumps(unsigned, sort_keys=True, separators=(",", ":")).encode()


@cache
def _templates() -> Environment:
    return Environment(
        loader=PackageLoader("mirror.proofs", "files"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
