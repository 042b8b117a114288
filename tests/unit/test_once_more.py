"""`make test` runs failed tests once more, and its last lines name them."""

from __future__ import annotations

from pathlib import Path
import subprocess
import sys

import pytest

pytestmark = pytest.mark.unit

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


def run_tests(folder: Path, *options: str) -> list[str]:
    """The output of the made-up tests, with this project's conftest."""
    file = folder / "test_made_up.py"
    file.write_text(SHAKY)
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
    ).stdout.splitlines()


def test_the_end_names_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second run, and each run after it, ends with the number and the names."""
    monkeypatch.setenv("MIRROR_TEST_RETRIED", str(tmp_path / "retried"))

    first = run_tests(tmp_path, "-n", "1")
    again = run_tests(tmp_path, "--last-failed")
    later = run_tests(tmp_path, "-k", "sound")

    assert not any("once more" in line for line in first)
    for told in (again, later):
        heading, *lines = told[-4:-1]
        assert "Failed at first, run once more: 2 tests" in heading
        assert {line.partition(": ")[0] for line in lines} == {"passed", "failed"}
        assert any(line.startswith("passed") and "test_shaky" in line for line in lines)
