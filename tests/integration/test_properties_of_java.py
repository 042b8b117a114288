"""Properties files mean what they mean to Java, and to Kafka's classes."""

from __future__ import annotations

from pathlib import Path
import random
import subprocess
from typing import TYPE_CHECKING
from urllib.parse import unquote_plus

import pytest

from mirror.config.mm2 import text as mm2_text
from mirror.errors import ConfigError
from mirror.host import require_java
from mirror.playground.jars import (
    KAFKA_VERSION,
    kafka_jars,
)
from tests.harness.kafka_keys import listed, printed

if TYPE_CHECKING:
    from collections.abc import Mapping

pytestmark = pytest.mark.integration

JAVA = Path(__file__).parents[1] / "java" / "ReadProperties.java"
PIECES = (
    *("a", "b", "key", "A->B.topics", "=", ":", " ", "\t", "\f", "\\", "\\\\", "\\n"),
    *("\\:", "\\=", "\\ ", "\\#", "#", "!", "\n", "\r", "\r\n", "\\\n", "\\\r\n"),
    *("\\u0041", "\\u00e4", "\\u20AC", "\\u12", "ä", "€", "\\t", "\\f", "\\z", "  "),
    *("\n# comment \\\n", "\n! comment\n", "\n\n", "\\\n   ", "\u00a0"),
)
FILES = 600
_BROKEN = "\\u12"


def test_any_text_is_read_as_java_reads_it(tmp_path: Path) -> None:
    """Separators, escapes, comments, joined lines and line ends in any order are read
    as Java reads them; of equal keys the last one counts. What Java refuses is refused;
    so is a broken escape in a comment that begins after a lone backslash, which Java
    skips.
    """
    made = random.Random(1)
    texts = ["".join(made.choices(PIECES, k=made.randint(1, 30))) for _ in range(FILES)]
    files = []
    for number, text in enumerate(texts):
        files.append(tmp_path / f"{number}")
        files[-1].write_bytes(text.encode())
    answer = subprocess.run(
        [require_java(), JAVA, *files],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr[-3000:]
    told = answer.stdout.splitlines()
    assert len(told) == FILES
    differing = [
        (text, theirs, ours)
        for text, line in zip(texts, told, strict=True)
        if (theirs := _of(line)) != (ours := _ours(text))
        and not (ours is None and _BROKEN in text)
    ]
    assert not differing, differing[:3]
    assert sum(line.endswith("!") for line in told) > 10
    assert sum(line.count("&") > 1 for line in told) > 100


def test_the_list_of_keys_is_that_of_the_jars() -> None:
    """After an update of Kafka, `make kafka-keys` lists its new keys, and
    tests/unit/test_mm2_keys.py asks for an answer to each.
    """
    known = {each for each in listed() if each.version == KAFKA_VERSION}
    assert printed(kafka_jars("mm2")) == known


def _of(line: str) -> Mapping[str, str] | None:
    if line.endswith("!"):
        return None
    pairs = (pair.split("=") for pair in line.split("&")[:-1])
    return _named({unquote_plus(key): unquote_plus(value) for key, value in pairs})


def _ours(text: str) -> Mapping[str, str] | None:
    try:
        return _named(dict(mm2_text.pairs(text)))
    except ConfigError:
        return None


def _named(found: dict[str, str]) -> Mapping[str, str]:
    """A backslash at the very end of a file gives Java a key without a name."""
    return {key: value for key, value in found.items() if key}
