"""What pages show is right: links, commands, settings, configurations, scripts.

Commands are read by the command line itself, without being carried out; configurations
are loaded. A block that cannot be held to that is marked on the line above it with
`<!-- not checked: why -->`. That such commands do what pages
say is for the acceptance tests.
"""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

import pytest
import typer
import yaml

from mirror.cli.main import Later, app
from mirror.config.load import load
from tests.benchmarks import readme
from tests.harness.pages import ROOT, Block, blocks, pages
from tests.unit.test_architecture import ROWS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.unit

_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def named(found: list[Block]) -> list[object]:
    return [pytest.param(block, id=block.place) for block in found]


def commands(block: Block) -> Iterator[list[str]]:
    """The words of each command of a shell block, without comments and variables."""
    text = block.text.replace("\\\n", " ")
    for line in text.splitlines():
        words = shlex.split(line, comments=True)
        while words and re.fullmatch(r"\w+=.*", words[0]):
            words = words[1:]
        for end in ("|", "&&", "&", ">", ";"):
            if end in words:
                words = words[: words.index(end)]
        if words:
            yield words


SHELL = [block for page in pages() for block in blocks(page, "sh", "")]
YAML = [block for page in pages() for block in blocks(page, "yaml")]


@pytest.mark.parametrize("page", pages(), ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    """Every link between pages finds its file, and its heading there."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    broken = []
    for link in _LINK.findall(text):
        if re.match(r"[a-z]+:", link):
            continue  # elsewhere
        name, _, heading = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if not target.exists() or (heading and heading not in _anchors(target)):
            broken.append(link)

    assert broken == []


def _anchors(page: Path) -> set[str]:
    """As the usual places for Markdown make them from headings."""
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")
        for heading in _HEADING.findall(page.read_text())
    }


@pytest.mark.parametrize("block", named(SHELL))
def test_commands_exist(block: Block) -> None:
    """Every `mirror` command is one, with options that it has; every target of make,
    script and file of the repository that is named is there.
    """
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    for words in commands(block):
        program = words[0].removeprefix(".venv/bin/")
        if program == "mirror":
            _parse(words[1:])
        elif program == "make":
            wanted = [word for word in words[1:] if "=" not in word]
            assert set(wanted) <= targets, words
        for word in words:
            if re.match(r"(deploy|tests|config|docs)/\w", word):
                assert (ROOT / word).exists(), word


def _parse(words: list[str]) -> None:
    """Read the words as the command line would; what it refuses it raises."""
    command = typer.main.get_command(app)
    name = "mirror"
    while hasattr(command, "commands"):
        if not words or words[0].startswith("-"):
            return
        assert words[0] in command.commands, f"{name} {words[0]}"
        command, name, words = command.commands[words[0]], words[0], words[1:]
        command = command.command if isinstance(command, Later) else command
    command.make_context(name, list(words))


@pytest.mark.parametrize(
    "block", named([b for b in YAML if re.search(r"^flows:", b.text, re.MULTILINE)])
)
def test_configurations_load(block: Block, tmp_path: Path) -> None:
    """Every whole configuration is taken by mirror as it stands, once the files that
    it names are there.
    """
    file = tmp_path / "mirror.yaml"
    file.write_text(block.text.replace("/etc/mirror/", f"{tmp_path}/"))
    for name in re.findall(r"/etc/mirror/([\w.-]+)", block.text):
        (tmp_path / name).touch()
    if "clusters:" not in block.text:
        pytest.skip("a part of a configuration")

    config, _ = load(file, environ={})

    assert config.flows


@pytest.mark.parametrize("block", named(YAML))
def test_yaml_can_be_read(block: Block) -> None:
    """Every block of YAML is YAML."""
    yaml.safe_load(block.text)


BENCHMARKS = ROOT / "docs" / "benchmarks" / "README.md"
FAILURES = ROOT / "docs" / "explanation" / "failures.md"
DESIGN = ROOT / "docs" / "design.md"
DECISIONS = ROOT / "docs" / "explanation" / "decisions.md"
"""It says what was measured when something was decided, and when."""
_MOST_WORDS, _MOST_ENTRIES = 2500, 15
_COSTS = re.compile(
    r"\d s (of CPU )?(a|per|for (a|1)) (GB|gigabyte)\b"
    r"|\b(1|a) (GB|gigabyte) of .*\d s of CPU"
    r"|\d cores for records"
)
_BACK_AFTER = re.compile(
    r"(worker|executor|SIGKILL|[Ss]tarts?\b|[Rr]estart).*"
    r"\b(\d[\d.]*|some [a-z]+) s(econds)?\b"
)


def prose(page: Path) -> Iterator[str]:
    """A page's rows, items and paragraphs, each as one line, without blocks of code."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for part in re.split(r"\n\s*\n|\n(?=\||- |\d+\. )", text):
        yield " ".join(part.split())


@pytest.mark.parametrize(
    ("figure", "home"), [(_COSTS, BENCHMARKS), (_BACK_AFTER, FAILURES)]
)
def test_a_figure_has_one_home(figure: re.Pattern[str], home: Path) -> None:
    """The benchmark's page says what a gigabyte costs, and that of failures how soon a
    flow is back; other pages lead there, so none can be older.
    """
    elsewhere = [
        f"{page.relative_to(ROOT)}: {text}"
        for page in pages()
        if page not in {home, DECISIONS, BENCHMARKS}
        for text in prose(page)
        if figure.search(text)
    ]

    assert elsewhere == []


def test_the_design_is_short() -> None:
    """A newcomer reads the design in one sitting: words and glossary are bounded."""
    text = DESIGN.read_text()
    glossary = re.search(
        r"^## Glossary\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL
    )
    assert glossary is not None
    entries = re.findall(r"^- \*\*", glossary[1], re.MULTILINE)

    assert len(text.split()) <= _MOST_WORDS
    assert 0 < len(entries) <= _MOST_ENTRIES


def test_the_design_lists_every_room() -> None:
    """The table of rooms has the rows that imports are held to, in their order."""
    table = DESIGN.read_text().partition("\n## Rooms\n")[2].partition("\n## ")[0]
    cells = re.findall(r"^\| (`.+?) \|", table, re.MULTILINE)
    rows = [set(re.findall(r"`(\w+)/?`", cell)) for cell in cells]

    assert rows == [row for row in ROWS if row != {"__main__"}] + [{"playground"}]


def test_the_readme_says_what_was_measured() -> None:
    """Of what the page of benchmarks compares, the README has each throughput beside
    MirrorMaker 2 as it stands there, and names each contest that is lost.
    """
    text = (ROOT / "README.md").read_text()
    told = text.partition(readme.BEGIN)[2].partition(readme.END)[0]
    rows = re.findall(
        r"^\| ([^|]+) \| ([^|]+) \| (more|less) \| mirror\S* \|(.*)\|$",
        BENCHMARKS.read_text(),
        re.MULTILINE,
    )
    assert rows
    for title, figure, better, cells in rows:
        ratios = [float(cell) for cell in cells.split("|") if cell.strip()]
        if min(ratios) < 1 if better == "more" else max(ratios) > 1:
            assert f"| {title} | {figure} |" in told
        if figure == "records/s":
            found = re.search(rf"\n\| {re.escape(title)} \| (\S+) times", told)
            assert found, title
            assert float(found[1]) == pytest.approx(ratios[0], rel=0.03)


def test_every_page_can_be_found() -> None:
    """From the README, over links, every page can be reached."""
    known = {ROOT / "README.md"}
    ahead = list(known)
    while ahead:
        page = ahead.pop()
        for link in _LINK.findall(page.read_text()):
            target = (page.parent / link.partition("#")[0]).resolve()
            found = sorted(target.glob("*.md")) if target.is_dir() else [target]
            for new in found:
                if new.suffix == ".md" and new.exists() and new not in known:
                    known.add(new)
                    ahead.append(new)

    assert {p for p in pages() if p not in known} == set()
