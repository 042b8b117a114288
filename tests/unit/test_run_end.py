"""What a run that ends leaves for Prometheus."""

from __future__ import annotations

from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
import socket
import stat
import subprocess
import threading
from typing import TYPE_CHECKING
from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families
import pytest
import typer

from mirror.cli.run import RunEnd
from mirror.observing.of_runs import OF_FLOWS, OF_RUN
from mirror.playground.ports import free_ports
from mirror.status.store import StatusStore
from tests import tools
from tests.harness.commands import mirror
from tests.harness.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.unit

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "run-once.md"


def values(text: str) -> dict[str, float]:
    return {
        sample.name: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def end(file: Path | None, code: int, gateway: str | None = None) -> None:
    """A run that ends with this code."""
    store = StatusStore(("A->B",))
    with RunEnd(file=file, gateway=gateway, job="nightly") as run:
        run.store = store
        if code:
            raise typer.Exit(code)


def test_the_file_tells_how_the_run_ended(tmp_path: Path) -> None:
    """It has every metric that the page lists, anyone may read it, and a run that fails
    keeps the time of the last success.
    """
    file = tmp_path / "mirror.prom"
    end(file, 0)
    good = values(file.read_text())
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    assert good.keys() == OF_RUN.keys() | OF_FLOWS.keys()
    assert good["mirror_run_exit_code"] == 0
    success = good["mirror_run_success_timestamp_seconds"]
    assert success == good["mirror_run_end_timestamp_seconds"]

    with pytest.raises(typer.Exit):
        end(file, 1)
    bad = values(file.read_text())
    assert bad["mirror_run_exit_code"] == 1
    assert bad["mirror_run_success_timestamp_seconds"] == success
    assert bad["mirror_run_end_timestamp_seconds"] > success
    assert [each.name for each in tmp_path.iterdir()] == ["mirror.prom"]


def test_the_page_lists_them() -> None:
    """The page has a line for each metric, with its help text."""
    page = PAGE.read_text()
    for name, text in (OF_RUN | OF_FLOWS).items():
        assert f"| `{name}` |" in page
        assert f"| {text} |" in page


def test_a_wrong_configuration_is_told_too(tmp_path: Path) -> None:
    """A run that never begins leaves exit code 2 and no time of success."""
    file, config = tmp_path / "mirror.prom", tmp_path / "mirror.yaml"
    config.write_text("flows: {A->B: {}}")
    ended = mirror("run", "-c", config, "--once", "--metrics-file", file)
    assert ended.exit_code == 2
    found = values(file.read_text())
    assert found["mirror_run_exit_code"] == 2
    assert "mirror_run_success_timestamp_seconds" not in found


@pytest.fixture
def gateway() -> Iterator[str]:
    """The address of a Pushgateway."""
    [port] = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    process = subprocess.Popen(
        [tools.path("prometheus-pushgateway"), f"--web.listen-address={url[7:]}"],
        stderr=subprocess.DEVNULL,
    )

    def ready() -> bool:
        with suppress(OSError), urlopen(f"{url}/-/ready", timeout=5) as answer:
            return answer.status == HTTPStatus.OK
        return False

    try:
        wait_for(ready)
        yield url
    finally:
        process.terminate()
        process.wait(20)


@pytest.mark.needs("pushgateway")
def test_a_gateway_gets_them(gateway: str) -> None:
    """A Pushgateway shows them under the job's name; a run that fails replaces all but
    the time of the last success.
    """

    def shown() -> dict[str, float]:
        with urlopen(f"{gateway}/metrics", timeout=20) as answer:
            text = answer.read().decode()
        assert 'mirror_run_exit_code{instance="",job="nightly"}' in text
        return values(text)

    end(None, 0, gateway)
    good = shown()
    assert good.keys() >= OF_RUN.keys() | OF_FLOWS.keys()
    with pytest.raises(typer.Exit):
        end(None, 1, gateway)
    bad = shown()
    assert (good["mirror_run_exit_code"], bad["mirror_run_exit_code"]) == (0, 1)
    success = "mirror_run_success_timestamp_seconds"
    assert bad[success] == good[success] == good["mirror_run_end_timestamp_seconds"]
    assert bad["mirror_run_end_timestamp_seconds"] > bad[success]


def test_metrics_that_cannot_be_written_change_no_exit_code(tmp_path: Path) -> None:
    """Neither a folder that does not exist nor a gateway that is not there fails a run
    that has copied everything.
    """
    end(tmp_path / "missing" / "mirror.prom", 0, "http://127.0.0.1:9")


def test_a_gateway_that_does_not_speak_http_changes_no_exit_code() -> None:
    """An answer that is no HTTP is an error in the log."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(b"nonsense\r\n\r\n")
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(1 << 16):
                    """Until it has understood that."""

        thread = threading.Thread(target=answer)
        thread.start()
        end(None, 0, f"http://127.0.0.1:{server.getsockname()[1]}")
        thread.join()


@pytest.mark.parametrize(
    "address", ["http://me:secret@gateway:9091", "gateway:secret", "ftp://secret", ""]
)
def test_an_address_that_cannot_be_a_gateway_is_refused(address: str) -> None:
    """At once, not after the run; the message does not repeat what may be a secret."""
    ended = mirror("run", "-c", "mirror.yaml", "--once", "--push-gateway", address)
    assert ended.exit_code == 2
    assert "http://pushgateway:9091" in " ".join(ended.output.split())
    assert "secret" not in ended.output


@pytest.mark.parametrize("option", ["--metrics-file", "--push-gateway"])
def test_a_service_has_none(option: str, tmp_path: Path) -> None:
    """The options are refused without --once, with what serves instead."""
    ended = mirror("run", "-c", tmp_path / "mirror.yaml", option, "x")
    assert ended.exit_code == 2
    assert f"{option} goes with --once" in " ".join(ended.output.split())
