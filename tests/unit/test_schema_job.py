"""The job that keeps schemas in step, without registries: whose levels a look compares,
and which turns may still write.
"""

from __future__ import annotations

import pytest

from mirror.schemas.registry.values import Subject
from mirror.schemas.rules import SchemasResult, SubjectPlan
from mirror.service.schemas import SchemaJob
from mirror.status.states import SchemaState
from mirror.status.store import StatusStore
from tests.harness.configurations import configuration

pytestmark = pytest.mark.unit


def job() -> SchemaJob:
    config = configuration(
        {
            "clusters": {
                alias: {
                    "bootstrap_servers": f"{alias}:9092",
                    "schema_registry": {"url": f"http://{alias.lower()}"},
                }
                for alias in "AB"
            },
            "flows": {"A->B": {"schemas": "copy"}},
        }
    )
    return SchemaJob(config.flows["A->B"], config, store=StatusStore(("A->B",)))


def test_levels_of_all_subjects_are_compared_in_turn() -> None:
    """Some at each look, and no subject is passed over."""
    subjects = {Subject("", f"s{number}") for number in range(120)}
    made = job()
    made._report(
        SchemasResult(
            subjects=tuple(
                SubjectPlan(
                    subject=each,
                    state=SchemaState.SYNCED,
                    versions=1,
                    there=1,
                    first_id=1,
                    last_id=1,
                )
                for each in sorted(subjects)
            )
        )
    )
    looks = []
    while some := made._some_levels():
        looks.append(some)
    assert len(looks) > 1
    assert set().union(*looks) == subjects


def test_a_stopped_turn_stays_stopped_when_the_next_run_begins() -> None:
    """One that outlasts its run writes nothing more beside the new one's."""
    made = job()
    before = made._stopping
    made.stop()
    assert len(made.jobs()) == 1
    assert before.is_set()
    assert not made._stopping.is_set()
