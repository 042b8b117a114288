"""Kafka's own jars, fetched once and then used offline.

Main functions: `kafka_jars`, which returns the class path for a kind of program, and
`fetched`, a folder with the files of other programs. The Ivy inside the pyspark wheel
fetches them, so neither Maven nor Docker is needed; MIRROR_IVY_SETTINGS names a
settings file for a company's own repository. Several test runs share `cache_folder`, so
files are created there under `cache_lock` and renamed into place.
"""

from __future__ import annotations

from contextlib import contextmanager
import fcntl
from importlib.util import find_spec
import os
from pathlib import Path
import subprocess
from typing import TYPE_CHECKING, Literal

from mirror.errors import PlaygroundError
from mirror.host import require_java

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

KAFKA_VERSION = "4.3.1"
SLF4J_VERSION = "2.0.17"

_ATTEMPTS = 3

JarKind = Literal["broker", "mm2", "mirror-client", "tools"]


_MODULES: dict[JarKind, tuple[str, ...]] = {
    "broker": ("kafka_2.13",),
    "mm2": ("connect-mirror", "connect-runtime"),
    "mirror-client": ("connect-mirror-client", "kafka-clients"),
    "tools": ("kafka-tools",),
}
_WITHOUT_POMS = """<ivysettings>
  <settings defaultResolver="public"/>
  <resolvers>
    <ibiblio name="public" m2compatible="true" usepoms="false"/>
  </resolvers>
</ivysettings>
"""


def kafka_jars(kind: JarKind, version: str = KAFKA_VERSION) -> str:
    """Give the class path of a kind of program, resolving it when it is new.

    Raises:
        PlaygroundError: the jars could not be fetched.
        JavaMissingError: there is no Java to run Ivy with.
    """
    modules = [
        *(_dependency("org.apache.kafka", name, version) for name in _MODULES[kind]),
        # A silent logging binding would hide why a broker did not start.
        _dependency("org.slf4j", "slf4j-simple", SLF4J_VERSION),
    ]
    folder = fetched(
        f"kafka-{version}-{kind}", "\n".join(modules), types=("jar", "bundle")
    )
    return os.pathsep.join(str(jar) for jar in sorted(folder.glob("*.jar")))


def fetched(
    name: str, dependencies: str, *, types: Sequence[str], poms: bool = True
) -> Path:
    """A folder of the cache with the files of these types, fetched when it is new.
    `dependencies` are elements of an Ivy file. `poms`: read what these depend on.

    Raises:
        PlaygroundError: they could not be fetched.
        JavaMissingError: there is no Java to run Ivy with.
    """
    folder = cache_folder() / name
    complete = folder / ".complete"
    if not complete.exists():
        with cache_lock("jars"):
            if not complete.exists():
                _resolve(name, dependencies, types, folder, poms=poms)
                complete.touch()
    return folder


def _resolve(
    name: str, dependencies: str, types: Sequence[str], folder: Path, *, poms: bool
) -> None:
    description = cache_folder() / f"ivy-{name}.xml"
    description.write_text(_ivy_module(name, dependencies))
    settings = os.environ.get("MIRROR_IVY_SETTINGS")
    if not poms and settings is None:
        file = cache_folder() / "ivy-settings.xml"
        file.write_text(_WITHOUT_POMS)
        settings = str(file)
    command = [
        *(require_java(), "-XX:TieredStopAtLevel=1"),
        *("-cp", _ivy_jar(), "org.apache.ivy.Main", "-warn"),
        *(("-settings", settings) if settings else ()),
        *("-cache", cache_folder() / "ivy", "-ivy", description),
        *("-confs", "default", "-types", *types, "-sync"),
        *("-retrieve", f"{folder}/[artifact]-[revision](-[classifier]).[ext]"),
    ]
    for _ in range(_ATTEMPTS):
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
        if not answer.returncode and any(folder.glob("*")):
            return
    raise PlaygroundError(
        f"{name} could not be fetched (MIRROR_IVY_SETTINGS names a repository other"
        f" than Maven Central): {(answer.stdout + answer.stderr).strip()[-2000:]}"
    )


def _ivy_jar() -> Path:
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise PlaygroundError("Ivy comes with pyspark, and pyspark is not installed")
    return next((Path(spec.origin).parent / "jars").glob("ivy-*.jar"))


def _dependency(organisation: str, name: str, revision: str) -> str:
    return (
        f'    <dependency org="{organisation}" name="{name}" rev="{revision}"'
        ' conf="default->default"/>'
    )


def _ivy_module(name: str, dependencies: str) -> str:
    return f"""<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="mirror" module="playground-{name}"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
{dependencies}
  </dependencies>
</ivy-module>
"""


# ---- the folder that outlives a playground: jars, seeds, class-data archives ----


def cache_folder() -> Path:
    """MIRROR_CACHE, or ~/.cache/mirror; created if missing."""
    named = os.environ.get("MIRROR_CACHE")
    folder = Path(named) if named else Path.home() / ".cache" / "mirror"
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def cache_lock(name: str) -> Iterator[None]:
    """Hold the named lock against other processes and other threads."""
    with (cache_folder() / f"{name}.lock").open("w") as file:
        # Closing the file releases the lock, even when the process is killed.
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
