"""How a quantity of a result is shown, declared where it is measured.

Main type: `Column`. Every result class has a class variable `COLUMNS`, in the order in
which people want to read them. A result's other fields are only in the JSON.
"""

from __future__ import annotations

from typing import Literal, NamedTuple


class Column(NamedTuple):
    field: str
    """Of the result; a number."""
    title: str
    """With the unit."""
    format: str
    """As in `format(value, ...)`."""
    better: Literal["more", "less"] | None = None
    """None: worth a look but no contest, so it gets neither ratio nor chart."""

    def show(self, value: float) -> str:
        return format(value, self.format)
