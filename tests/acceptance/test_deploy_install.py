"""The image's own steps and entry point, in a plain folder: no Docker is needed.

What the image adds is Debian's packages, and a file system that is read-only. Here the
folder is, and it runs as a user that has no name.
"""

from __future__ import annotations

import os
from pathlib import Path
import shutil
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING

import pytest

import mirror
from mirror.host import require_java
from tests.harness.admin import create_topic
from tests.harness.load import NumberedLoad
from tests.harness.witness import assert_exactly_once, order_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import Clusters

pytestmark = [pytest.mark.acceptance, pytest.mark.full, pytest.mark.timeout(900)]

ROOT = Path(mirror.__file__).parents[1]
_IMAGE = ROOT / "deploy" / "image"
_NOBODY = "123456"


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    """What the image has under /opt/mirror, elsewhere; others may not write to it."""
    if shutil.which("tini") is None or not list(Path("/usr/lib").glob("*/libnss_wr*")):
        pytest.skip("no tini or libnss-wrapper: install Debian's packages of that name")
    if os.geteuid() != 0:
        pytest.skip("only root can become a user without a name")
    python = _python_for_all()
    folder = Path(tempfile.mkdtemp(prefix="mirror-image-"))
    try:
        folder.chmod(0o755)
        source = folder / "source"
        (source / "deploy").mkdir(parents=True)
        for name in ("requirements.runtime.lock", "pyproject.toml", "README.md"):
            shutil.copy(ROOT / name, source / name)
        without = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / "mirror", source / "mirror", ignore=without)
        shutil.copytree(_IMAGE, source / "deploy" / "image")
        installed = folder / "opt"
        for step in ("dependencies", "package"):
            subprocess.run(
                ["deploy/image/install.sh", step, str(installed)],
                cwd=source,
                check=True,
                timeout=600,
                env={**_without_path(), "PYTHON": str(python)},
            )
        shutil.rmtree(source)
        shutil.copy(_IMAGE / "entrypoint.sh", folder / "entrypoint.sh")
        (folder / "work").mkdir()
        (folder / "work").chmod(0o777)
        yield installed
    finally:
        shutil.rmtree(folder)


def _python_for_all() -> Path:
    """A Python that is new enough, has venv, and is readable for all users."""
    for python in (Path(os.path.realpath(sys.executable)), Path("/usr/bin/python3")):
        if all(parent.stat().st_mode & 0o001 for parent in python.parents):
            ask = "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))"
            if subprocess.run([python, "-c", ask], check=False).returncode == 0:
                return python
    pytest.skip("no Python 3.11 with venv where others than root may go")


def _without_path() -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}


def as_nobody(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The entry point, as the image starts it, by a user without a name."""
    work = home.parent / "work"
    [packages] = (home / "lib").glob("python3*/site-packages")
    variables = {
        "PATH": f"{home / 'bin'}:{os.environ['PATH']}",
        "JAVA_HOME": str(require_java().resolve().parents[1]),
        "SPARK_HOME": str(packages / "pyspark"),
        "PYSPARK_PYTHON": str(home / "bin" / "python"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "APP_HOME": str(home),
        "APP_WORK": str(work),
        "HOME": str(work),
        "TMPDIR": str(work),
        "NUMBA_CACHE_DIR": str(work / "kernels"),
        "NUMBA_CPU_NAME": "generic",
        "MIRROR_SERVICE__state_dir": str(work / "state"),
    }
    return subprocess.run(
        [
            *("setpriv", f"--reuid={_NOBODY}", "--regid=0", "--clear-groups"),
            *(str(home.parent / "entrypoint.sh"), *arguments),
        ],
        cwd=work,
        env=variables,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


def test_any_user_may_run_it(home: Path) -> None:
    """A user id without a name, as platforms choose it, gets the locked versions."""
    ended = as_nobody(home, "version")

    assert (ended.returncode, ended.stderr) == (0, "")
    assert f"mirror        {mirror.__version__}" in ended.stdout


def test_it_copies(
    home: Path, clusters: Clusters, topic_name: str, tmp_path: Path
) -> None:
    """`mirror run --once` as that user, with Spark, copies what is there; kernels are
    those that were compiled with the image, and nothing is written outside its working
    folder.
    """
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    create_topic(source, topic_name, 2)
    load = NumberedLoad(source, topic_name, 2)
    load.send(2_000)
    work = home.parent / "work"
    config = work / "mirror.yaml"
    config.write_text(
        f"clusters:\n"
        f"  A: {{bootstrap_servers: '{source}'}}\n"
        f"  B: {{bootstrap_servers: '{target}'}}\n"
        f"flows:\n"
        f"  A->B: {{topics: ['{topic_name}'], tasks: 1}}\n"
        f"service: {{http_port: 0}}\n"
    )
    config.chmod(0o644)
    before = _files(home)

    checked = as_nobody(home, "check", "-c", str(config))
    ended = as_nobody(home, "run", "--once", "-c", str(config))

    assert checked.returncode == 0, checked.stderr
    assert topic_name in checked.stdout
    assert ended.returncode == 0, ended.stderr
    assert_exactly_once(order_of(target, f"A.{topic_name}"), load.order)
    assert _files(home) == before
    compiled = _contents(home / "kernels")
    assert compiled
    assert _contents(work / "kernels") == compiled


def _files(folder: Path) -> dict[Path, float]:
    return {p: p.stat().st_mtime for p in folder.rglob("*") if p.is_file()}


def _contents(folder: Path) -> dict[Path, bytes]:
    return {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*.nb?")}
