"""Runs histories: `python -m tests.simulation --seeds 2000`, or `--seed 17` for one."""

from __future__ import annotations

import argparse
from concurrent.futures import ProcessPoolExecutor
import os
import sys
import time

from tests.simulation import histories


def main() -> int:
    """0 if all is as promised, else 1."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("--seeds", type=int, default=200, help="how many histories")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="replay one, and print its history")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    arguments = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":
        # Sets of names have the same order in every run.
        os.environ["PYTHONHASHSEED"] = "0"
        command = [sys.executable, "-m", "tests.simulation", *sys.argv[1:]]
        os.execv(sys.executable, command)
    if arguments.seed is not None:
        return _replay(arguments.seed)
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    began, wrong, records = time.perf_counter(), 0, 0
    with ProcessPoolExecutor(arguments.jobs) as pool:
        for verdict in pool.map(histories.judged, seeds, chunksize=4):
            records += verdict.records
            if verdict.wrong:
                wrong += 1
                faults = next((t for _, t in verdict.history if "faults" in t), "")
                print(f"seed {verdict.seed}: {verdict.wrong} ({faults})", flush=True)
    took = time.perf_counter() - began
    print(f"{len(seeds)} histories, {records} records, {wrong} wrong, {took:.1f} s")
    return 1 if wrong else 0


def _replay(seed: int) -> int:
    verdict = histories.run(seed)
    for at, text in verdict.history:
        print(f"{at:10.4f} {text}")
    print(f"seed {seed}: {verdict.wrong or 'as promised'}")
    return 1 if verdict.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
