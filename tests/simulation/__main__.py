"""Runs histories: `python -m tests.simulation --seeds 2000`, or `--seed 17` for one."""

from __future__ import annotations

import argparse
from concurrent.futures import ProcessPoolExecutor
import contextlib
import functools
import gc
import os
import sys
import time

from tests.simulation import histories
from tests.simulation.mutations import MUTATIONS, OF_GROUPS, OF_SAME
from tests.simulation.recovery_mutations import OF_SWITCHES

_MUTATIONS = {
    histories.COPYING: MUTATIONS,
    histories.GROUPS: OF_GROUPS,
    histories.SAME: OF_SAME,
    histories.SWITCHES: OF_SWITCHES,
}
_EVERY = {name: made for each in _MUTATIONS.values() for name, made in each.items()}


def main() -> int:
    """0 if all is as promised, else 1."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("--seeds", type=int, default=200, help="how many histories")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument(
        "--kind", choices=histories.KINDS, default=histories.COPYING,
        help="what the histories are about",
    )  # fmt: skip
    parser.add_argument("--seed", type=int, help="replay one, and print its history")
    parser.add_argument(
        "--mutation",
        choices=[*_EVERY, "all"],
        help="make this mistake, and stop at the seed that finds it",
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    arguments = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":
        # Sets of names have the same order in every run.
        os.environ["PYTHONHASHSEED"] = "0"
        command = [sys.executable, "-m", "tests.simulation", *sys.argv[1:]]
        os.execv(sys.executable, command)
    if arguments.seed is not None:
        made = _EVERY.get(arguments.mutation, contextlib.nullcontext)
        with made():
            return _replay(arguments.seed, arguments.kind)
    if arguments.mutation is not None:
        of_kind = _MUTATIONS[arguments.kind]
        names = list(of_kind) if arguments.mutation == "all" else [arguments.mutation]
        found = [_found(name, arguments) for name in names]
        return int(not all(found))
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    began, wrong, records = time.perf_counter(), 0, 0
    with ProcessPoolExecutor(arguments.jobs, initializer=gc.freeze) as pool:
        one = functools.partial(histories.judged, kind=arguments.kind)
        for verdict in pool.map(one, seeds, chunksize=4):
            records += verdict.records
            if verdict.wrong:
                wrong += 1
                faults = next((t for _, t in verdict.history if "faults" in t), "")
                print(f"seed {verdict.seed}: {verdict.wrong} ({faults})", flush=True)
    took = time.perf_counter() - began
    print(f"{len(seeds)} histories, {records} records, {wrong} wrong, {took:.1f} s")
    return 1 if wrong else 0


def _found(name: str, arguments: argparse.Namespace) -> bool:
    """Whether any seed notices a mistake; the first one is printed."""
    began = time.perf_counter()
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    with ProcessPoolExecutor(arguments.jobs, initializer=gc.freeze) as pool:
        part = functools.partial(mutated, name, arguments.kind)
        for verdict in pool.map(part, seeds, chunksize=2):
            if verdict.wrong and (
                histories.judged(verdict.seed, kind=arguments.kind).wrong
            ):
                print(f"seed {verdict.seed} is wrong without {name}", flush=True)
            elif verdict.wrong:
                took = time.perf_counter() - began
                wrong = verdict.wrong.strip().splitlines()[-1]
                print(f"{name}: seed {verdict.seed}, {took:.1f} s: {wrong}", flush=True)
                pool.shutdown(cancel_futures=True)
                return True
    print(f"{name}: not found in {len(seeds)} seeds", flush=True)
    return False


def mutated(name: str, kind: str, seed: int) -> histories.Verdict:
    """A history with a mistake."""
    with _EVERY[name]():
        return histories.judged(seed, kind=kind)


def _replay(seed: int, kind: str) -> int:
    verdict = histories.run(seed, kind=kind)
    for at, text in verdict.history:
        print(f"{at:10.4f} {text}")
    print(f"seed {seed}: {verdict.wrong or 'as promised'}")
    return 1 if verdict.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
