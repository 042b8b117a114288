"""How a quantity of a result is shown, declared where it is measured.

Main type: `Column`. Every result class has a class variable `COLUMNS`, in reading
order. A result's other fields are only in the JSON.
"""

from __future__ import annotations

from typing import Literal, NamedTuple


class Column(NamedTuple):
    field: str
    """The result's field; a number."""
    title: str
    """Including the unit."""
    format: str
    """As in `format(value, ...)`."""
    better: Literal["more", "less"] | None = None
    """None: informative but not compared, so without ratio and chart."""

    def show(self, value: float) -> str:
        return format(value, self.format)
