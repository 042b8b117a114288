"""Odd texts of properties files: they mean what Java's own reader makes of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mirror.config.load import load

if TYPE_CHECKING:
    from pathlib import Path

    from mirror.config.schema import MirrorConfig

pytestmark = pytest.mark.unit

MM2 = """\
clusters = A, B
A.bootstrap.servers = a:9092
B.bootstrap.servers = b:9092
A->B.enabled = true
"""
LOGIN = """\
A.security.protocol = SASL_PLAINTEXT
A.sasl.mechanism = PLAIN
"""


def read(tmp_path: Path, raw: bytes) -> tuple[MirrorConfig, tuple[str, ...]]:
    path = tmp_path / "mm2.properties"
    path.write_bytes(raw)
    return load(path, environ={})


@pytest.mark.parametrize(
    ("line", "topics"),
    [
        ("A->B.topics = a,b", ("a", "b")),
        ("A->B.topics=a,b", ("a", "b")),
        ("A->B.topics:a,b", ("a", "b")),
        ("A->B.topics a,b", ("a", "b")),
        ("\t A->B.topics\t=\t a,b \t", ("a", "b")),
        ("A->B.topics = a, \\\n    b", ("a", "b")),
        ("A->B.topics = a, \\\r\n    b\r", ("a", "b")),
        ("A->B.topics = a\\\\.b", (r"a\.b",)),
        ("A->B.topics = a\\u002eb", ("a.b",)),
        ("A->B.topics = \\u0061", ("a",)),
        ("A-\\u003eB.topics = a", ("a",)),
        ("A->B.\\\n  topics = a", ("a",)),
        ("A->B.topics = a\n! A->B.topics = b", ("a",)),
        ("A->B.topics = a\n  # A->B.topics = b", ("a",)),
        ("# comments are not continued \\\nA->B.topics = a", ("a",)),
        ("A->B.topics = a=b", ("a=b",)),
        ("A->B.topics = a\\=b", ("a=b",)),
        ("A->B.topics = a\\:b", ("a:b",)),
        ("A->B.topics = a\\,b", ("a", "b")),
        ("A->B.topics = a\\zb", ("azb",)),
        ("A->B.topics = a\f", ("a",)),
        ("\\\n# A->B.topics = b\n\\\n  A->B.topics = a", ("a",)),
    ],
)
@pytest.mark.parametrize("ending", ["\n", ""], ids=["newline", "no newline"])
def test_a_line_means_what_it_means_in_java(
    tmp_path: Path, line: str, topics: tuple[str, ...], ending: str
) -> None:
    """Separators, blanks, escapes, joined lines and comments; without a final newline,
    too.
    """
    config, warnings = read(tmp_path, f"{MM2}{line}{ending}".encode())
    assert config.flows["A->B"].topics == topics
    assert warnings == ()


@pytest.mark.parametrize("newline", ["\r\n", "\r"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"], ids=["plain", "BOM"])
def test_files_of_other_systems(tmp_path: Path, newline: str, mark: bytes) -> None:
    """Windows' and old line ends, and the mark that its editors put first."""
    text = f"{MM2}A->B.topics = a, \\\n   b\n".replace("\n", newline)
    config, warnings = read(tmp_path, mark + text.encode())
    assert config.flows["A->B"].topics == ("a", "b")
    assert list(config.clusters) == ["A", "B"]
    assert warnings == ()


@pytest.mark.parametrize(
    ("raw", "password"),
    [
        ("pä€sword".encode(), "pä€sword"),
        ("päßword".encode("latin-1"), "päßword"),
        (b"p\\u00e4\\u20acsword", "pä€sword"),
        (b"\\ud83d\\udd11", "\U0001f511"),
        (b"a\\:b\\=c\\#d\\!e", "a:b=c#d!e"),
        (b"a#b!c = d", "a#b!c = d"),
        (b"back\\\\\\\\slash", "back\\slash"),
    ],
)
def test_a_password_of_any_characters(
    tmp_path: Path, raw: bytes, password: str
) -> None:
    """Java's escapes first, then those of a login module's quoted text."""
    jaas = b'A.sasl.jaas.config = x.PlainLoginModule required username="u" password="'
    config, warnings = read(tmp_path, (MM2 + LOGIN).encode() + jaas + raw + b'";\n')
    found = config.clusters["A"].sasl_password
    assert warnings == ()
    assert found
    assert found.get_secret_value() == password


def test_of_keys_given_twice_the_last_counts(tmp_path: Path) -> None:
    """As in Java, but with a warning that names each such key once."""
    config, warnings = read(
        tmp_path,
        f"{MM2}tasks.max = 1\ntopics = a\ntasks.max = 2\ntopics = b\n"
        "tasks\\.max = 3\n".encode(),
    )
    assert config.flows["A->B"].tasks == 3
    assert config.flows["A->B"].topics == ("b",)
    assert warnings == (
        "tasks.max: set twice; the last one counts",
        "topics: set twice; the last one counts",
        "tasks.max: set twice; the last one counts",
    )


def test_a_key_without_a_value_is_empty(tmp_path: Path) -> None:
    """That is not the same as not set; where it is hardly meant, a warning says so."""
    config, warnings = read(tmp_path, f"{MM2}A->B.topics\n".encode())
    assert config.flows["A->B"].topics == ()
    assert warnings == ("A->B.topics: is empty, so no topic is copied",)
