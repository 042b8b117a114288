"""Tools that only some tests need: tests without them are skipped, and counted."""

from __future__ import annotations

from pathlib import Path
import re
import subprocess
import sys

import pytest

from tests import tools

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
NEEDS = """
import pytest
@pytest.mark.needs("promtool")
@pytest.mark.parametrize("case", range(3))
def test_rules(case): pass
@pytest.mark.needs("helm")
def test_chart(): pass
"""


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A PATH, and a cache, without anything."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("MIRROR_CACHE", str(tmp_path))
    monkeypatch.delenv(tools.REQUIRE, raising=False)
    return folder


def run_tests(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """The made-up tests, with this project's conftest."""
    file = folder / "test_made_up.py"
    file.write_text(NEEDS)
    return subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-p", "tests.conftest", *options),
            *("-c", str(ROOT / "pyproject.toml"), "-p", "no:cacheprovider", str(file)),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_what_is_missing_is_skipped_and_counted(nowhere: Path, tmp_path: Path) -> None:
    """Without a tool its tests are skipped, with the command that installs it, and the
    end of the run counts them for each tool, also when a worker ran them.
    """
    ended = run_tests(tmp_path, "-n", "1")

    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "4 skipped" in ended.stdout
    assert re.search(r"SKIPPED \[3\] .*test_made_up.py:3: no promtool", ended.stdout)
    told = ended.stdout.partition("Skipped for want of a tool")[2]
    assert re.search(r"3 cases: no promtool .*apt-get install prometheus", told)
    assert re.search(r"1 case: no helm: .*go install helm\.sh/", told)


def test_what_is_required_fails(
    nowhere: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the variable names a tool, tests without it fail instead."""
    monkeypatch.setenv(tools.REQUIRE, "promtool")

    ended = run_tests(tmp_path)

    assert ended.returncode == 1
    assert "1 skipped, 3 errors" in ended.stdout
    assert "MIRROR_TEST_REQUIRE" in ended.stdout


def test_a_misspelt_requirement_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """An unknown tool cannot be required by mistake."""
    monkeypatch.setenv(tools.REQUIRE, "promtool heml")

    with pytest.raises(ValueError, match="names heml; it can name promtool, helm"):
        tools.required()


def test_where_a_tool_is_found(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tool is found when all its programs are: on the PATH, under another name, or in
    the cache's folder.
    """
    for name in ("chromium-browser", "chromedriver", "helm", "schema-registry"):
        (nowhere / name).touch(mode=0o755)
    monkeypatch.setenv("PATH", "")

    assert tools.path("chromium") == str(nowhere / "chromium-browser")
    assert [name for name in tools.TOOLS if tools.missing(name)] == [
        *("promtool", "kerberos", "faults", "pushgateway"),
    ]


def test_a_path_without_them(nowhere: Path, tmp_path: Path) -> None:
    """The folder made for CI has every other program, and none of the tools."""
    for name in ("helm", "promtool", "chromium-browser", "java"):
        (nowhere / name).touch(mode=0o755)

    tools.hide(tmp_path / "hidden")

    assert [each.name for each in (tmp_path / "hidden").iterdir()] == ["java"]


def test_what_cannot_be_installed_is_said(
    nowhere: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without apt-get and Go, `make tools` fails with the commands to type."""
    monkeypatch.setattr(sys, "argv", ["tools"])

    assert tools.main() == 1
    told = capsys.readouterr()
    assert "promtool: missing" in told.out
    assert "no helm: GOBIN=" in told.err
    assert "apt-get install chromium chromium-driver" in told.err
