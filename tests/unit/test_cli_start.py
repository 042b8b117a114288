"""How the command begins: its priority, and an interrupt that comes very early."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.unit

_CODE = """
import atexit, os
before = os.nice(0)
atexit.register(lambda: print(os.nice(0) - before))
from mirror.cli.start import main
main()
"""
_INTERRUPTED = """
import signal, sys
from mirror.cli import options, start

class Attribute:
    def __set_name__(self, _owner, _name):
        signal.raise_signal(signal.SIGINT)  # `kill` may wake another thread

def read_config(_path):
    class Loaded:
        attribute = Attribute()

options.read_config = read_config
sys.argv[1:] = ["drill", "A->B", "-c", "/no/such/file"]
start.main()
"""


def lowered(*command: str) -> int:
    """By how much the command lowers its priority."""
    ended = subprocess.run(
        [sys.executable, "-c", _CODE, *command],
        capture_output=True,
        text=True,
        check=False,
    )
    return int(ended.stdout.splitlines()[-1])


def test_a_rehearsal_gives_way() -> None:
    """What copies on this machine goes first, also while the command is loaded."""
    assert lowered("drill", "A->B", "-c", "/no/such/file") == 10


def test_an_interrupt_while_python_makes_a_class() -> None:
    """Python 3.11 makes an error of it, and the command still ends as interrupted."""
    ended = subprocess.run(
        [sys.executable, "-c", _INTERRUPTED],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (130, "interrupted\n")


@pytest.mark.parametrize(
    "command",
    [
        ["drill", "--help"],
        ["switch", "A->B", "-c", "/no/such/file"],
    ],
    ids=["help", "switch"],
)
def test_what_somebody_waits_for_does_not(command: list[str]) -> None:
    """Help and all other commands take what they need."""
    assert lowered(*command) == 0
