"""The systemd units, checked by systemd's own tool and against what they start."""

from __future__ import annotations

from pathlib import Path
import shutil
import subprocess

import pytest

from mirror.service.query import state_folder

pytestmark = pytest.mark.unit

FOLDER = Path(__file__).parents[2] / "deploy" / "spark-submit"
SERVICES = sorted(FOLDER.glob("*.service"))
ONCE = FOLDER.parent / "systemd" / "mirror-once.service"
UNITS = [*SERVICES, ONCE]


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
def test_it_may_do_little(unit: Path) -> None:
    """By systemd's own measure it is hardly exposed: at most 2.0 of 10."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze: it comes with systemd")
    ended = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--threshold=20", unit],
        capture_output=True,
        text=True,
        check=False,
    )

    assert ended.returncode == 0, ended.stdout


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.stem)
def test_secrets_are_credentials(unit: Path) -> None:
    """Secrets come from a folder of root's, under paths that the page names, and memory
    is limited.
    """
    found = settings(unit)
    [(name, folder)] = [each.split(":") for each in found["LoadCredential"]]
    prefix = f"/run/credentials/mirror.service/{name}_"
    page = (FOLDER.parents[1] / "docs" / "howto" / "one-machine.md").read_text()

    assert folder in page
    assert prefix in page
    assert {"MemoryHigh", "MemoryMax", "TasksMax"} <= found.keys()
    for setting in found["Environment"]:
        if "/run/credentials/" in setting:
            assert prefix in setting


@pytest.mark.parametrize("unit", SERVICES, ids=lambda path: path.stem)
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


def test_a_run_ends_as_it_likes() -> None:
    """A run that the timer starts may take as long as it takes, has time for its
    transactions, and is not started again by systemd; its metrics are in its state
    folder. Otherwise it may do what the service may.
    """
    found, service = settings(ONCE), settings(FOLDER / "mirror-local.service")

    assert found["Type"] == ["oneshot"]
    assert "Restart" not in found
    assert found["TimeoutStartSec"] == ["infinity"]
    assert found["KillMode"] == ["mixed"]
    assert int(found["TimeoutStopSec"][0]) >= 60
    [start] = found["ExecStart"]
    assert start.endswith("--once --metrics-file /var/lib/mirror/mirror.prom")
    own = {
        *("Description", "Type", "ExecStart", "ExecReload", "TimeoutStartSec"),
        *("Restart", "RestartSec", "RestartPreventExitStatus", "StartLimitIntervalSec"),
        "WantedBy",
    }
    assert {name: found[name] for name in found.keys() - own} == {
        name: service[name] for name in service.keys() - own
    }


def test_the_timer_starts_it(tmp_path: Path) -> None:
    """systemd takes the timer and its times, and the page installs both units under one
    name, by which a timer finds what it starts.
    """
    timer = ONCE.with_suffix(".timer")
    page = (ONCE.parents[2] / "docs" / "howto" / "run-once.md").read_text()
    for unit in (ONCE, timer):
        name = f"/etc/systemd/system/mirror{unit.suffix}"
        assert f"deploy/systemd/{unit.name} {name}" in page
    assert settings(timer)["WantedBy"] == ["timers.target"]
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze: it comes with systemd")
    [times] = settings(timer)["OnCalendar"]
    (tmp_path / "mirror.timer").write_text(timer.read_text())
    (tmp_path / "mirror.service").write_text(
        ONCE.read_text().replace("/opt/mirror/bin/mirror", "/bin/true")
    )
    for command in (
        ["calendar", times],
        ["verify", "--man=no", str(tmp_path / "mirror.timer")],
    ):
        ended = subprocess.run(
            ["systemd-analyze", *command], capture_output=True, text=True, check=False
        )
        assert (ended.returncode, ended.stderr) == (0, "")


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
