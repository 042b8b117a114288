"""A job that copies what is there: what it leaves behind when it ends, and how."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from prometheus_client.parser import text_string_to_metric_families
import pytest

from tests.harness.admin import create_topic
from tests.harness.load import keys, producer, send
from tests.harness.service import RunningMirror, config_for
from tests.harness.witness import assert_exactly_once, order_of

if TYPE_CHECKING:
    from pathlib import Path

    from mirror.playground.cluster import PlaygroundCluster

pytestmark = [pytest.mark.integration, pytest.mark.full]

_EACH, _SIZE = 1_500, 10_000


def told(file: Path) -> dict[str, float]:
    return {
        sample.name: sample.value
        for family in text_string_to_metric_families(file.read_text())
        for sample in family.samples
    }


def test_a_job_that_is_stopped_has_not_succeeded(
    clusters: dict[str, PlaygroundCluster], topic_name: str, tmp_path: Path
) -> None:
    """A run that SIGTERM ends early, as a job's deadline does, exits with 1 and its
    metrics say so; the next one copies the rest, exits with 0 and counts what it
    copied. Every record is there once.
    """
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    create_topic(source, topic_name)
    written = keys(1, _EACH)
    send(producer(source), topic_name, written, random.Random(1).randbytes(_SIZE))
    file = tmp_path / "mirror.prom"
    options = ("--metrics-file", str(file))
    config = config_for(
        source, target, topics=[topic_name], tasks=1, max_bytes_per_second=500_000
    )
    config["clusters"]["ONCE"] = config["clusters"].pop("A")
    flow = config["flows"]["ONCE->B"] = config["flows"].pop("A->B")

    with RunningMirror(config, tmp_path, once=True, options=options) as mirror:
        mirror.wait_until(lambda status: status["flows"][0]["records"] > 0)
        assert mirror.terminate(60) == 1
    first = told(file)
    assert first["mirror_run_exit_code"] == 1
    assert 0 < first["mirror_run_copied_records"] < _EACH
    assert "mirror_run_success_timestamp_seconds" not in first

    flow["max_bytes_per_second"] = None
    with RunningMirror(config, tmp_path, once=True, options=options) as mirror:
        assert mirror.wait() == 0, mirror.log_tail()
    second = told(file)
    assert second["mirror_run_exit_code"] == 0
    copied = [each["mirror_run_copied_records"] for each in (first, second)]
    assert sum(copied) == _EACH
    assert second["mirror_run_lag_records"] == 0
    assert_exactly_once(order_of(target, f"ONCE.{topic_name}"), written)
