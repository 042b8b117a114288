"""Writes a CycloneDX bill of materials of a release to stdout (`make sbom`).

It has mirror, the Python packages that requirements.runtime.lock pins and that are
installed here, with their licences, and the Java libraries in the pyspark wheel, with
the hashes of their files. What Debian brings is not in it: scan the image for that.
"""

from __future__ import annotations

import hashlib
from importlib.metadata import distribution, version
from importlib.util import find_spec
import json
from pathlib import Path
import re
import sys
from typing import Any
import uuid
import zipfile

_PINNED = re.compile(r"^([A-Za-z0-9._-]+)==([^ ;\\]+)", re.MULTILINE)
_JAR = re.compile(r"(.+?)-(\d[^/]*)\.jar")
_LONGEST_NAME = 64


def packages(lock: Path) -> list[dict[str, Any]]:
    """The pinned packages of this platform."""
    pinned = set(_PINNED.findall(lock.read_text()))
    found = []
    for name, wanted in sorted(pinned):
        try:
            if version(name) != wanted:
                continue
        except ModuleNotFoundError:
            continue  # for another platform
        component = {
            "type": "library",
            "bom-ref": f"pkg:pypi/{name.lower()}@{wanted}",
            "name": name,
            "version": wanted,
            "purl": f"pkg:pypi/{name.lower()}@{wanted}",
        }
        said = distribution(name).metadata
        if expression := said.get("License-Expression"):
            component["licenses"] = [{"expression": expression}]
        elif (licence := said.get("License")) and len(licence) < _LONGEST_NAME:
            component["licenses"] = [{"license": {"name": licence}}]
        found.append(component)
    return found


def jars(folder: Path) -> list[dict[str, Any]]:
    """The Java libraries of a folder; those that name their origin have a purl."""
    found = []
    for path in sorted(folder.rglob("*.jar")):
        match = _JAR.fullmatch(path.name)
        name, number = match.groups() if match else (path.stem, "")
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        component = {
            "type": "library",
            "bom-ref": f"jar:{path.relative_to(folder)}",
            "name": name,
            "version": number,
            "hashes": [{"alg": "SHA-256", "content": digest}],
        }
        with zipfile.ZipFile(path) as opened:
            poms = [n for n in opened.namelist() if n.endswith("/pom.properties")]
            if len(poms) == 1:  # several: it holds other libraries as well
                group = poms[0].split("/")[-3]
                component["group"] = group
                component["purl"] = f"pkg:maven/{group}/{name}@{number}"
        found.append(component)
    return found


def bill(root: Path) -> dict[str, Any]:
    """The whole document. The same release always gets the same one."""
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    components = packages(root / "requirements.runtime.lock")
    components += jars(Path(spec.origin).parent / "jars")
    ours = version("mirror")
    text = json.dumps([ours, components], sort_keys=True)
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, text)}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": "mirror",
                "name": "mirror",
                "version": ours,
            }
        },
        "components": components,
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(bill(Path(__file__).parents[2]), indent=1) + "\n")
