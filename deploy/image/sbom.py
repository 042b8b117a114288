"""Writes a CycloneDX bill of materials of a release to stdout (`make sbom`).

It has mirror, the Python packages that requirements.runtime.lock pins and that are
installed here, and the Java libraries in the pyspark wheel, with the hashes of their
files; all with their licences, as far as they say them: of Java libraries few do, and
pyspark's own LICENSE lists the others. What Debian brings is not in it: scan the image
for that.
"""

from __future__ import annotations

import hashlib
from importlib.metadata import PackageMetadata, distribution, version
from importlib.util import find_spec
import json
from pathlib import Path
import re
import sys
import tomllib
from typing import Any
import uuid
import zipfile

_PINNED = re.compile(r"^([A-Za-z0-9._-]+)==([^ ;\\]+)", re.MULTILINE)
_JAR = re.compile(r"(.+?)-(\d[^/]*)\.jar")
_LONGEST_NAME = 64
_LICENCE = "License :: OSI Approved :: "
_BUNDLE = re.compile(rb"^Bundle-License: *(\S[^\r\n;]*)", re.MULTILINE)
_MANIFEST = "META-INF/MANIFEST.MF"
_FOLDED = re.compile(rb"\r?\n ")  # its lines go on after that


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
        if licences := _licences(distribution(name).metadata):
            component["licenses"] = licences
        found.append(component)
    return found


def _licences(said: PackageMetadata) -> list[dict[str, Any]]:
    """As an expression, in a word, or by the package's classifiers."""
    if expression := said.get("License-Expression"):
        return [{"expression": expression}]
    names = [said.get("License") or ""]
    if not names[0] or len(names[0]) > _LONGEST_NAME:  # nothing, or a whole licence
        told = said.get_all("Classifier") or []
        names = [each.rpartition(" :: ")[2] for each in told if _LICENCE in each]
    return [{"license": {"name": name}} for name in names]


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
            names = opened.namelist()
            manifest = opened.read(_MANIFEST) if _MANIFEST in names else b""
            if said := _BUNDLE.search(_FOLDED.sub(b"", manifest)):
                licence = {"name": said[1].decode().strip(' "')}
                component["licenses"] = [{"license": licence}]
            poms = [n for n in names if n.endswith("/pom.properties")]
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
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    ours = version(project["name"])
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
                "name": project["name"],
                "version": ours,
                "licenses": [{"expression": project["license"]}],
            }
        },
        "components": components,
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(bill(Path(__file__).parents[2]), indent=1) + "\n")
