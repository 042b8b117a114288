"""Programs that some tests need and that `make install` does not install.

A test says `@pytest.mark.needs("promtool")`; tests/conftest.py skips it where `missing`
gives a reason, or fails it where MIRROR_TEST_REQUIRE names the tool, as in "promtool
helm browser registry". `path` finds a program on the PATH, or in the cache folder's
`bin`. `python -m tests.tools` installs what is missing; `--hide FOLDER` fills a folder
that serves as a PATH without any of these programs.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from importlib import invalidate_caches
from importlib.util import find_spec
import os
from pathlib import Path
import shutil
import subprocess
import sys
import tempfile

from tests.harness import registry_process as registry

REQUIRE = "MIRROR_TEST_REQUIRE"
"""The variable with the tools, parted by spaces, without which tests fail."""

_ROOT = Path(__file__).parents[1]
_HELM = "helm.sh/helm/v3/cmd/helm@v3.19.2"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """What a test needs: programs, and where they come from."""

    programs: tuple[str, ...]
    packages: tuple[str, ...] = ()
    """Debian's."""
    module: str = ""
    """One that Go builds."""
    package: str = ""
    """The package in that module, built without asking for the module's other versions,
    as `go install` does: not every proxy lists them."""
    python: str = ""
    """A package for this Python, which `lock` pins."""
    lock: str = ""

    @property
    def lines(self) -> list[str]:
        """The commands that install it."""
        if self.package:
            return ["python -m tests.tools, with Go"]
        if self.module:
            return [f"GOBIN={_bin()} go install {self.module}"]
        apt = f"apt-get install {' '.join(self.packages)}"
        return [apt, " ".join(_pip(self.lock))] if self.lock else [apt]


TOOLS = {
    "promtool": Tool(programs=("promtool", "prometheus"), packages=("prometheus",)),
    "helm": Tool(programs=("helm",), module=_HELM),
    "browser": Tool(
        programs=("chromium", "chromedriver"), packages=("chromium", "chromium-driver")
    ),
    "kerberos": Tool(
        programs=("krb5kdc", "kadmin.local", "kdb5_util"),
        packages=(
            *("krb5-kdc", "krb5-admin-server"),
            *("libkrb5-dev", "gcc", "libc6-dev", "python3-dev"),
        ),
        python="gssapi",
        lock="requirements.kerberos.lock",
    ),
    "faults": Tool(
        programs=("gcc", "iptables", "strace"),
        packages=("gcc", "libc6-dev", "iptables", "strace"),
    ),
    "registry": Tool(
        programs=(registry.AXONOPS_PROGRAM,),
        module=registry.AXONOPS_MODULE,
        package=registry.AXONOPS_PACKAGE,
    ),
    "pushgateway": Tool(
        programs=("prometheus-pushgateway",), packages=("prometheus-pushgateway",)
    ),
}
_OTHER_NAMES = {"chromium": ("chromium-browser",)}


def path(program: str) -> str:
    """Where a program is; empty if it is nowhere."""
    for name in (program, *_OTHER_NAMES.get(program, ())):
        if found := shutil.which(name) or shutil.which(name, path=str(_bin())):
            return found
    return ""


def missing(tool: str) -> str:
    """Why tests with this tool cannot run, and what installs it; empty if they can."""
    wanted = TOOLS[tool]
    lacking = [name for name in wanted.programs if not path(name)]
    if wanted.python and find_spec(wanted.python) is None:
        lacking.append(f"Python package {wanted.python}")
    if not lacking:
        return ""
    lines = " && ".join(wanted.lines)
    return f"no {' and no '.join(lacking)}: make tools, or {lines}"


def required() -> frozenset[str]:
    """The tools without which tests fail instead of being skipped.

    Raises:
        ValueError: the variable names something else.
    """
    named = frozenset(os.environ.get(REQUIRE, "").split())
    if unknown := sorted(named - TOOLS.keys()):
        raise ValueError(
            f"{REQUIRE} names {' and '.join(unknown)}; it can name {', '.join(TOOLS)}"
        )
    return named


def install() -> list[str]:
    """Install what is missing, where that can be done; returns what to do by hand."""
    advice = []
    for name, tool in TOOLS.items():
        if missing(name):
            try:
                _install(tool)
            except (OSError, subprocess.CalledProcessError) as error:
                print(f"{name}: {error}", file=sys.stderr)
        if reason := missing(name):
            advice.append(reason.replace("make tools, or ", ""))
    return advice


def _install(tool: Tool) -> None:
    if tool.package and shutil.which("go"):
        _build(tool)
    elif tool.module and shutil.which("go"):
        environ = {**os.environ, "GOBIN": str(_bin())}
        subprocess.run(["go", "install", tool.module], check=True, env=environ)
    if tool.packages and os.geteuid() == 0 and shutil.which("apt-get"):
        environ = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for words in (
            ("update", "-qq"),
            ("install", "-y", "-qq", "--no-install-recommends", *tool.packages),
        ):
            subprocess.run(
                ["apt-get", *words], check=True, env=environ, stdout=subprocess.DEVNULL
            )
    if tool.lock and all(map(path, tool.programs)):  # it is built with their headers
        subprocess.run(_pip(tool.lock), check=True, cwd=_ROOT)
        invalidate_caches()


def _pip(lock: str) -> list[str]:
    return [
        *(sys.executable, "-m", "pip", "install", "--quiet"),
        *("--disable-pip-version-check", "--require-hashes", "-r", lock),
    ]


def _build(tool: Tool) -> None:
    module, _, version = tool.module.partition("@")
    [program] = tool.programs
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "go.mod").write_text(
            f"module tools\n\ngo 1.26\n\nrequire {module} {version}\n"
        )
        command = ("go", "build", "-mod=mod", "-o", str(_bin() / program))
        subprocess.run([*command, f"{module}/{tool.package}"], check=True, cwd=folder)


def hide(folder: Path) -> None:
    """Link every program on the PATH into the folder, except those of the tools."""
    hidden = {name for tool in TOOLS.values() for name in tool.programs}
    hidden.update(name for names in _OTHER_NAMES.values() for name in names)
    folder.mkdir(parents=True)
    for place in map(Path, os.environ["PATH"].split(os.pathsep)):
        for program in place.iterdir() if place.is_dir() else ():
            link = folder / program.name
            if program.name not in hidden and not link.is_symlink():
                link.symlink_to(program)


def _bin() -> Path:
    cache = os.environ.get("MIRROR_CACHE") or Path.home() / ".cache" / "mirror"
    return Path(cache) / "bin"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.tools")
    parser.add_argument("--hide", type=Path, metavar="FOLDER")
    folder = parser.parse_args().hide
    if folder is not None:
        hide(folder)
        return 0
    advice = install()
    for name, tool in TOOLS.items():
        for program in tool.programs:
            print(f"{name}: {path(program) or 'missing'}")
    for each in advice:
        print(f"Not installed: {each}", file=sys.stderr)
    return 1 if advice else 0


if __name__ == "__main__":
    sys.exit(main())
