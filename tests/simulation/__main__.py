"""Runs histories: `python -m tests.simulation --seeds 2000`, or `--seed 17` for one."""

from __future__ import annotations

import argparse
import sys
import time

from tests.simulation import histories


def main() -> int:
    """0 if all is as promised, else 1."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int)
    arguments = parser.parse_args()
    seeds = (
        range(arguments.first, arguments.first + arguments.seeds)
        if arguments.seed is None
        else [arguments.seed]
    )
    began, wrong, records = time.perf_counter(), 0, 0
    for seed in seeds:
        verdict = histories.run(seed)
        records += verdict.records
        if arguments.seed is not None:
            for at, text in verdict.history:
                print(f"{at:10.4f} {text}")
        if verdict.wrong:
            wrong += 1
            print(f"seed {seed}: {verdict.wrong}")
    took = time.perf_counter() - began
    print(f"{len(seeds)} histories, {records} records, {wrong} wrong, {took:.1f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
