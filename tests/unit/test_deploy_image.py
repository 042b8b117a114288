"""The image, as far as its files show: locks and versions agree, scripts are sound."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
import re
import subprocess
import sys
import tomllib
from urllib.parse import urlsplit

import pyspark
import pytest
import yaml

import mirror
from mirror.playground.certificates import CertificateAuthority
from mirror.status.store import StatusStore
from tests.unit.test_http_access import served, write

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[2]
_PIN = re.compile(r"^([a-z0-9.-]+)==(\S+)", re.MULTILINE)


def test_image_has_what_is_tested() -> None:
    """Each package of the image is locked to the version that the tests run with."""
    tested = dict(_PIN.findall((ROOT / "requirements.lock").read_text()))
    shipped = dict(_PIN.findall((ROOT / "requirements.runtime.lock").read_text()))

    assert shipped
    assert shipped == {name: tested.get(name) for name in shipped}
    assert not shipped.keys() & {"pytest", "ruff", "mypy", "confluent-kafka"}


def test_image_has_what_mirror_needs() -> None:
    """Each dependency of mirror is in the image's lock: `make lock` writes both."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    shipped = dict(_PIN.findall((ROOT / "requirements.runtime.lock").read_text()))
    needed = {re.split(r"[^\w-]", name)[0] for name in project["dependencies"]}

    assert needed - shipped.keys() == set()


def test_versions_agree() -> None:
    """Image, chart and plain files name the version that is in the source."""
    dockerfile = (ROOT / "Dockerfile").read_text()
    chart = yaml.safe_load((ROOT / "deploy/helm/mirror/Chart.yaml").read_text())
    values = yaml.safe_load((ROOT / "deploy/helm/mirror/values.yaml").read_text())
    spark = dict(_PIN.findall((ROOT / "requirements.lock").read_text()))["pyspark"]

    assert f'version="{mirror.__version__}"' in dockerfile
    assert chart["appVersion"] == mirror.__version__
    assert values["spark"]["version"] == spark


@pytest.mark.parametrize(
    "script", sorted(ROOT.glob("deploy/**/*.sh")), ids=lambda path: path.name
)
def test_scripts_can_be_read_by_a_shell(script: Path) -> None:
    """The shell that runs a deployment's script can parse it."""
    shell = script.read_text().splitlines()[0].removeprefix("#!").split()[-1]
    ended = subprocess.run(
        [shell, "-n", str(script)], capture_output=True, text=True, check=False
    )

    assert (ended.returncode, ended.stderr) == (0, "")


def healthy(url: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, ROOT / "deploy" / "image" / "healthy.py"],
        capture_output=True,
        text=True,
        check=False,
        env={"MIRROR_SERVICE__http_port": str(urlsplit(url).port)},
    )


@pytest.mark.parametrize("tls", [False, True])
def test_health_check_asks_as_the_port_wants_it(tmp_path: Path, *, tls: bool) -> None:
    """The check passes for a healthy service, over TLS too, whatever its host name, and
    without its token.
    """
    settings: dict[str, object] = {
        "http_hosts": "mirror.example.com",
        "http_token": "only-for-others",
    }
    if tls:
        settings |= write(tmp_path, CertificateAuthority())
    with served(**settings) as url:
        ended = healthy(url)

    assert (ended.returncode, ended.stderr) == (0, "")


def test_health_check_tells_what_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check fails for a service that is stuck, with its reason, and for one that
    does not answer.
    """
    monkeypatch.setattr(
        StatusStore, "standstill", lambda _: "nothing moved for an hour"
    )
    with served() as url:
        still = healthy(url)
    gone = healthy(url)

    assert still.returncode == 1
    assert "nothing moved for an hour" in still.stderr
    assert gone.returncode == 1
    assert "refused" in gone.stderr


def test_a_release_wants_a_pinned_base_image(tmp_path: Path) -> None:
    """A release's image is refused unless its base has a digest; told what is right."""
    builder = tmp_path / "buildah"
    builder.write_text('#!/bin/sh\necho building "$@"\n')
    builder.chmod(0o755)

    def make(*variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["make", "image", *variables],
            cwd=ROOT,
            env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
            capture_output=True,
            text=True,
            check=False,
        )

    pinned = f"--build-arg DEBIAN=debian@sha256:{'0' * 64}"
    for given in ("", "--build-arg DEBIAN=debian:bookworm-slim", f"{pinned}a"):
        ended = make("RELEASE=1", f"IMAGE_ARGS={given}")
        assert (ended.returncode, ended.stdout) == (2, "")
        assert "RELEASE=1 needs a base image pinned by digest" in ended.stderr

    assert pinned in make("RELEASE=1", f"IMAGE_ARGS={pinned}").stdout
    assert "building" in make().stdout


def test_the_bill_of_materials() -> None:
    """It has every package of the lock that is installed with its licence, and Spark's
    Java libraries with the hashes of their files.
    """
    command = [sys.executable, ROOT / "deploy" / "image" / "sbom.py"]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    bill = json.loads(ended.stdout)
    found = {each["name"]: each for each in bill["components"]}
    jars = Path(pyspark.__file__).parent / "jars"

    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert bill["metadata"]["component"]["version"] == mirror.__version__
    assert found["kafka-python"]["purl"].startswith("pkg:pypi/kafka-python@")
    packages = [e for e in bill["components"] if e["bom-ref"].startswith("pkg:pypi")]
    assert [each["name"] for each in packages if not each.get("licenses")] == []
    [licence] = found["log4j-core"]["licenses"]
    assert licence["license"]["name"] == "Apache-2.0"
    assert bill["metadata"]["component"]["licenses"] == [{"expression": "Apache-2.0"}]
    refs = [each["bom-ref"] for each in bill["components"]]
    assert len(set(refs)) == len(refs)
    assert {ref for ref in refs if ref.startswith("jar:")} == {
        f"jar:{path.relative_to(jars)}" for path in jars.rglob("*.jar")
    }
    [log4j] = jars.glob("log4j-core-*.jar")
    digest = hashlib.sha256(log4j.read_bytes()).hexdigest()
    assert found["log4j-core"]["hashes"] == [{"alg": "SHA-256", "content": digest}]
    assert found["log4j-core"]["group"] == "org.apache.logging.log4j"
