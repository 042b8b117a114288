"""The scenarios; each module declares one or two of a kind.

`SCENARIOS` has them by the names that `--scenario` accepts, in the order in which they
run. `bench` has the protocol of a scenario.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from tests.benchmarks.scenarios.again import AGAIN
from tests.benchmarks.scenarios.backlog import BACKLOG
from tests.benchmarks.scenarios.dead_broker import DEAD_BROKERS
from tests.benchmarks.scenarios.encrypted import TLS
from tests.benchmarks.scenarios.faraway import (
    FAR_SOURCE,
    FAR_TARGET,
    SMALL_FAR_SOURCE,
    SMALL_FAR_TARGET,
)
from tests.benchmarks.scenarios.full_topics import BYTES, JSON, KILOBYTE, SMALL
from tests.benchmarks.scenarios.gap import GAP
from tests.benchmarks.scenarios.holes import HOLES, LONG_MAP
from tests.benchmarks.scenarios.hot_partition import HOT
from tests.benchmarks.scenarios.idle import IDLE
from tests.benchmarks.scenarios.many_partitions import MANY
from tests.benchmarks.scenarios.paced import AT_LEAST_ONCE, PACED
from tests.benchmarks.scenarios.proving import (
    PROVE_FAR,
    PROVE_JSON,
    PROVE_KILOBYTE,
    PROVE_SMALL,
)
from tests.benchmarks.scenarios.proving_beside import BESIDE
from tests.benchmarks.scenarios.registered import REQUIRE, REQUIRE_SMALL
from tests.benchmarks.scenarios.reread import REREAD
from tests.benchmarks.scenarios.restart import RESTART, WORKERS
from tests.benchmarks.scenarios.start import START
from tests.benchmarks.scenarios.tiny_batches import TINY

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.benchmarks.bench import Scenario

_ALL: Iterable[Scenario] = (
    *(SMALL, KILOBYTE, JSON, BYTES, TINY),
    *(START, IDLE, RESTART, WORKERS, AGAIN),
    *DEAD_BROKERS,
    *(PACED, AT_LEAST_ONCE, GAP),
    *(MANY, HOT, BACKLOG, REREAD),
    *(FAR_SOURCE, FAR_TARGET, SMALL_FAR_SOURCE, SMALL_FAR_TARGET, TLS),
    *(PROVE_SMALL, PROVE_KILOBYTE, PROVE_JSON, PROVE_FAR),
    *(HOLES, LONG_MAP, BESIDE),
    *(REQUIRE, REQUIRE_SMALL),
)
SCENARIOS: dict[str, Scenario] = {scenario.name: scenario for scenario in _ALL}


def adjusted(scenario: Scenario, **changes: Any) -> Scenario:
    """With other values in those of the fields that it has."""
    known = {field.name for field in fields(scenario)}
    return replace(
        scenario, **{name: value for name, value in changes.items() if name in known}
    )
