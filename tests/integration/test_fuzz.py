"""Whatever bytes come, they are right or damaged: every decoder under mutated input.

The cases run in a process of their own (`tests.fuzz`), so that a crash, a hang and
growing memory are findings like any other. Every run has other cases.
`MIRROR_TEST_FUZZ_CASES` makes it run longer than 25,000 cases, or 200,000 of `full`,
`MIRROR_TEST_FUZZ_SEED` chooses them; a failure says how to repeat the case it was found
in.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
import subprocess
import sys
import time
from typing import Any

import psutil
import pytest

from mirror.playground.jars import cache_folder
from mirror.records import batch
from tests import fuzz
from tests.harness.waiting import deadline_in

pytestmark = pytest.mark.integration

_CASES = int(os.environ.get("MIRROR_TEST_FUZZ_CASES", "0"))
_SEED = int(os.environ.get("MIRROR_TEST_FUZZ_SEED", "0")) or time.time_ns() >> 20
_CHECKED_CASES = 10_000
_HANG_SECONDS = 20.0
"""Of CPU: a case takes less than a millisecond, and nothing in it waits."""
_RUN_SECONDS = 600.0
"""For a run that waits after all; loops may be compiled first."""


def run(tmp_path: Path, cases: int, *flags: str, **environment: str) -> dict[str, Any]:
    """Run this many cases; fail with what was found, and with the case's number."""
    state = tmp_path / "state"
    state.write_bytes(fuzz.STATE.pack(-1, 0.0))
    command = [
        *(sys.executable, "-m", "tests.fuzz", "--state", str(state)),
        *("--seed", str(_SEED), "--cases", str(cases), *flags),
    ]
    with (tmp_path / "out").open("w+b") as out:
        process = subprocess.Popen(
            command, stdout=out, stderr=out, env={**os.environ, **environment}
        )
        deadline = deadline_in(_RUN_SECONDS)
        hangs = False
        while not hangs:
            try:
                process.wait(1.0)
                break
            except subprocess.TimeoutExpired:
                used = psutil.Process(process.pid).cpu_times()
                number, before = fuzz.STATE.unpack(state.read_bytes())
                spent = used.user + used.system - before if number >= 0 else 0.0
                hangs = spent > _HANG_SECONDS or time.monotonic() > deadline
        if hangs:
            process.kill()
        code = process.wait()
        out.seek(0)
        said = out.read().decode(errors="replace")
    number, _ = fuzz.STATE.unpack(state.read_bytes())
    if hangs or code:
        how = "hangs" if hangs else f"ends with {code}"
        pytest.fail(
            f"case {number} of seed {_SEED} {how}; again: python -m tests.fuzz "
            f"--seed {_SEED} --first {number} --cases 1\n{said[-4000:]}"
        )
    found: dict[str, Any] = json.loads(said.splitlines()[-1])
    return found


@pytest.mark.parametrize(
    "cases", [25_000, pytest.param(200_000, marks=pytest.mark.full)]
)
def test_no_bytes_do_harm(tmp_path: Path, cases: int) -> None:
    """Mutated batches, answers and records of mirror's own topics are read right or
    refused as damaged: nothing crashes, hangs, raises another error, reads outside a
    batch or takes memory; most inputs are neither all refused nor all accepted.
    """
    cases = _CASES or cases
    found = run(tmp_path, cases)
    print(f"fuzz, seed {_SEED}: {found}")
    assert found["cases"] == cases
    assert 0.2 < found["refused"] / cases < 0.8


def _checked_loops() -> Path:
    """Where loops that check every index stay compiled: it takes ten times as long as
    the test, and numba's cache does not tell them from the others.
    """
    loops = sorted(Path(batch.__file__).parent.glob("*.py"))
    content = b"".join(path.read_bytes() for path in loops)
    return cache_folder() / f"checked-{hashlib.sha256(content).hexdigest()[:12]}"


@pytest.mark.full
def test_no_index_leads_out_of_an_array(tmp_path: Path) -> None:
    """The same with fewer cases, and loops compiled to check every index."""
    found = run(
        tmp_path, _CHECKED_CASES, "--checked", NUMBA_BOUNDSCHECK="1",
        NUMBA_CACHE_DIR=str(_checked_loops()),
    )  # fmt: skip
    print(f"fuzz with bounds checked, seed {_SEED}: {found}")
    assert found["cases"] == _CHECKED_CASES
