"""`mirror version`: the versions that matter in a bug report.

These are mirror and what its behaviour depends on: Python, Spark, kafka-python, Java.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed
import platform

from mirror import __version__
from mirror.cli.output import Form, Output, document, table
from mirror.errors import JavaMissingError
from mirror.host import java_version, require_java

FORMAT_VERSION = 1


def version(*, output: Output = Form.TABLE) -> None:
    """Print the versions of mirror, Python, Spark, kafka-python and Java."""
    versions = {
        "mirror": __version__,
        "python": platform.python_version(),
        "pyspark": _package("pyspark"),
        "kafka-python": _package("kafka-python"),
        "java": _java(),
    }
    if output is Form.JSON:
        document({"format_version": FORMAT_VERSION, "versions": versions})
    else:
        table(("COMPONENT", "VERSION"), versions.items())


def _package(name: str) -> str:
    try:
        return installed(name)
    except PackageNotFoundError:
        return "missing"


def _java() -> str:
    try:
        java = require_java()
    except JavaMissingError as error:
        return str(error)
    return f"{java_version(java)} ({java})"
