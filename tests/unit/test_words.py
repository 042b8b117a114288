"""Texts are plain English: pages, docstrings, comments and messages.

They are searched for the words of a translation. The test cannot judge style; it keeps
out words that made texts hard to read.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from typing import TYPE_CHECKING

import pytest

from tests.harness.pages import ROOT, pages
from tests.unit.test_docs import prose

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.unit

_TRANSLATED = re.compile(
    r"\b(shall|anew|whoever|nobody|lacks|for ever|(is|are) told|ha(s|ve) to be"
    r"|what bec(o|a)mes? of|right would be|beside MirrorMaker 2)\b",
    re.IGNORECASE,
)


def _words(text: str) -> list[str]:
    """The listed words in a text, except in code."""
    plain = re.sub(r"`[^`]*`", "", " ".join(text.split()))
    return [match[0] for match in _TRANSLATED.finditer(plain)]


@pytest.mark.parametrize(
    "page",
    [*pages(), ROOT / "CHANGELOG.md"],
    ids=lambda p: str(p.relative_to(ROOT)),
)
def test_pages_are_plain_english(page: Path) -> None:
    """Neither pages written by hand nor generated ones have the words."""
    found = [(words, text) for text in prose(page) if (words := _words(text))]

    assert found == []


def _sources() -> list[Path]:
    package = ROOT / "mirror"
    return [
        *(
            path
            for path in sorted(package.rglob("*"))
            if path.suffix in {".py", ".html", ".js"}
        ),
        *sorted((ROOT / "dashboards").rglob("*.*")),
        *(path for path in sorted((ROOT / "deploy").rglob("*")) if path.is_file()),
        ROOT / "Makefile",
        ROOT / "Dockerfile",
        ROOT / "config" / "mirror.example.yaml",
    ]


def _texts(path: Path) -> Iterator[tuple[int, str]]:
    """Docstrings, messages and comments of a module; any other file by lines."""
    source = path.read_text()
    # Most have none of the words anywhere, not even across two parts of a text.
    letters = re.sub(r"(\\[nt]|[^A-Za-z])+([rbf]+(?=[\"'])[^A-Za-z]+)?", " ", source)
    if not _TRANSLATED.search(letters):
        return
    if path.suffix != ".py":
        yield from enumerate(source.splitlines(), start=1)
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


@pytest.mark.parametrize("path", _sources(), ids=lambda p: str(p.relative_to(ROOT)))
def test_sources_are_plain_english(path: Path) -> None:
    """No docstring, message, comment, alert or template has the words."""
    found = [(line, words) for line, text in _texts(path) if (words := _words(text))]

    assert found == []
