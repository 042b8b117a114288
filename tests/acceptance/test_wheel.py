"""The wheel in an empty environment of each supported Python, away from the source."""

from __future__ import annotations

import os
from pathlib import Path
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import mirror
from tests.harness.admin import create_topic

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.conftest import Clusters

pytestmark = [pytest.mark.acceptance, pytest.mark.full, pytest.mark.timeout(1800)]

ROOT = Path(mirror.__file__).parents[1]
PYTHONS = ("3.11", "3.12", "3.13")
"""Those that docs/reference/versions.md names."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `make wheel` builds, elsewhere."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [
        *(sys.executable, "-m", "hatchling", "build"),
        *("--target", "wheel", "--directory", str(folder)),
    ]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, timeout=120)
    [built] = folder.glob("*.whl")
    return built


def python(version: str) -> str:
    """An interpreter of that version that can make environments, or a skip."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for found in (
        *sorted(pyenv.glob(f"{version}*/bin/python{version}")),
        shutil.which(f"python{version}"),
    ):
        if found is not None:
            ask = [str(found), "-c", "import venv, ensurepip"]
            if subprocess.run(ask, capture_output=True, check=False).returncode == 0:
                return str(found)
    pytest.skip(f"no Python {version} with venv")


@pytest.mark.parametrize("version", PYTHONS)
def test_the_wheel_is_all_it_takes(
    version: str, wheel: Path, clusters: Clusters, topic_name: str, tmp_path: Path
) -> None:
    """With the locked dependencies and the wheel, the commands work from any folder,
    and nothing comes from the source tree: `mirror check` finds what `mirror compile`
    has made, and `mirror demo` counts each record once to its end.
    """
    home = tmp_path / "home"
    subprocess.run([python(version), "-m", "venv", str(home)], check=True, timeout=600)
    pip = [str(home / "bin" / "pip"), "install", "--quiet", "--no-compile"]
    lock = str(ROOT / "requirements.runtime.lock")
    for words in (["--require-hashes", "-r", lock], ["--no-deps", str(wheel)]):
        subprocess.run([*pip, *words], check=True, timeout=900)
    create_topic(clusters["a"].bootstrap, topic_name, 2)
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "mirror.yaml").write_text(
        f"clusters:\n"
        f"  A: {{bootstrap_servers: '{clusters['a'].bootstrap}'}}\n"
        f"  B: {{bootstrap_servers: '{clusters['b'].bootstrap}'}}\n"
        f"flows:\n"
        f"  A->B: {{topics: ['{topic_name}'], replication_factor: 1}}\n"
    )

    def run(*words: str) -> str:
        return _said([str(home / "bin" / "mirror"), *words], folder)

    assert "demo" in run("--help")
    assert "--records" in run("demo", "--help")
    told = run("version")
    assert f"mirror        {mirror.__version__}" in told
    assert version in told
    compiled = run("compile")
    assert "kernels are ready" in compiled
    assert "the archive is made" in compiled
    checked = run("check", "-c", "mirror.yaml")
    assert topic_name in checked
    assert "compiling" not in checked
    shown = run("demo", "--records", "3000")
    assert "consumer: exactly once" in shown
    assert "goes on at B, at the very next record" in shown
    assert "with exit code 0" in shown
    [packages] = (home / "lib").glob("python3*/site-packages")
    shipped = {path.relative_to(packages) for path in (packages / "mirror").rglob("*")}
    assert Path("mirror/observing/page") in shipped
    assert not (packages / "tests").exists()


@pytest.mark.parametrize("installer", ["pip", "pipx", "uv"])
def test_each_installer_brings_the_command(
    installer: str, wheel: Path, tmp_path: Path
) -> None:
    """`pip install`, `pipx install` and `uv tool install` of the wheel, as the page
    says and without a lock, give the command and versions that work together: `mirror
    demo` counts each record once.
    """
    tools = tmp_path / "tools"
    made = {
        "HOME": str(tmp_path),
        "PIPX_HOME": str(tmp_path / "pipx"),
        "PIPX_BIN_DIR": str(tmp_path / "bin"),
        "PIPX_DEFAULT_PYTHON": python("3.11"),
        "UV_TOOL_DIR": str(tmp_path / "uv"),
        "UV_TOOL_BIN_DIR": str(tmp_path / "bin"),
        "UV_CACHE_DIR": str(tmp_path / "uv-cache"),
        "UV_PYTHON": python("3.11"),
        "UV_PYTHON_DOWNLOADS": "never",
    }
    subprocess.run([python("3.11"), "-m", "venv", str(tools)], check=True, timeout=600)
    command = tmp_path / "bin" / "mirror"
    if installer == "pip":
        command = tools / "bin" / "mirror"
        _said([str(tools / "bin" / "pip"), "install", str(wheel)], tmp_path, made)
    else:
        _said([str(tools / "bin" / "pip"), "install", installer], tmp_path, made)
        words = ["install"] if installer == "pipx" else ["tool", "install"]
        _said([str(tools / "bin" / installer), *words, str(wheel)], tmp_path, made)
    assert f"mirror        {mirror.__version__}" in _said(
        [str(command), "version"], tmp_path, made
    )
    shown = _said([str(command), "demo", "--records", "3000"], tmp_path, made)
    assert "consumer: exactly once" in shown
    assert "with exit code 0" in shown


def _said(
    command: list[str], folder: Path, more: Mapping[str, str] | None = None
) -> str:
    """What a command prints, on both outputs; it has to end well."""
    without = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    ended = subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
        env={**without, **(more or {})},
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout + ended.stderr
