"""deploy/spark-submit on a real Spark cluster: the wrapper, and a packed Python."""

from __future__ import annotations

import json
import os
from pathlib import Path
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import psutil
import pytest

import mirror
from mirror.playground.ports import LOOPBACK
from tests.harness.admin import copied_records, create_topic
from tests.harness.load import NumberedLoad
from tests.harness.service import config_for
from tests.harness.slots import SparklessFlow, copy_until
from tests.harness.standalone import QUICK, Standalone, SubmittedMirror
from tests.harness.waiting import wait_for
from tests.harness.witness import Witness, assert_exactly_once, order_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.acceptance

ROOT = Path(mirror.__file__).parents[1]
SCRIPTS = ROOT / "deploy" / "spark-submit"


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    """A cluster whose executors have no mirror but what they are sent."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PYTHONPATH", raising=False)
        cluster = Standalone(tmp_path_factory.mktemp("standalone"), workers=1)
        with cluster:
            patch.undo()
            yield cluster


class WrappedMirror(SubmittedMirror):
    """`mirror run`, started by mirror-submit.sh as systemd would."""

    def __init__(
        self,
        config: Mapping[str, Any],
        folder: Path,
        cluster: Standalone,
        *,
        archive: Path | None = None,
    ) -> None:
        super().__init__(config, folder, cluster)
        variables = {
            "SPARK_MASTER": cluster.master,
            "SPARK_PROPERTIES": str(cluster.properties),
            "APP_HOME": sys.prefix,
            "SPARK_LOCAL_IP": LOOPBACK,
            "SUBMIT_OPTIONS": " ".join(
                f"--conf {name}={value}"
                for name, value in {"spark.executor.cores": 1, **QUICK}.items()
            ),
            "APP_ARCHIVE": str(archive) if archive else "",
            # The tests' own mirror, which need not be the one that is installed.
            "PYTHONPATH": str(ROOT),
        }
        settings = [f"{name}={value}" for name, value in variables.items()]
        arguments = self._command[self._command.index("run") + 1 :]
        self._command = ["env", *settings, str(SCRIPTS / "mirror-submit.sh")]
        self._command += arguments


@pytest.mark.full
def test_a_python_that_is_sent_along(
    clusters: dict[str, PlaygroundCluster],
    spark: Standalone,
    topic_name: str,
    tmp_path: Path,
) -> None:
    """With a packed Python, executors need no mirror of their own, and have none;
    SIGTERM to the process that the wrapper became ends it with 0 after its
    transactions, and no record is missing, repeated or out of order before or after it.
    """
    archive = tmp_path / "mirror-env.tar.gz"
    assert pack(archive, "mirror").returncode == 0
    assert plain_python("import mirror").returncode != 0
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    create_topic(source, topic_name, 2)
    load = NumberedLoad(source, topic_name, 2)
    load.send(1000)
    copy = f"A.{topic_name}"
    config = config_for(source, target, topics=[topic_name], tasks=1, lease_seconds=1)
    with WrappedMirror(config, tmp_path, spark, archive=archive) as running:
        running.wait_running(timeout=150)
        running.wait_copied(source, topic_name)
        assert_exactly_once(order_of(target, copy), load.order)
        [worker] = [psutil.Process(pid) for pid in running.worker_pids()]
        libraries = {mapped.path for mapped in worker.memory_maps()}
        path = worker.environ().get("PYTHONPATH", "")
        before = copied_records(target, copy)
        with load.streaming():
            wait_for(lambda: copied_records(target, copy) > before)
            assert running.terminate(30) == 0

    assert any("/mirror-env/lib/" in each for each in libraries)
    assert not any(each.startswith(os.path.realpath(sys.prefix)) for each in libraries)
    assert str(ROOT) not in path.split(":")
    found = order_of(target, copy)
    assert found == {p: load.order[p][: len(keys)] for p, keys in found.items()}


@pytest.mark.full
def test_verify_on_a_cluster(
    clusters: dict[str, PlaygroundCluster],
    spark: Standalone,
    topic_name: str,
    tmp_path: Path,
) -> None:
    """The wrapper runs `mirror verify` on the cluster: the table is on stdout, and the
    exit code is that of the command, 2 for a topic that there is not.
    """
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    create_topic(source, topic_name, 2)
    load = NumberedLoad(source, topic_name, 2)
    load.send(300)
    flow = SparklessFlow(
        source=source, target=target, topic=topic_name, alias=f"S{topic_name[-8:]}"
    ).own()
    with Witness(target) as witness, flow.slot() as slot:
        witness.begin(flow.copy)
        copy_until(witness, slot, flow.lease(60), count=300, timeout=60)
    file = tmp_path / "mirror.yaml"
    file.write_text(json.dumps(flow.document()))  # JSON is YAML

    def typed(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [SCRIPTS / "mirror-submit.sh", "verify", "-c", file, *words],
            capture_output=True,
            text=True,
            check=False,
            timeout=200,
            env={
                **os.environ,
                "SPARK_MASTER": spark.master,
                "SPARK_PROPERTIES": str(spark.properties),
                "APP_HOME": sys.prefix,
                "SPARK_LOCAL_IP": LOOPBACK,
            },
        )

    right = typed()
    assert right.returncode == 0, right.stderr
    _, line = right.stdout.splitlines()
    assert line.split()[:3] == [flow.name, topic_name, "300"]

    refused = typed("--topic", "nothing")
    assert refused.returncode == 2, refused.stderr
    assert "copies no topic that matches nothing" in refused.stdout  # Spark's choice


def pack(archive: Path, packages: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [SCRIPTS / "mirror-pack.sh", archive],
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
        env={
            **without_mirror(),
            "APP_HOME": sys.prefix,
            "APP_PACKAGES": packages,
            "PYTHONPATH": str(ROOT),
        },
    )


def test_packages_that_are_not_there(tmp_path: Path) -> None:
    """A typo in APP_PACKAGES is reported before anything is packed."""
    ended = pack(tmp_path / "mirror-env.tar.gz", "mirror our-masks")

    assert ended.returncode == 1
    assert f"APP_PACKAGES: {sys.prefix} has no package our-masks" in ended.stderr
    assert not (tmp_path / "mirror-env.tar.gz").exists()


def test_an_archive_that_spark_would_not_unpack(tmp_path: Path) -> None:
    """mirror-pack.sh refuses other archive formats, in which Spark refuses links."""
    ended = pack(tmp_path / "mirror-env.tar", "mirror")

    assert ended.returncode == 1
    assert "has to end in .tar.gz" in ended.stderr


def without_mirror() -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}


def plain_python(code: str) -> subprocess.CompletedProcess[bytes]:
    """What executors have: only the Python that the environment was made with."""
    return subprocess.run(
        [os.path.realpath(sys.executable), "-c", code],
        cwd="/",
        env=without_mirror(),
        capture_output=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize(
    ("variables", "told"),
    [
        ({}, "SPARK_MASTER: say where Spark is"),
        (
            {"SPARK_MASTER": "spark://x:7077", "APP_HOME": "/nowhere"},
            "APP_HOME: there is no /nowhere/bin/spark-submit",
        ),
    ],
)
def test_wrapper_says_what_is_missing(variables: dict[str, str], told: str) -> None:
    """Started without what it needs, the wrapper names that and exits with 2."""
    ended = subprocess.run(
        [SCRIPTS / "mirror-submit.sh", "-c", "mirror.yaml"],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": os.environ["PATH"], **variables},
    )

    assert ended.returncode == 2
    assert told in ended.stderr
