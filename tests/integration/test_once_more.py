"""`make test` runs failed tests once more, and its last lines name them."""

from __future__ import annotations

from pathlib import Path
import subprocess
import sys

import pytest

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
SHAKY = """
from pathlib import Path
def test_shaky():
    before = Path(__file__).with_name("ran")
    ran, _ = before.exists(), before.touch()
    assert ran
def test_broken(): assert False
def test_sound(): pass
"""


COUNTING = """
from tests.harness.witness import assert_exactly_once
def test_lost(): assert_exactly_once({0: []}, {0: [b"1"]})
"""


def run_tests(
    folder: Path, *options: str, content: str = SHAKY
) -> subprocess.CompletedProcess[str]:
    """Made-up tests, with this project's conftest."""
    file = folder / "test_made_up.py"
    file.write_text(content)
    return subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-p", "tests.conftest", *options),
            *("-c", str(ROOT / "pyproject.toml"), "-o", f"cache_dir={folder}/cache"),
            str(file),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_end_names_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second run, and each run after it, ends with the number and the names."""
    monkeypatch.setenv("MIRROR_TEST_RETRIED", str(tmp_path / "retried"))

    first, again, later = (
        run_tests(tmp_path, *options).stdout.splitlines()
        for options in (("-n", "1"), ("--last-failed",), ("-k", "sound"))
    )

    assert not any("once more" in line for line in first)
    for told in (again, later):
        heading, *lines = told[-4:-1]
        assert "Failed at first, run once more: 2 tests" in heading
        assert {line.partition(": ")[0] for line in lines} == {"passed", "failed"}
        assert any(line.startswith("passed") and "test_shaky" in line for line in lines)


def test_what_counted_wrong_is_not_run_again(tmp_path: Path) -> None:
    """A run in which a record is lost names the test and ends with another exit code
    than 1, after which `make test` would run it once more.
    """
    ended = run_tests(tmp_path, "-n", "1", content=COUNTING)

    assert ended.returncode not in {0, 1}
    _, _, named = ended.stdout.partition(" Records lost, doubled or out of order ")
    assert "test_lost" in named
