"""Where Spark's checkpoints are, and that no two runs share one."""

from __future__ import annotations

import os
from pathlib import Path
import subprocess
import sys

import pytest

from mirror.errors import ConfigError, MirrorError
from mirror.service.query import own, state_folder

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"HOME": "/home/ann"}, "/home/ann/.local/state/mirror"),
        ({"HOME": "/home/ann", "XDG_STATE_HOME": "/s"}, "/s/mirror"),
        ({"HOME": "/h", "XDG_STATE_HOME": "state"}, "/h/.local/state/mirror"),
        ({"HOME": "/h", "XDG_STATE_HOME": ""}, "/h/.local/state/mirror"),
        ({"STATE_DIRECTORY": "/var/lib/mirror"}, "/var/lib/mirror/state"),
        (
            {"STATE_DIRECTORY": "/var/lib/mirror:/var/lib/b", "XDG_STATE_HOME": "/s"},
            "/var/lib/mirror/state",
        ),
    ],
)
def test_the_platform_says_where(
    environ: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without `state_dir` it is systemd's folder for a service, else the XDG folder for
    state; the working directory does not matter.
    """
    monkeypatch.setattr(os, "environ", environ)

    assert state_folder(None) == Path(expected)


def test_what_is_set_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A `state_dir` wins over the platform, and a relative one becomes absolute, since
    Spark would look for it elsewhere.
    """
    monkeypatch.setenv("STATE_DIRECTORY", "/var/lib/mirror")
    monkeypatch.chdir(tmp_path)

    assert state_folder(Path("/srv/state")) == Path("/srv/state")
    assert state_folder(Path("state")) == tmp_path / "state"


def test_without_a_home_it_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user id without a name and HOME, as container platforms use, gets a message
    with the setting and the variables that help.
    """
    monkeypatch.setattr(os, "environ", {})
    monkeypatch.setattr("pwd.getpwuid", dict[int, str]().__getitem__)  # a KeyError

    with pytest.raises(ConfigError, match=r"service\.state_dir: .*no home.*HOME"):
        state_folder(None)


def test_two_runs_never_share_a_folder(tmp_path: Path) -> None:
    """Flows of one name in services that share a state folder have their own folders,
    and so do flows whose names look alike when they are joined; none removes another's.
    """
    with own(tmp_path, "A->B") as one:
        (one / "offsets").mkdir(parents=True)
        with own(tmp_path, "A->B") as other, own(tmp_path, "A->C") as third:
            assert len({one, other, third}) == 3
            (other / "offsets").mkdir(parents=True)
        assert (one / "offsets").is_dir()
    with own(tmp_path, "A->B") as again:
        assert again == one
        assert not again.exists()


def test_what_a_killed_process_held_is_free(tmp_path: Path) -> None:
    """The folder of a killed service is emptied and used again, so that crashes do not
    fill the disk.
    """
    program = (
        "import sys; from pathlib import Path\n"
        "from mirror.service.query import own\n"
        "with own(Path(sys.argv[1]), 'A->B') as mine:\n"
        "    (mine / 'offsets').mkdir(parents=True); print(mine, flush=True)\n"
        "    sys.stdin.read()"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holding:
        assert holding.stdout is not None
        held = Path(holding.stdout.readline().strip())
        with own(tmp_path, "A->B") as beside:
            assert beside != held
        holding.kill()
        holding.wait(10)

    with own(tmp_path, "A->B") as mine:
        assert mine == held
        assert not mine.exists()


def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    """The message names the setting, the folder and the reason."""
    (tmp_path / "file").write_text("")

    with (
        pytest.raises(MirrorError, match=r"service\.state_dir: .*/file/.*directory"),
        own(tmp_path / "file", "A->B"),
    ):
        pass
