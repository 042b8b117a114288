"""A service's counters, as Prometheus reads them.

`counter` is the sum of the series that have some labels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families

if TYPE_CHECKING:
    from tests.harness.service import RunningMirror


def counter(mirror: RunningMirror, name: str, **labels: str) -> float:
    """Zero if there is no such series."""
    with urlopen(f"{mirror.url}/metrics") as answer:
        text = answer.read().decode()
    return sum(
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    )
