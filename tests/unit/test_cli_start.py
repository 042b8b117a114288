"""How much of a core the command takes before it knows what it was asked for."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.unit

_CODE = """
import atexit, json, os, sys, time
rests = []
time.sleep = lambda seconds: rests.append("mirror.cli.drill" in sys.modules)
before = os.nice(0)
atexit.register(lambda: print(json.dumps([os.nice(0) - before, rests])))
from mirror.cli.start import main
main()
"""


def begun(*command: str) -> tuple[int, list[bool]]:
    """By how much the command lowered its priority, and for each of its rests whether
    the command's own module was there already.
    """
    ended = subprocess.run(
        [sys.executable, "-c", _CODE, *command],
        capture_output=True,
        text=True,
        check=False,
    )
    nice, rests = json.loads(ended.stdout.splitlines()[-1])
    return nice, rests


def test_a_rehearsal_gives_way_from_its_first_module_on() -> None:
    """It rests before the command's own module is there, and between those that this
    one loads, at a lower priority.
    """
    nice, rests = begun("drill", "A->B", "-c", "/no/such/file")

    assert nice == 10
    assert {*rests} == {False, True}


@pytest.mark.parametrize(
    "command",
    [
        ["drill", "--help"],
        ["drill", "A->B", "--canary", "-c", "/no/such/file"],
        ["switch", "A->B", "-c", "/no/such/file"],
    ],
    ids=["help", "canary", "switch"],
)
def test_what_somebody_waits_for_does_not(command: list[str]) -> None:
    """Help, a canary and all other commands take what they need."""
    assert begun(*command) == (0, [])
