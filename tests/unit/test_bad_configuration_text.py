"""Odd texts of properties files: they mean what Java's own reader makes of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.harness.configurations import MM2, read_java, secret

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.unit

LOGIN = """\
A.security.protocol = SASL_PLAINTEXT
A.sasl.mechanism = PLAIN
A.sasl.jaas.config = x.PlainLoginModule required username="u" password="%b";
"""


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
    config, warnings = read_java(tmp_path, f"{MM2}{line}{ending}")
    assert config.flows["A->B"].topics == topics
    assert warnings == ()


@pytest.mark.parametrize("newline", ["\r\n", "\r"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"], ids=["plain", "BOM"])
def test_files_of_other_systems(tmp_path: Path, newline: str, mark: bytes) -> None:
    """Windows' and old line ends, and the mark that its editors put first."""
    text = f"{MM2}A->B.topics = a, \\\n   b\n".replace("\n", newline)
    config, warnings = read_java(tmp_path, mark + text.encode())
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
        (b"one\\\n      two", "onetwo"),
    ],
)
def test_a_password_of_any_characters(
    tmp_path: Path, raw: bytes, password: str
) -> None:
    """Java's escapes first, then those of a login module's quoted text."""
    config, warnings = read_java(tmp_path, (MM2 + LOGIN).encode() % raw)
    assert warnings == ()
    assert secret(config.clusters["A"].sasl_password) == password


def test_of_keys_given_twice_the_last_counts(tmp_path: Path) -> None:
    """As in Java, but with a warning that names each such key once."""
    config, warnings = read_java(
        tmp_path,
        f"{MM2}tasks.max = 1\ntopics = a\ntasks.max = 2\ntopics = b\ntasks\\.max = 3\n",
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
    config, warnings = read_java(tmp_path, f"{MM2}A->B.topics\n")
    assert config.flows["A->B"].topics == ()
    assert warnings == ("A->B.topics: is empty, so no topic is copied",)
