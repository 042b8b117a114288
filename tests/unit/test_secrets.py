"""Where secrets must not show: in tracebacks, in print, in other processes."""

from __future__ import annotations

import json
import os
from pathlib import Path
import subprocess
import sys

import pytest

from mirror.config import environment
from mirror.config.settings import HIDDEN
from mirror.service.session import _surroundings
from tests.harness.configurations import GOOD, SASL, problems, shown

pytestmark = pytest.mark.unit

SECRET = "hunter2-hunter2"
_CRASH = """
import sys, structlog
from mirror import log
log.set_up("debug", sys.argv[1])

def connect(password):
    raise RuntimeError("it failed")

try:
    connect("hunter2-" + "hunter2")
except RuntimeError:
    structlog.get_logger().exception("crash")
"""


@pytest.mark.parametrize("form", ["console", "json"])
def test_tracebacks_show_no_values(form: str) -> None:
    """A failure's traceback shows places, and no values of variables."""
    ended = subprocess.run(
        [sys.executable, "-c", _CRASH, form],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert "it failed" in ended.stderr
    assert "in connect" in ended.stderr
    assert SECRET not in ended.stderr


VARIABLES = {
    "MIRROR_CLUSTERS__A__sasl_password": SECRET,
    "MIRROR_CLUSTERS__B__SSL_KEY_PASSWORD": SECRET,
    "MIRROR_SERVICE__http_token": SECRET,
    "MIRROR_SERVICE__http_password": SECRET,
    "MIRROR_SERVICE__http_port": "1",
    "MIRROR_DEFAULTS__transform_options": "{}",
    "PASSWORD": "somebody else's",
}


def test_variables_with_secrets() -> None:
    """Variables with secrets are recognized by their settings, in any spelling."""
    assert set(environment.secrets(VARIABLES)) == set(VARIABLES) - {
        *("MIRROR_SERVICE__http_port", "PASSWORD"),
    }


def test_variables_are_kept_back_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes started meanwhile do not get them, but what is for the JVM where the
    user has set nothing. Afterwards all is as before, for a configuration that is read
    again and for hooks.
    """
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("SPARK_LOCAL_IP", raising=False)
    monkeypatch.setenv("GIVEN", "by the user")
    before = dict(os.environ)
    more = {"SPARK_LOCAL_IP": "127.0.0.1", "GIVEN": "by mirror"}
    with _surroundings(environment.secrets(os.environ), more):
        seen = json.loads(
            subprocess.run(
                [sys.executable, "-c",
                 "import json, os; print(json.dumps(dict(os.environ)))"],
                capture_output=True, check=True, timeout=60,
            ).stdout
        )  # fmt: skip
    assert SECRET not in str(seen)
    assert seen["PASSWORD"] == "somebody else's"
    assert (seen["SPARK_LOCAL_IP"], seen["GIVEN"]) == ("127.0.0.1", "by the user")
    assert dict(os.environ) == before


def test_secrets_of_the_service_are_not_shown(tmp_path: Path) -> None:
    """Stars replace the HTTP port's secrets, and those among Spark's settings that
    Spark itself hides.
    """
    service = {
        "http_token": SECRET,
        "http_username": "ops",
        "http_password": SECRET,
        "spark": {
            "spark.ssl.keyPassword": SECRET,
            "spark.hadoop.fs.s3a.access.key": SECRET,
            "spark.executor.cores": "2",
        },
    }
    found = shown(tmp_path, GOOD + f"service: {json.dumps(service)}\n")
    assert SECRET not in str(found)
    assert found["service.http_token"] == HIDDEN
    assert found["service.http_username"] == "ops"
    assert found["service.spark"] == {
        "spark.ssl.keyPassword": HIDDEN,
        "spark.hadoop.fs.s3a.access.key": HIDDEN,
        "spark.executor.cores": "2",
    }


@pytest.mark.parametrize(
    "written",
    [
        f"*{SECRET}",
        f"!{SECRET}",
        f"!!{SECRET}",
        f"!a!{SECRET}",
        f"@{SECRET}",
        f"x: {SECRET}",
        f'"{SECRET}',
        f"[{SECRET}",
        f"[{SECRET}]",
        f"{{a: {SECRET}}}",
        f"%{SECRET}",
        f"|{SECRET}",
    ],
)
def test_a_broken_file_does_not_show_its_password(tmp_path: Path, written: str) -> None:
    """Whatever YAML makes of an unquoted password, no message repeats it."""
    found = problems(tmp_path, SASL % f"sasl_password: {written}")
    assert found
    assert SECRET not in "\n".join(found)
