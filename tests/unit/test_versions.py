"""The page of tested versions names what the tests really use."""

from __future__ import annotations

import re
import tomllib

import pytest

from mirror.host import OLDEST_JAVA
from mirror.playground.jars import KAFKA_VERSION
from tests.acceptance.test_wheel import PYTHONS
from tests.harness.kafka_keys import listed
from tests.harness.pages import ROOT
from tests.harness.releases import RELEASES
from tests.tools import TOOLS
from tests.unit.test_deploy_chart import KUBERNETES

pytestmark = pytest.mark.unit

_ROW = re.compile(r"^\| ([^|]+) \| ([^|]+) \| [^|]+ \|$", re.MULTILINE)


def test_the_page_names_the_versions_that_are_tested() -> None:
    """Each row has the versions of the lock, of the tests' own lists, and of the image;
    a new version or a further row changes both.
    """
    page = (ROOT / "docs" / "reference" / "versions.md").read_text()
    tested, _, _ = page.partition("\n## ")
    rows = {what: tuple(said.split(", ")) for what, said in _ROW.findall(tested)}
    lock = (ROOT / "requirements.lock").read_text()
    pins = dict(re.findall(r"^([a-z0-9.-]+)==([^\s;]+)", lock, re.MULTILINE))
    [debian] = re.findall(
        r"^ARG DEBIAN=.*/debian:(\w+)", (ROOT / "Dockerfile").read_text(), re.MULTILINE
    )
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    del rows["What"]
    # This run's own may be another one.
    assert set(rows.pop("Python")) <= set(PYTHONS)

    assert rows == {
        "Kafka brokers": (KAFKA_VERSION,),
        "Kafka brokers of other releases": RELEASES[:-1],
        "Kafka brokers with tiered storage": (KAFKA_VERSION,),
        "Kafka's protocol as of": ("2.8",),  # tests.harness.proxy.KAFKA_2_8
        "MirrorMaker 2": (KAFKA_VERSION,),
        "keys of MirrorMaker 2's files": tuple(
            sorted({each.version for each in listed()})
        ),
        "Python, installed from the wheel": PYTHONS,
        "Java": (str(OLDEST_JAVA),),
        "Spark": (pins["pyspark"],),
        "kafka-python": (pins["kafka-python"],),
        "Kubernetes": KUBERNETES,
        "Helm": (TOOLS["helm"].module.partition("@v")[2],),
        "Debian": (debian,),
        "Grafana's models": (pins["grafana-foundation-sdk"],),
    }
    assert project["requires-python"] == f">={PYTHONS[0]}"
