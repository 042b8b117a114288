"""The command behind `make bench`: `python -m tests.benchmarks`."""

from __future__ import annotations

from contextlib import closing, suppress
from pathlib import Path
import tempfile
from typing import TYPE_CHECKING, Annotated

from rich.console import Console
import typer

from tests.benchmarks import report, runner
from tests.benchmarks.peers.known import PEERS
from tests.benchmarks.quiet import LOUD_CORES
from tests.benchmarks.scenarios import SCENARIOS, adjusted

if TYPE_CHECKING:
    from tests.benchmarks.bench import Scenario

_RESULTS = Path("artifacts/bench")
_TABLE_WIDTH = 120


def main(
    *,
    scenario: Annotated[
        str, typer.Option(help=f"{', '.join(SCENARIOS)}; separate several by commas.")
    ] = ",".join(SCENARIOS),
    peers: Annotated[
        str,
        typer.Option(
            help=f"{', '.join(PEERS)}; separate several by commas. Default: each"
            " scenario's own."
        ),
    ] = "",
    repeats: Annotated[
        int, typer.Option(min=1, help="Number of runs of each peer.")
    ] = 2,
    records: Annotated[
        int, typer.Option(min=0, help="Records to copy. 0: the scenario's default.")
    ] = 0,
    complete: Annotated[
        bool,
        typer.Option(
            "--complete", help="Let slow peers copy everything too, and count it."
        ),
    ] = False,
    keep: Annotated[
        Path | None,
        typer.Option(help="Empty folder for logs and data. Default: a temporary one."),
    ] = None,
) -> None:
    """Measure peers on two real clusters; writes the figures to artifacts/bench/."""
    console = Console()
    # A table that is cut off or wrapped is worse than one that needs scrolling.
    console.width = max(console.width, _TABLE_WIDTH)
    changes = {"records": records} if records else {}
    chosen = [
        adjusted(SCENARIOS[name], complete=complete, **changes)
        for name in _choose(scenario, list(SCENARIOS), option="--scenario")
    ]
    named = _choose(peers, list(PEERS), option="--peers") if peers else None
    names = _present(chosen, named, console)
    runs: list[runner.Run] = []
    with tempfile.TemporaryDirectory(prefix="mirror-bench-") as temporary:
        folder = keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        going = runner.run(chosen, names, repeats=repeats, folder=folder)
        # Keep what was measured until Ctrl-C, or an error of our own.
        try:
            with suppress(KeyboardInterrupt), closing(going):
                for run in going:
                    runs.append(run)
                    line = f"{run.scenario} {run.peer} {run.repeat}/{repeats}"
                    console.print(line, _outcome(run), markup=False, highlight=False)
        finally:
            _show(runs, chosen, data=folder, console=console)
    all_ran = len(runs) == sum(map(len, names.values())) * repeats
    if not all_ran or any(run.error for run in runs):
        raise typer.Exit(1)


def _show(
    runs: list[runner.Run], scenarios: list[Scenario], *, data: Path, console: Console
) -> None:
    summary = report.summarise(runs)
    path = report.save(
        _RESULTS, runs=runs, summary=summary, scenarios=scenarios, data=data
    )
    for table in report.tables(summary, scenarios):
        console.print(table)
    console.print(f"median, min - max, ratio to the yardstick; all runs: {path}")


def _outcome(run: runner.Run) -> str:
    if run.error:
        return f"failed: {run.error}"
    if run.other_cores > LOUD_CORES:
        return f"done, but other processes used {run.other_cores:.1f} cores"
    return "done"


def _choose(text: str, known: list[str], *, option: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        raise typer.BadParameter(
            f"{', '.join(unknown) or 'nothing'} is not of {', '.join(known)}",
            param_hint=option,
        )
    return names


def _present(
    scenarios: list[Scenario], named: list[str] | None, console: Console
) -> dict[str, list[str]]:
    """The peers of each scenario that can run here."""
    wanted = {each.name: named or list(each.peers) for each in scenarios}
    reasons = {
        name: PEERS[name].missing()
        for name in dict.fromkeys(name for names in wanted.values() for name in names)
    }
    for name, reason in reasons.items():
        if reason:
            console.print(f"without {name}: {reason}", markup=False, highlight=False)
    present = {
        scenario: [name for name in names if not reasons[name]]
        for scenario, names in wanted.items()
    }
    if not all(present.values()):
        raise typer.Exit(1)
    return present


if __name__ == "__main__":
    typer.run(main)
