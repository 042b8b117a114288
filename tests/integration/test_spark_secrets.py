"""What someone hears who listens between Spark's driver and its executors."""

from __future__ import annotations

from contextlib import ExitStack
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from mirror.playground.ports import LOOPBACK, free_ports
from tests.harness.recorder import Recorder

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.integration

_PASSWORD = "planted-passw0rd-of-the-cluster"
_BETWEEN = "127.0.0.2"
_SECRET = {"spark.authenticate.secret": "spark-s3cret"}


def executor_gets(
    folder: Path, spark: dict[str, str]
) -> tuple[subprocess.CompletedProcess[str], bytes]:
    """How the program of `lease_on_spark` ended, and what went by meanwhile."""
    ports = free_ports(2)
    service = {
        "spark_master": "local-cluster[1,1,512]",
        "spark": {
            # Executors connect to the recorders.
            "spark.driver.host": _BETWEEN,
            "spark.driver.bindAddress": LOOPBACK,
            "spark.driver.port": str(ports[0]),
            "spark.driver.blockManager.port": str(ports[1]),
            "spark.broadcast.compress": "false",
            **spark,
        },
    }
    with ExitStack() as stack:
        recorders = [
            stack.enter_context(Recorder((_BETWEEN, port), (LOOPBACK, port)))
            for port in ports
        ]
        ended = subprocess.run(
            [
                *(sys.executable, "-m", "tests.harness.lease_on_spark"),
                *(json.dumps(service), _PASSWORD),
            ],
            cwd=folder,
            env={
                **os.environ,
                "SPARK_LOCAL_IP": LOOPBACK,
                "SPARK_SCALA_VERSION": "2.13",
            },
            capture_output=True,
            text=True,
            timeout=400,
            check=False,
        )
        return ended, b"".join(bytes(recorder.heard) for recorder in recorders)


@pytest.mark.full
@pytest.mark.parametrize(
    ("spark", "heard"),
    [(_SECRET, False), ({"spark.authenticate": "false"}, True)],
    ids=["protected", "turned off"],
)
def test_who_listens_between_driver_and_executors(
    tmp_path: Path, spark: dict[str, str], *, heard: bool
) -> None:
    """An executor gets a cluster's password with its lease, and someone who records all
    that goes between it and the driver cannot read it. With Spark's protection turned
    off he can, and the log warns of it.
    """
    ended, between = executor_gets(tmp_path, spark)

    assert ended.stdout.endswith(f"[{len(_PASSWORD)}]"), ended.stderr
    assert len(between) > 10_000
    assert (_PASSWORD.encode() in between) is heard
    told = ended.stdout + ended.stderr
    assert ("Spark's protection of them is off" in told) is heard


@pytest.mark.full
def test_no_lease_without_a_secret(tmp_path: Path) -> None:
    """Without a secret no session starts, and the message says what to set."""
    ended, between = executor_gets(tmp_path, {})

    assert ended.returncode != 0
    assert "spark.authenticate.secret: Spark on local-cluster" in ended.stderr
    assert _PASSWORD.encode() not in between
