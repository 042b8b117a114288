"""The image, as far as its files show: locks and versions agree, scripts are sound."""

from __future__ import annotations

from pathlib import Path
import re
import subprocess
import sys
import tomllib
from urllib.parse import urlsplit

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
