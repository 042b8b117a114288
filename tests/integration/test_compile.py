"""What an installation compiles once: kernels, and the archive of Spark's classes."""

from __future__ import annotations

import json
import os
from pathlib import Path
import subprocess
import sys

import pyspark
import pytest

from mirror.driver import archiving, class_data
from mirror.host import require_java

pytestmark = pytest.mark.integration

# A small one, since the test waits for it.
_KERNEL = """
from mirror import log
from mirror.batches.compiled import compiled
log.set_up("info", "json")

@compiled("int64(int64)")
def same(number):
    return number
"""


def test_who_must_compile_says_so_once(tmp_path: Path) -> None:
    """The first program that loads kernels from an empty cache logs one event about it,
    and the next one, which finds them there, none.
    """
    program = tmp_path / "kernel.py"
    program.write_text(_KERNEL)

    def said() -> list[str]:
        ended = subprocess.run(
            [sys.executable, program],
            env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")},
            capture_output=True,
            text=True,
            timeout=200,
            check=True,
        )
        return [json.loads(line)["event"] for line in ended.stderr.splitlines()]

    (first,) = said()
    assert "mirror compile" in first
    assert not said()


@pytest.fixture(scope="module")
def archive() -> Path:
    """What `make install` has made, or now."""
    archiving.make()
    return class_data.place()


def test_java_takes_the_archive(archive: Path) -> None:
    """Spark's classes come out of the archive in a JVM that Spark's script starts with
    our options: Java would silently ignore one that does not fit.
    """
    assert str(archive) in class_data.options()
    options = f"{class_data.options()} -XX:+UseSerialGC -Xlog:class+load"
    told = subprocess.run(
        [
            Path(pyspark.__file__).parent / "bin" / "spark-submit",
            *("--conf", f"spark.driver.defaultJavaOptions={options}"),
            *("--class", "any.Main", "spark-internal", "--version"),
        ],
        env={**os.environ, "JAVA_HOME": str(require_java().resolve().parents[1])},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    ).stdout
    assert "org.apache.spark.SparkConf source: shared objects file (top)" in told


@pytest.mark.full
def test_an_archive_of_other_jars_is_not_used(
    archive: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Where Spark's jars are other ones, as after an upgrade, there is no archive until
    one is made; nor where it is switched off.
    """
    assert class_data.options()
    monkeypatch.setenv("MIRROR_CLASS_DATA", "off")
    assert not class_data.options()
    monkeypatch.delenv("MIRROR_CLASS_DATA")
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "spark-core.jar").touch()
    monkeypatch.setattr(class_data.pyspark, "__file__", str(tmp_path / "__init__.py"))
    assert not class_data.options()
