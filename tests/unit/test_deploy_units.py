"""The systemd units, checked by systemd's own tool and against what they start."""

from __future__ import annotations

from pathlib import Path
import shutil
import subprocess

import pytest

from mirror.driver.spark_checkpoint import state_folder

pytestmark = pytest.mark.unit

FOLDER = Path(__file__).parents[2] / "deploy" / "spark-submit"
UNITS = sorted(FOLDER.glob("*.service"))


def settings(unit: Path) -> dict[str, list[str]]:
    """The values of each setting, whatever its section."""
    found: dict[str, list[str]] = {}
    for line in unit.read_text().splitlines():
        name, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found.setdefault(name, []).append(value)
    return found


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.stem)
def test_systemd_would_take_it(unit: Path, tmp_path: Path) -> None:
    """systemd knows every setting of the unit and every value."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze: it comes with systemd")
    [start] = settings(unit)["ExecStart"]
    copy = tmp_path / "mirror.service"
    # It looks for the program, which is installed elsewhere if at all.
    copy.write_text(unit.read_text().replace(start.split()[0], "/bin/true"))
    ended = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", copy],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.stem)
def test_it_ends_as_mirror_wants_to_end(unit: Path) -> None:
    """Only mirror gets SIGTERM, has time for its transactions, and is restarted unless
    its configuration is wrong.
    """
    found = settings(unit)

    assert found["KillMode"] == ["mixed"]
    assert int(found["TimeoutStopSec"][0]) >= 60
    assert found["Restart"] == ["always"]
    assert found["RestartPreventExitStatus"] == ["2"]
    assert found["StartLimitIntervalSec"] == ["0"]


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.stem)
def test_systemd_says_where_its_state_is(
    unit: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """systemd creates a folder that the service may write to, and mirror uses that one:
    homes are hidden from the service.
    """
    found = settings(unit)
    assert found["ProtectHome"] == ["true"]
    [name] = found["StateDirectory"]
    monkeypatch.setenv("STATE_DIRECTORY", f"/var/lib/{name}")  # as systemd does

    assert state_folder(None) == Path("/var/lib/mirror/state")


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.stem)
def test_what_it_starts_is_what_the_page_installs(unit: Path) -> None:
    """The program is where the pages' steps put it."""
    [start] = settings(unit)["ExecStart"]
    program = start.split()[0]

    if program.endswith(".sh"):
        assert (FOLDER / Path(program).name).is_file()
        assert program.startswith("/opt/mirror/deploy/spark-submit/")
    else:
        assert program == "/opt/mirror/bin/mirror"
