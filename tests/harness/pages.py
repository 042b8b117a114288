"""The pages of the project, and the blocks of code that they show."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
import re
import textwrap

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(
    r"^(?P<indent> *)```(?P<language>\w*)\n(?P<text>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
_UNCHECKED = re.compile(r"<!-- not checked: .+ -->\s*\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A block of code on a page."""

    place: str
    language: str
    text: str


def pages() -> list[Path]:
    """Every page, in the order of their names."""
    found = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    found += (ROOT / "deploy").rglob("*.md")
    return sorted(found)


def blocks(page: Path, *languages: str) -> list[Block]:
    """The page's blocks in these languages, except those marked as not checked."""
    text = page.read_text()
    return [
        Block(
            place=f"{page.relative_to(ROOT)}:{_line(text, match.start())}",
            language=match["language"],
            text=textwrap.dedent(match["text"]),
        )
        for match in _BLOCK.finditer(text)
        if match["language"] in languages
        and not _UNCHECKED.search(text[: match.start()])
    ]


def _line(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1
