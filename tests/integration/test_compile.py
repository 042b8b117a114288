"""What an installation compiles once: kernels, and the archive of Spark's classes."""

from __future__ import annotations

import json
import os
from pathlib import Path
import subprocess
import sys

import pyspark
import pytest

from mirror.host import require_java
from mirror.service import archiving, session

pytestmark = pytest.mark.integration

# A small one, since the test waits for it.
_KERNEL = """
from mirror import log
from mirror.records.compiled import compiled
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
    return session.class_data_archive()


def test_java_takes_the_archive(archive: Path) -> None:
    """Spark's classes come out of the archive in a JVM that Spark's script starts with
    our options: Java would silently ignore one that does not fit.
    """
    assert str(archive) in session.class_data_options()
    options = f"{session.class_data_options()} -XX:+UseSerialGC -Xlog:class+load"
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
    assert session.class_data_options()
    monkeypatch.setenv("MIRROR_CLASS_DATA", "off")
    assert not session.class_data_options()
    monkeypatch.delenv("MIRROR_CLASS_DATA")
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "spark-core.jar").touch()
    monkeypatch.setattr(session.pyspark, "__file__", str(tmp_path / "__init__.py"))
    assert not session.class_data_options()


@pytest.mark.full
def test_an_archive_replaces_that_of_its_java_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A new archive removes the one that its Java had for other jars, what a killed
    process had begun, and those under the names of earlier releases; it keeps another
    Java's, and what a living process is making.
    """
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "spark-core.jar").touch()
    monkeypatch.setattr(session.pyspark, "__file__", str(tmp_path / "__init__.py"))
    place = session.class_data_archive()
    of_java, _, _ = place.stem.rpartition("-")
    ended = subprocess.Popen(["true"])
    ended.wait()
    kept = [f"mirror-{'0' * 12}-{'1' * 12}.jsa", f"{place.stem}.{os.getppid()}"]
    gone = [f"{of_java}-{'1' * 12}.jsa", f"{place.stem}.{ended.pid}"]
    gone += [f"mirror-{'1' * 12}.jsa"]
    for name in (*kept, *gone):
        (tmp_path / name).touch()
    assert archiving.make()
    assert not archiving.make()
    found = {each.name for each in tmp_path.glob("mirror-*")}
    assert found == {place.name, *kept}


@pytest.mark.full
def test_the_archive_needs_no_name_of_the_host(tmp_path: Path) -> None:
    """It is made on a host whose name has no address, as in a build of the image."""
    made = tmp_path / "made.jsa"
    alone = ["unshare", "--uts", "sh", "-c", 'hostname nowhere.invalid && exec "$@"']
    if subprocess.run([*alone, "-", "true"], check=False).returncode:
        pytest.skip("this user may not rename the host for one process")
    subprocess.run(
        [*alone, "-", sys.executable, "-P", "-m", archiving.__name__, made],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=200,
        check=True,
    )
    assert made.stat().st_size


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (
            {"NUMBA_CACHE_DIR": "/dev/null/kernels"},
            "NUMBA_CACHE_DIR: /dev/null/kernels cannot be written (Not a directory)",
        ),
        pytest.param(
            # Of the folders that numba tries, the one that is not there.
            {"NUMBA_CACHE_LOCATOR_CLASSES": "UserProvidedCacheLocator"},
            "compiled kernels cannot be kept: this user can write neither",
            marks=pytest.mark.full,
        ),
    ],
)
def test_nowhere_to_keep_kernels(given: dict[str, str], problem: str) -> None:
    """One sentence that names the folder to set, and exit code 2."""
    without = {k: v for k, v in os.environ.items() if k != "NUMBA_CACHE_DIR"}
    ended = subprocess.run(
        [sys.executable, "-m", "mirror", "compile"],
        env={**without, **given},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert ended.returncode == 2
    assert ended.stderr.startswith(problem)
    assert "NUMBA_CACHE_DIR" in ended.stderr
    assert len(ended.stderr.splitlines()) == 1
