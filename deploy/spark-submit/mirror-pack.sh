#!/bin/sh
# Packs the Python environment of mirror into one archive, for executors on machines
# that have no such environment. They need the same Python (`python3.11`, say), the same
# kind of processor and C library, and Java.
#
#   mirror-pack.sh mirror-env.tar.gz
#
# APP_HOME is the environment to pack: /opt/mirror by default. Spark's jars stay out:
# executors have Spark.
set -eu

home=${APP_HOME:-/opt/mirror}
archive=${1:?say what the archive is to be called, such as mirror-env.tar.gz}
"$home/bin/python" - "$home" "$archive" <<'PYTHON'
import importlib.util
from pathlib import Path
import sys
import tarfile

home, archive = Path(sys.argv[1]), sys.argv[2]
library = Path("lib", f"python{sys.version_info.major}.{sys.version_info.minor}")
packages = library / "site-packages"
left_out = {packages / "pyspark" / "jars", packages / "pyspark" / "examples"}


# Compiled kernels go along, in numba's files: executors need not compile them again.
def wanted(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    path = Path(entry.name)
    # Where something is installed in place, there is another machine.
    here = path.suffix == ".pyc" or "editable" in path.name and path.suffix == ".pth"
    return None if here or path in left_out else entry


with tarfile.open(archive, "w:gz", compresslevel=1) as packed:
    packed.add(home / "pyvenv.cfg", "pyvenv.cfg")
    for name in ("python", "python3"):
        link = tarfile.TarInfo(f"bin/{name}")
        link.type = tarfile.SYMTYPE
        link.linkname = sys._base_executable
        packed.addfile(link)
    packed.add(home / packages, str(packages), filter=wanted)
    # mirror itself may be installed in place, and then is not among the packages.
    if not (home / packages / "mirror").exists():
        spec = importlib.util.find_spec("mirror")
        folder = Path(spec.origin).parent
        packed.add(folder, str(packages / "mirror"), filter=wanted)
PYTHON
