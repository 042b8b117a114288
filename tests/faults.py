"""Writes what the fault matrix found into docs/explanation/failures.md.

`python -m tests.faults FILE` reads pytest's JUnit file, in which each cell of
tests/acceptance/test_fault_matrix.py leaves its outcome. What did not run stays as it
was, and empty if it never ran. `make faults` runs it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
import json
import re
import sys
from typing import Any
from xml.etree import ElementTree as ET

from tests.acceptance.test_fault_matrix import FAULTS
from tests.harness.fault_cells import SHAPES
from tests.harness.pages import ROOT

PAGE = ROOT / "docs" / "explanation" / "failures.md"
BEGIN, END = "<!-- make faults writes this table -->\n", "<!-- end of the table -->"
_FOLLOW = {"MirrorReplicationLagGrowing", "MirrorLagBudgetBurn"}
"""Alerts that every lag brings."""
_TITLES = ("Fault", "What status says", "Alerts, if it lasts", *SHAPES, "MirrorMaker 2")
HEAD = f"\n| {' | '.join(_TITLES)} |\n{'|---' * len(_TITLES)}|\n"
_BAR = re.compile(r"(?<!\\)\|")


@dataclass(kw_only=True)
class Row:
    """What the page says of a fault."""

    said: str = ""
    alerts: str = ""
    seconds: dict[str, str] = field(default_factory=dict)
    """By shape; or that it stops, or why the fault is not tried there."""
    mm2: str = ""

    def take(self, found: dict[str, Any]) -> None:
        """The outcome of mirror's trial."""
        took = "stops" if found["stops"] else f"{found['seconds']:.0f}"
        self.seconds[found["shape"]] = took
        if found["shape"] != SHAPES[0]:
            return
        said = ": ".join(filter(None, (found["state"], found["reason"]))) or "nothing"
        first = sorted(set(found["alerts"]) - _FOLLOW)
        self.said = said.replace("|", r"\|")
        self.alerts = ", ".join(n.removeprefix("Mirror") for n in first) or "none"

    def line(self, fault: str) -> str:
        took = (self.seconds.get(shape, "") for shape in SHAPES)
        return f"| {' | '.join((fault, self.said, self.alerts, *took, self.mm2))} |"


def rows(page: str) -> dict[str, Row]:
    """The page's rows, by their faults."""
    table = page.partition(BEGIN)[2].partition(END)[0]
    lines = [line for line in table.splitlines() if line.startswith("| ")][1:]
    found = {}
    for line in lines:
        fault, said, alerts, *took, mm2 = map(str.strip, _BAR.split(line)[1:-1])
        seconds = dict(zip(SHAPES, took, strict=True))
        found[fault] = Row(said=said, alerts=alerts, seconds=seconds, mm2=mm2)
    return found


def main(junit: str) -> None:
    page = PAGE.read_text()
    before = rows(page)
    known = {cell.fault: before.get(cell.fault, Row()) for cell in FAULTS}
    for each in ET.parse(junit).iterfind(".//property"):
        if (kind := each.get("name")) not in {"cell", "mm2"}:
            continue
        found = json.loads(each.get("value", ""))
        row = known[found["fault"]]
        if kind == "cell":
            row.take(found)
        else:
            row.mm2 = found["found"]
    for cell in FAULTS:
        known[cell.fault].seconds |= {
            shape: cell.alone for shape in SHAPES if not cell.strikes(shape)
        }
        if not cell.strikes_any:
            known[cell.fault].mm2 = "-"
    lines = "\n".join(row.line(fault) for fault, row in known.items())
    start, _, rest = page.partition(BEGIN)
    PAGE.write_text(f"{start}{BEGIN}{HEAD}{lines}\n\n{END}{rest.partition(END)[2]}")


if __name__ == "__main__":
    main(sys.argv[1])
