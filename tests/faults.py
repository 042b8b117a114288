"""Writes what the fault matrix found into docs/explanation/failures.md.

`python -m tests.faults FILE` reads pytest's JUnit file, in which each cell of
tests/acceptance/test_fault_matrix.py leaves its outcome. Rows of cells that did not run
stay; those of cells that are gone are left out. `make faults` runs it.
"""

from __future__ import annotations

import json
import sys
from typing import Any
from xml.etree import ElementTree as ET

from tests.acceptance.test_fault_matrix import CELLS
from tests.harness.pages import ROOT

PAGE = ROOT / "docs" / "explanation" / "failures.md"
BEGIN, END = "<!-- make faults writes this table -->\n", "<!-- end of the table -->"
_FOLLOW = {"MirrorReplicationLagGrowing", "MirrorLagBudgetBurn"}
"""Alerts that every lag brings."""
_HEAD = """
| Fault | What status says | Alerts, if it lasts | Seconds until all is copied |
|---|---|---|---|
"""


def rows(page: str) -> dict[str, str]:
    """The page's rows, by their faults."""
    table = page.partition(BEGIN)[2].partition(END)[0]
    lines = [line for line in table.splitlines() if line.startswith("| ")][1:]
    return {line.split("|")[1].strip(): line for line in lines}


def row(found: dict[str, Any]) -> str:
    """A cell's outcome, as a row."""
    said = ": ".join(filter(None, (found["state"], found["reason"]))) or "nothing"
    first = sorted(set(found["alerts"]) - _FOLLOW)
    alerts = ", ".join(each.removeprefix("Mirror") for each in first)
    cells = (found["fault"], said.replace("|", r"\|"), alerts or "none")
    return f"| {' | '.join(cells)} | {found['seconds']:.0f} |"


def main(junit: str) -> None:
    page = PAGE.read_text()
    known = rows(page)
    for each in ET.parse(junit).iterfind(".//property[@name='cell']"):
        found = json.loads(each.get("value", ""))
        known[found["fault"]] = row(found)
    before, _, rest = page.partition(BEGIN)
    lines = "\n".join(known[cell.fault] for cell in CELLS if cell.fault in known)
    PAGE.write_text(f"{before}{BEGIN}{_HEAD}{lines}\n\n{END}{rest.partition(END)[2]}")


if __name__ == "__main__":
    main(sys.argv[1])
