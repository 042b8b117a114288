"""Kafka's own jars, fetched once and then used offline.

Main function: `kafka_jars`, which returns the class path for a kind of program. The Ivy
inside the pyspark wheel fetches the jars, so neither Maven nor Docker is needed;
MIRROR_IVY_SETTINGS names a settings file for a company's own repository.
"""

from __future__ import annotations

from importlib.util import find_spec
import os
from pathlib import Path
import subprocess
from typing import Literal, NamedTuple

import stamina

from mirror.errors import PlaygroundError
from mirror.host import require_java
from mirror.playground.cache import KAFKA_VERSION, cache_folder, cache_lock

SLF4J_VERSION = "2.0.17"

JarKind = Literal["broker", "mm2", "mirror-client", "tools"]


class _Module(NamedTuple):
    organisation: str
    name: str
    revision: str


def _kafka(name: str) -> _Module:
    return _Module("org.apache.kafka", name, KAFKA_VERSION)


_MODULES: dict[JarKind, tuple[_Module, ...]] = {
    "broker": (_kafka("kafka_2.13"),),
    "mm2": (_kafka("connect-mirror"), _kafka("connect-runtime")),
    "mirror-client": (_kafka("connect-mirror-client"), _kafka("kafka-clients")),
    "tools": (_kafka("kafka-tools"),),
}
# A silent logging binding would hide why a broker did not start.
_LOGGING = _Module("org.slf4j", "slf4j-simple", SLF4J_VERSION)


def kafka_jars(kind: JarKind) -> str:
    """Give the class path of a kind of program, resolving it when it is new.

    Raises:
        PlaygroundError: the jars could not be fetched.
        JavaMissingError: there is no Java to run Ivy with.
    """
    folder = cache_folder() / f"kafka-{KAFKA_VERSION}-{kind}"
    complete = folder / ".complete"
    if not complete.exists():
        with cache_lock("jars"):
            if not complete.exists():
                _resolve(kind, folder)
                complete.touch()
    return os.pathsep.join(str(jar) for jar in sorted(folder.glob("*.jar")))


@stamina.retry(on=PlaygroundError, attempts=3, timeout=None)
def _resolve(kind: JarKind, folder: Path) -> None:
    description = cache_folder() / f"ivy-{kind}.xml"
    description.write_text(_ivy_module(kind))
    settings = os.environ.get("MIRROR_IVY_SETTINGS")
    answer = subprocess.run(
        [
            *(require_java(), "-XX:TieredStopAtLevel=1"),
            *("-cp", _ivy_jar(), "org.apache.ivy.Main", "-warn"),
            *(("-settings", settings) if settings else ()),
            *("-cache", cache_folder() / "ivy", "-ivy", description),
            *("-confs", "default", "-types", "jar", "bundle", "-sync"),
            *("-retrieve", f"{folder}/[artifact]-[revision](-[classifier]).[ext]"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if answer.returncode or not any(folder.glob("*.jar")):
        raise PlaygroundError(
            f"Kafka's {kind} jars could not be fetched (MIRROR_IVY_SETTINGS names a"
            f" repository other than Maven Central): {_tail(answer)}"
        )


def _tail(answer: subprocess.CompletedProcess[str]) -> str:
    return (answer.stdout + answer.stderr).strip()[-2000:]


def _ivy_jar() -> Path:
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise PlaygroundError("Ivy comes with pyspark, and pyspark is not installed")
    return next((Path(spec.origin).parent / "jars").glob("ivy-*.jar"))


def _ivy_module(kind: JarKind) -> str:
    dependencies = "\n".join(
        f'    <dependency org="{module.organisation}" name="{module.name}"'
        f' rev="{module.revision}" conf="default->default"/>'
        for module in (*_MODULES[kind], _LOGGING)
    )
    return f"""<ivy-module version="2.0">
  <info organisation="mirror" module="playground-{kind}"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
{dependencies}
  </dependencies>
</ivy-module>
"""
