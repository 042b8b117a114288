"""An archive of the classes that Spark's JVM loads: with it a start takes less work.

Main function: `options`, the Java options that use it. `archiving` makes it, beside
Spark's jars, for these and one Java; Java ignores one that does not fit, and without
one a start only takes longer. MIRROR_CLASS_DATA=off does without.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pyspark

from mirror.host import require_java

QUIET = "-Xshare:auto -Xlog:cds=off -Xlog:cds+dynamic=off"

# Elsewhere than at the address it was made for, all of it is read, changed and kept:
# 125 MB and a quarter of a second of CPU for each start.
_IN_PLACE = "-XX:+UnlockDiagnosticVMOptions -XX:ArchiveRelocationMode=0"


def options() -> str:
    """For the JVM's command line; empty without an archive.

    Raises:
        JavaMissingError: there is no Java that Spark can run on.
    """
    archive = place()
    if os.environ.get("MIRROR_CLASS_DATA") == "off" or not archive.exists():
        return ""
    return f'-XX:SharedArchiveFile="{archive}" {QUIET} {_IN_PLACE}'


def place() -> Path:
    """Where the archive is, or would be: its name tells which Java, and what that and
    Spark's jars are today.
    """
    java = require_java().resolve()
    jars = Path(pyspark.__file__).resolve().with_name("jars")
    parts = [java, *sorted(jars.glob("*.jar"))]
    # In seconds, as Java compares them: an image's layers keep no more.
    stated = [(str(part), int(part.stat().st_mtime)) for part in parts]
    return jars.with_name(f"mirror-{_digest(java)}-{_digest(stated)}.jsa")


def _digest(of: object) -> str:
    return hashlib.sha256(repr(of).encode()).hexdigest()[:12]
