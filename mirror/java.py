"""The Java that Spark, Ivy and the playground's brokers run on.

Main function: `require_java`, the path of a java binary that is new enough.
It looks at JAVA_HOME, then at PATH, and asks the binary for its version once
per process. It neither installs Java nor starts anything else with it.
"""

from __future__ import annotations

from functools import lru_cache
import os
from pathlib import Path
import re
import shutil
import subprocess

from mirror.errors import JavaMissingError

OLDEST_JAVA = 17
_ADVICE = "install e.g. Debian's openjdk-17-jre-headless and set JAVA_HOME"
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


def require_java() -> Path:
    """Find a java binary of version 17 or newer.

    Raises:
        JavaMissingError: none was found, or the one found is too old.
    """
    return _checked(os.environ.get("JAVA_HOME", ""), os.environ.get("PATH", ""))


@lru_cache
def _checked(java_home: str, path: str) -> Path:
    java = _locate(java_home, path)
    version = java_version(java)
    if version is None:
        raise JavaMissingError(
            f"Java {OLDEST_JAVA} or newer is needed, {java} did not tell its"
            f" version: {_ADVICE}"
        )
    if version < OLDEST_JAVA:
        raise JavaMissingError(
            f"Java {OLDEST_JAVA} or newer is needed, found {version} at {java}:"
            f" {_ADVICE}"
        )
    return java


def _locate(java_home: str, path: str) -> Path:
    if java_home:
        java = Path(java_home, "bin", "java")
        if not os.access(java, os.X_OK):
            raise JavaMissingError(
                f"Java {OLDEST_JAVA} or newer is needed, JAVA_HOME points to"
                f" {java_home}, which holds no bin/java: {_ADVICE}"
            )
        return java
    found = shutil.which("java", path=path)
    if found is None:
        raise JavaMissingError(
            f"Java {OLDEST_JAVA} or newer is needed, found none on PATH: {_ADVICE}"
        )
    return Path(found)


def java_version(java: Path) -> int | None:
    """Ask a java binary for its major version; None when it does not answer."""
    try:
        answer = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION.search(answer.stderr + answer.stdout)
    return int(match.group(1)) if match else None
