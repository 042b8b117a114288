"""What a person types and gets: text, JSON and exit codes."""

from __future__ import annotations

from dataclasses import asdict
import io
import json
import logging
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import structlog

from mirror import __version__, log
from mirror.cli import service
from mirror.cli import status as status_command
from mirror.cli.output import remaining
from mirror.errors import JavaMissingError
from mirror.observing.server import StatusServer
from mirror.playground.demo import Screen, TrafficVerdict, _descendants
from mirror.status.states import FlowState
from mirror.status.store import StatusStore
from mirror.status.values import (
    FORMAT_VERSION,
    ConfigDrift,
    ConfigStatus,
    PartitionStatus,
    ServiceStatus,
    SlotStatus,
    TopicDrift,
)
from tests.harness.commands import config_file, mirror
from tests.harness.statuses import cluster_status, partition_status, show

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from typer.testing import Result

pytestmark = pytest.mark.unit


def partition(number: int = 3, **changes: object) -> PartitionStatus:
    moved = {"position": 7, "end_offset": 9, "lag": 2, "records": 7, "bytes": 70}
    late = {"latency_p50_ms": 12.4, "latency_p99_ms": 30.0}
    return partition_status("orders", number, **moved | late | changes)


@pytest.fixture
def store() -> StatusStore:
    return StatusStore(("A->B",))


@pytest.fixture
def url(store: StatusStore) -> Iterator[str]:
    with StatusServer(store, "127.0.0.1", 0) as server:
        yield server.url


@pytest.fixture
def config(tmp_path: Path) -> str:
    return str(config_file(tmp_path, service={"http_port": 0}))


@pytest.mark.parametrize(
    "command",
    [
        *("", "run", "check", "plan", "status", "pause", "resume", "flow reset"),
        *("loss list", "topic list", "topic configs", "topic acls", "demo", "version"),
    ],
)
def test_help_shows_examples(command: str) -> None:
    """Help of every command ends well and says how the command is used."""
    result = mirror(*command.split(), "--help")

    assert result.exit_code == 0
    assert "Usage: mirror" in result.stdout
    assert "Examples:\n" in result.stdout or command == "version"


_HEAVY = {
    *("dynaconf", "jinja2", "kafka", "numba", "numpy", "prometheus_client", "pyarrow"),
    *("pyspark", "structlog", "yaml"),
}


def ended(code: str, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    """A program of Python's in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", code, *words],
        env=os.environ | env,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("command", "environment"),
    [
        (["--help"], {}),
        (["status", "--help"], {}),
        (["status", "-u", "http://127.0.0.1:1"], {}),
        (["lag", "-u", "http://127.0.0.1:1"], {}),
        (
            [],
            {
                "_MIRROR_COMPLETE": "complete_bash",
                "COMP_WORDS": "mirror status --",
                "COMP_CWORD": "2",
            },
        ),
    ],
    ids=["help", "help of status", "status", "lag", "completion"],
)
def test_what_is_asked_often_loads_little(
    command: list[str], environment: dict[str, str]
) -> None:
    """Help, status, lag and completion load none of the libraries that take seconds."""
    code = (
        "import sys, atexit; from mirror.cli.main import main\n"
        "loaded = lambda: {name.split('.')[0] for name in sys.modules}\n"
        "atexit.register(lambda: print('loaded', *sorted(loaded()), file=sys.stderr))\n"
        "main()"
    )
    lines = ended(code, *command, **environment).stderr.splitlines()

    report = next(line for line in lines if line.startswith("loaded "))
    assert "mirror" in report.split()
    assert not _HEAVY & set(report.split())


def test_a_switch_begins_without_what_it_may_not_need() -> None:
    """Commands that switch begin without Arrow, compiled kernels, an HTTP client, what
    compares records, what logs, and readers of other formats: in a disaster no one
    waits for these.
    """
    code = "import sys, mirror.cli.switch, mirror.recovery.steps; print(*sys.modules)"
    loaded = set(ended(code).stdout.split())
    assert "mirror.recovery.steps.prove" in loaded
    kernels = {"numba", "llvmlite", "mirror.records.compiled"}
    assert not {"pyarrow", "pyspark", "httpx", "mirror.proofs", *kernels} & loaded
    assert not {"stamina", "structlog", "yaml", "mirror.config.mm2.properties"} & loaded


def test_a_service_begins_without_what_it_may_not_need() -> None:
    """A start does not load compiled kernels, pandas, or what proves, switches, counts
    tails and rehearses: slots have the first, few services need the rest.
    """
    code = (
        "import sys, mirror.cli.run, mirror.service.session, mirror.service.service\n"
        "import mirror.proofs.in_service; print(*sys.modules)"
    )
    loaded = set(ended(code).stdout.split())
    assert "mirror.service.executors" in loaded
    kernels = {"numba", "llvmlite", "mirror.records.compiled"}
    rooms = {"mirror.recovery"}
    assert not {"pandas", "mirror.proofs.comparing", *kernels, *rooms} & loaded


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["runn"],
        ["run", "--no-such-option"],
        ["run"],
        ["run", "-c", "x.yaml", "stray"],
        ["status", "-o", "xml"],
        ["status", "-u", "ftp://x"],
        ["topic", "lists"],
        ["topic", "list"],
        ["status", "-u", "x:1", "-c", "x.yaml"],
        ["demo", "--records", "0"],
    ],
)
def test_wrong_command_lines_exit_2(arguments: list[str]) -> None:
    """A wrong command line is refused, with nothing on stdout."""
    result = mirror(*arguments)

    assert result.exit_code == 2
    assert "Usage: mirror" in result.stderr or arguments == []
    assert "Traceback" not in result.output


@pytest.mark.parametrize("command", ["run", "check"])
def test_problems_of_a_configuration_come_one_per_line(
    tmp_path: Path, command: str
) -> None:
    """All problems are printed at once on stderr, each with its setting."""
    flows = {"A->B": {"topics": ["a(", "b("]}}

    result = mirror(command, "-c", config_file(tmp_path, flows=flows))

    assert result.exit_code == 2
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert len(lines) == 2
    assert all("A->B" in line and "topics" in line for line in lines)


@pytest.mark.parametrize("command", ["run", "check"])
def test_a_function_that_is_not_there_is_told_at_once(
    tmp_path: Path, command: str
) -> None:
    """A transform that cannot be imported is a mistake of the configuration, before
    Spark starts and whether or not clusters answer.
    """
    flows = {"A->B": {"topics": ["orders"], "transform": "no_such_masks:f"}}

    result = mirror(command, "-c", config_file(tmp_path, flows=flows))

    assert result.exit_code == 2
    assert result.stdout == ""
    assert (
        'flows."A->B".transform: "no_such_masks:f" cannot be imported: '
        "ModuleNotFoundError: No module named 'no_such_masks'; install the module "
        "next to mirror, or put it in a folder on PYTHONPATH"
    ) in result.stderr.splitlines()


def test_missing_file_exits_2() -> None:
    """A missing file is named; MIRROR_CONFIG counts like -c."""
    result = mirror("run", MIRROR_CONFIG="/no/such.yaml")

    told = "/no/such.yaml: there is no such file\n"
    assert (result.exit_code, result.stderr) == (2, told)


def test_clusters_takes_several_aliases(config: str) -> None:
    """All aliases after --clusters are looked up, as in MirrorMaker 2."""
    result = mirror("run", "-c", config, "--clusters", "B", "D", "E")

    assert result.exit_code == 2
    assert [line.split('"')[1] for line in result.stderr.splitlines()] == ["D", "E"]


def test_unreachable_clusters_are_named_with_their_setting(config: str) -> None:
    """Every cluster that does not answer is named, by setting and value."""
    result = mirror("check", "-c", config)

    assert result.exit_code == 1
    first, second = (
        line.split(maxsplit=4)
        for line in result.stdout.splitlines()
        if line.startswith("cluster ")
    )
    assert first[:4] == ["cluster", "A", "connection", "fail"]
    assert first[4].startswith("clusters.A.bootstrap_servers: 127.0.0.1:1 ")
    assert second[4].startswith("clusters.B.bootstrap_servers: 127.0.0.1:2 ")
    assert "check that the address is right" in second[4]
    assert result.stderr.splitlines()[-1].startswith("2 failed, ")


def test_missing_java_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Java the demo says so, and version still shows the rest."""
    monkeypatch.setenv("JAVA_HOME", "/no/java")

    demo, version = mirror("demo"), mirror("version")

    assert demo.exit_code == 1
    assert len(demo.stderr.splitlines()) == 1
    assert "Java 17 or newer is needed" in demo.stderr
    assert version.exit_code == 0
    assert "Java 17 or newer is needed" in version.stdout


@pytest.fixture
def run_once(
    config: str, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[Result, dict[str, Any]]]:
    """Types `mirror run`, with this in place of the service and without Spark's JVM,
    which it begins to start early; gives the result and the last line of its log.
    """
    monkeypatch.setattr("mirror.service.session.launch", lambda _config: None)

    def run(service: Callable[..., bool], *words: str) -> tuple[Result, dict[str, Any]]:
        monkeypatch.setattr("mirror.service.service.Service.run", service)
        result = mirror("run", "-c", config, *words)
        return result, json.loads(result.stderr.splitlines()[-1])

    return run


def test_run_tells_missing_java(run_once: Any) -> None:
    """An error that a person can act on is a sentence, not a traceback, in a line of
    the log like any other.
    """

    def run(*_arguments: object, **_options: object) -> bool:
        raise JavaMissingError

    result, told = run_once(run)

    assert result.exit_code == 1
    assert (told["event"], told["level"]) == ("Java 17 or newer is needed.", "error")


@pytest.mark.parametrize("once", [["--once"], []])
def test_run_fails_if_a_flow_did(run_once: Any, once: list[str]) -> None:
    """The exit status shows a nightly job that not everything was copied."""

    def run(service: Any, **_options: object) -> bool:
        show(service.store, "A->B", state=FlowState.FAILED, reason="no")
        return False

    result, told = run_once(run, *once)

    assert result.exit_code == 1
    assert (told["flow"], told["state"], told["reason"]) == ("A->B", "FAILED", "no")


def test_run_tells_where_it_listens(run_once: Any) -> None:
    """One event on stderr has the status address, for programs that start us."""

    def run(_service: object, *, ready: Any) -> bool:
        ready("http://127.0.0.1:5")
        return True

    result, told = run_once(run)

    assert (told["event"], told["url"]) == ("service listens", "http://127.0.0.1:5")
    assert result.stdout == ""


def test_versions() -> None:
    """Everything that a bug report needs is there, as text and as JSON."""
    shown = mirror("version").stdout
    document = json.loads(mirror("version", "-o", "json").stdout)

    assert shown.splitlines()[0].split() == ["COMPONENT", "VERSION"]
    assert document["versions"]["mirror"] == __version__
    assert set(document["versions"]) <= set(shown.split())
    assert mirror("--version").stdout == f"mirror {__version__}\n"


def test_status_shows_flows_and_partitions(store: StatusStore, url: str) -> None:
    """Both tables are on stdout, in whole lines however narrow the terminal."""
    reason = "the target refuses it: " + "because " * 20
    show(
        store,
        "A->B",
        state=FlowState.RUNNING,
        partitions=(
            partition(),
            partition(4, state="FAULTED", reason=reason, latency_p50_ms=-1.0),
        ),
        problems=("source topic x y: no legal name",),
    )

    result = mirror("status", "-u", url)

    assert result.exit_code == 0
    flows, flow, _, columns, good, faulted, _, _, problem = result.stdout.splitlines()
    assert tuple(flows.split()) == status_command.FLOW_COLUMNS
    assert flow.split()[:2] + flow.split()[3:] == [
        *("A->B", "RUNNING"),
        *("4", "-", "14", "0", "B/s", "1", "0", "0", "0", "-"),
    ]
    assert tuple(columns.split()) == status_command.PARTITION_COLUMNS
    assert " ".join(good.split()) == "A->B orders 3 A.orders RUNNING 2 7 12ms - -"
    assert faulted.endswith(reason.strip())
    assert problem.split(maxsplit=1) == ["A->B", "source topic x y: no legal name"]


def test_status_shows_slots_and_what_remains(store: StatusStore, url: str) -> None:
    """A flow that catches up shows how long that takes, and how busy each slot is."""
    show(
        store,
        "A->B",
        remaining_seconds=731.0,
        bytes_per_second=12_340_000.0,
        slot_loads=(
            SlotStatus(number=1, partitions=3, busy=0.914, records_per_second=5000.4,
                       bytes_per_second=7500.0),
        ),
    )  # fmt: skip

    flows, flow, _, columns, slot = mirror("status", "-u", url).stdout.splitlines()

    assert "12 min left" in flow
    assert "12.3 MB/s" in flow
    assert flow.index("12 min left") == flows.index("REMAINING")
    assert tuple(columns.split()) == status_command.SLOT_COLUMNS
    assert slot.split() == ["A->B", "1", "3", "91%", "5000", "7.5", "kB/s"]


def test_status_shows_what_a_transform_left_out(store: StatusStore, url: str) -> None:
    """Records that a function removed, or failed on, are counted by partition."""
    show(
        store,
        "A->B",
        partitions=(partition(), partition(4, removed=12, dead_letters=1)),
    )

    *_, columns, row = mirror("status", "-u", url).stdout.splitlines()

    assert tuple(columns.split()) == status_command.TRANSFORM_COLUMNS
    assert row.split() == ["A->B", "orders", "4", "12", "1"]


def test_status_shows_clusters_that_do_not_answer(store: StatusStore, url: str) -> None:
    """Of each silent cluster, since when and why; nothing of those that answer."""
    store.clusters = (cluster_status("A"), cluster_status("B", reason="no route"))
    lines = mirror("status", "--url", url).stdout.splitlines()
    at = next(n for n, line in enumerate(lines) if line.startswith("CLUSTER"))
    assert lines[at].split() == ["CLUSTER", "SILENT-SINCE", "REASON"]
    assert lines[at + 1].startswith("B ")
    assert lines[at + 1].endswith("no route")
    assert not any(line.startswith("A ") for line in lines)


def test_status_shows_a_refused_configuration(store: StatusStore, url: str) -> None:
    """Why the newest configuration is not in use comes last, line by line."""
    store.config = ConfigStatus(refused_at=1e9, refused=("flows: x", "service: y"))

    *_, columns, one, other = mirror("status", "-u", url).stdout.splitlines()

    assert columns.split() == ["REFUSED", "CONFIGURATION"]
    assert one.endswith("flows: x")
    assert other.endswith("service: y")


def test_status_shows_what_differs(store: StatusStore, url: str) -> None:
    """A copy that differs from its topic is listed below, with all differences."""
    show(
        store,
        "A->B",
        drift=(
            TopicDrift(
                topic="orders", target_topic="A.orders", partitions=2,
                target_partitions=3, conflicts=("flush.ms: A 1, C 2",),
                problem="refused", configs=(
                    ConfigDrift(name="retention.ms", wanted="5", found=None),
                    ConfigDrift(name="segment.ms", wanted=None, found=""),
                ),
            ),
        ),
    )  # fmt: skip

    result = mirror("status", "--url", url)

    flow, copy, differs = result.stdout.splitlines()[-1].split(maxsplit=2)
    assert (flow, copy) == ("A->B", "A.orders")
    assert differs == (
        "more partitions than its topic; retention.ms is not set, should be 5; "
        'segment.ms is "", should not be set; '
        "sources differ on flush.ms: A 1, C 2; refused"
    )


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1.0, "-"),
        (0.2, "1 s left"),
        (89.0, "89 s left"),
        (90.0, "2 min left"),
        (5400.0, "2 h left"),
        (200_000.0, "2 d left"),
    ],
)
def test_remaining_time_is_rounded(seconds: float, text: str) -> None:
    """An estimate is shown in one unit, never as nothing left."""
    assert remaining(seconds) == text


def test_status_of_a_service_that_knows_less(
    store: StatusStore, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command shows an older service, whose answer lacks newer fields."""
    added = ("slot_loads", "remaining_seconds", "bytes_per_second")

    def to_json(status: ServiceStatus) -> dict[str, Any]:
        flow = asdict(status.flows[0])
        known = {name: value for name, value in flow.items() if name not in added}
        return {
            "format_version": FORMAT_VERSION,
            "flows": [{**known, "lag": 0, "records": 0, "faulted": 0}],
        }

    monkeypatch.setattr(ServiceStatus, "to_json", to_json)

    assert "A->B" in mirror("status", "-u", url).stdout


def test_status_as_json_is_the_service_s_own(store: StatusStore, url: str) -> None:
    """Programs get the service's document with its version, even as it grows."""
    short = mirror("status", "-u", url.removeprefix("http://"), "-o", "json")
    show(store, "A->B", partitions=(partition(),))
    longer = mirror("status", "-u", f"{url}/status", "-o", "json")

    assert json.loads(short.stdout)["flows"][0]["partitions"] == []
    assert json.loads(longer.stdout) == json.loads(json.dumps(store.read().to_json()))
    assert service.FORMAT_VERSION == FORMAT_VERSION


def test_status_without_a_service() -> None:
    """Without a service there is one sentence that says what to do."""
    result = mirror("status", "-u", "127.0.0.1:1")

    assert result.exit_code == 1
    assert result.stderr.startswith("no service answers at http://127.0.0.1:1 (")
    assert len(result.stderr.splitlines()) == 1


def test_status_asks_where_the_configuration_says(
    store: StatusStore, url: str, tmp_path: Path
) -> None:
    """-c finds the port, and says what to do where the file does not have it."""
    port = int(url.rpartition(":")[2])
    found = mirror("status", "-c", config_file(tmp_path, service={"http_port": port}))
    unknown = mirror("status", "-c", config_file(tmp_path, service={"http_port": 0}))

    assert "STARTING" in found.stdout
    assert unknown.exit_code == 2
    assert unknown.stderr.startswith("service.http_port: is 0")


def test_status_of_something_else(url: str) -> None:
    """Another server, or an unknown path, is not taken for a service in trouble."""
    result = mirror("status", "-u", f"{url}/other")

    assert result.exit_code == 1
    assert (
        "answers 404: is it a mirror service, of this version or later?"
        in result.stderr
    )


def test_log_lines_have_one_form(monkeypatch: pytest.MonkeyPatch) -> None:
    """Our events, a library's and exceptions are JSON lines; chatter is dropped."""
    monkeypatch.setattr(sys, "stderr", written := io.StringIO())
    log.set_up("info", "auto")

    structlog.get_logger().info("ours", flow="A->B")
    structlog.get_logger().debug("too fine")
    logging.getLogger("library").warning("theirs %d", 7)
    logging.getLogger("kafka.conn").warning("chatter")
    logging.getLogger("py4j.clientserver").error("chatter")
    py4j = logging.LogRecord("root", 20, "java_gateway.py", 1, "chatter", None, None)
    logging.getLogger().handle(py4j)
    try:
        int("x")
    except ValueError:
        structlog.get_logger().exception("broken")

    ours, theirs, broken = map(json.loads, written.getvalue().splitlines())
    assert (ours["event"], ours["flow"], ours["level"]) == ("ours", "A->B", "info")
    assert (theirs["event"], theirs["level"]) == ("theirs 7", "warning")
    assert "ValueError" in broken["exception"]


def test_log_for_people(monkeypatch: pytest.MonkeyPatch) -> None:
    """The console form is text, and without colours where there is no terminal."""
    monkeypatch.setattr(sys, "stderr", written := io.StringIO())
    log.set_up("warning", "console")

    structlog.get_logger().info("not shown")
    structlog.get_logger().warning("shown", flow="A->B")

    (line,) = written.getvalue().splitlines()
    assert "shown" in line
    assert "flow=A->B" in line
    assert "\x1b" not in line


def test_demo_in_lines(store: StatusStore, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a terminal the demo writes plain lines, and repeats none."""
    show(store, "A->B", state=FlowState.RUNNING, partitions=(partition(),))
    capsys.readouterr()  # the log of this process
    screen = Screen()
    screen.say("begin")
    screen.show(store.read().to_json())
    screen.show(store.read().to_json())

    begin, line = capsys.readouterr().out.splitlines()
    assert begin.endswith("begin")
    assert line.endswith("A->B RUNNING, lag 2, records 7, latency 12 ms")


@pytest.mark.parametrize(
    ("fault", "well"),
    [
        ({}, True),
        ({"duplicates": 1, "on_target": 11}, False),
        ({"missing": 1, "on_target": 9}, False),
        ({"changed": 1}, False),
        ({"out_of_order": 1}, False),
    ],
)
def test_demo_s_verdict(fault: dict[str, int], well: bool) -> None:
    """A single record too many, too few, changed or misplaced is a failure."""
    clean = {"duplicates": 0, "missing": 0, "changed": 0, "out_of_order": 0}
    counted = {"produced": 10, "on_target": 10, **clean, **fault}

    assert TrafficVerdict(**counted).exactly_once is well


def test_descendants_of_this_process() -> None:
    """Children and their children are found, strangers are not."""
    with subprocess.Popen(
        ["sh", "-c", "sleep 30 & echo $!; wait"], stdout=subprocess.PIPE, text=True
    ) as shell:
        assert shell.stdout is not None
        sleeper = int(shell.stdout.readline())
        found = _descendants(os.getpid())
        os.kill(sleeper, 15)

    assert {shell.pid, sleeper} <= found
    assert os.getpid() not in found
    assert 1 not in found
