"""The wrapper of deploy/spark-submit says what it lacks.

That mirror runs on a real cluster, submitted as the wrapper does it, is shown by
tests/integration/test_standalone.py.
"""

from __future__ import annotations

import os
from pathlib import Path
import subprocess

import pytest

import mirror

pytestmark = pytest.mark.acceptance

SCRIPTS = Path(mirror.__file__).parents[1] / "deploy" / "spark-submit"


@pytest.mark.parametrize(
    ("variables", "told"),
    [
        ({}, "SPARK_MASTER: say where Spark is"),
        (
            {"SPARK_MASTER": "spark://x:7077", "APP_HOME": "/nowhere"},
            "APP_HOME: there is no /nowhere/bin/spark-submit",
        ),
    ],
)
def test_wrapper_says_what_is_missing(variables: dict[str, str], told: str) -> None:
    """Started without what it needs it names that and ends with 2, not with a trace."""
    ended = subprocess.run(
        [SCRIPTS / "mirror-submit.sh", "-c", "mirror.yaml"],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": os.environ["PATH"], **variables},
    )

    assert ended.returncode == 2
    assert told in ended.stderr
