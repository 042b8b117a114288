#!/bin/sh
# Packs the Python environment of mirror into one archive, for executors on machines
# that have no such environment. They need the same Python (`python3.11`, say), the same
# kind of processor and C library, and Java.
#
#   mirror-pack.sh mirror-env.tar.gz
#
# The name must end in .tar.gz: Spark unpacks uncompressed archives in a way that
# refuses links to a Python outside the archive. Variables:
#   APP_HOME       the environment to pack: /opt/mirror
#   APP_PACKAGES   which of its packages, with their dependencies, such as
#                  "mirror our-masks". Empty: all of them
# Spark's jars are left out: executors have Spark.
set -eu

home=${APP_HOME:-/opt/mirror}
archive=${1:?say what the archive is to be called, such as mirror-env.tar.gz}
"$home/bin/python" - "$home" "$archive" "${APP_PACKAGES:-}" <<'PYTHON'
from importlib.metadata import Distribution, PackageNotFoundError
import importlib.util
from pathlib import Path
import re
import sys
import tarfile

home, archive, named = Path(sys.argv[1]), sys.argv[2], sys.argv[3].split()
library = Path("lib", f"python{sys.version_info.major}.{sys.version_info.minor}")
packages = library / "site-packages"
left_out = {packages / "pyspark" / "jars", packages / "pyspark" / "examples"}


def needed() -> set[str]:
    """Files and folders of the packages that are named, and of what they need."""
    found: set[str] = set()
    ahead, known = list(named), set()
    while ahead:
        name = ahead.pop()
        if name in known:
            continue
        known.add(name)
        try:
            one = Distribution.from_name(name)
        except PackageNotFoundError:
            if name in named:
                sys.exit(f"mirror-pack: APP_PACKAGES: {home} has no package {name}")
            continue  # what another system or Python would need
        found |= {path.parts[0] for path in one.files or () if path.parts[0] != ".."}
        for requirement in one.requires or ():
            if "extra ==" not in requirement:
                ahead.append(re.match(r"[\w.-]+", requirement)[0])
    return found


# Include what Python and numba have compiled: executors would need seconds for it.
def wanted(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    path = Path(entry.name)
    # An editable install refers to a folder that executors do not have.
    editable = "editable" in path.name and path.suffix == ".pth"
    return None if editable or path in left_out else entry


if not archive.endswith((".tar.gz", ".tgz")):
    sys.exit(f"mirror-pack: {archive}: the name has to end in .tar.gz")
kept = needed() if named else {path.name for path in (home / packages).iterdir()}
with tarfile.open(archive, "w:gz", compresslevel=1) as packed:
    packed.add(home / "pyvenv.cfg", "pyvenv.cfg")
    for name in ("python", "python3"):
        link = tarfile.TarInfo(f"bin/{name}")
        link.type = tarfile.SYMTYPE
        link.linkname = sys._base_executable
        packed.addfile(link)
    for name in sorted(kept):
        packed.add(home / packages / name, str(packages / name), filter=wanted)
    # mirror itself may be an editable install, and then is not among the packages.
    if not (home / packages / "mirror").exists():
        folder = Path(importlib.util.find_spec("mirror").origin).parent
        packed.add(folder, str(packages / "mirror"), filter=wanted)
PYTHON
