"""Hooks of a pair: how they are configured, and one call of a command or a URL."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
import json
import os
from pathlib import Path
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from pydantic import SecretStr
import pytest

from mirror.config.load import load
from mirror.errors import ConfigError, FencedError, UnreachableError
from mirror.pairs.journal import Kind
from mirror.recovery import hooks
from mirror.recovery.hooks import Call, HookReply
from mirror.recovery.stage import Stage, StepError
from mirror.recovery.steps import STEPS
from tests.harness.configurations import configuration

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.unit

CALL = Call(
    hook="stop_producers", run="7a", step="fence", call="7a-stop_producers",
    source="A", target="B", planned=True,
)  # fmt: skip
CLUSTERS = {
    "A": {"bootstrap_servers": "a:1"},
    "B": {
        "bootstrap_servers": "b:1",
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "PLAIN",
        "sasl_username": "mirror",
        "sasl_password": "s3same-b",
    },
}


def python(code: str, *words: str) -> list[str]:
    return [sys.executable, "-c", code, *words]


def pair(**settings: Any) -> dict[str, Any]:
    return {
        "clusters": CLUSTERS,
        "flows": {"A->B": {}, "B->A": {}},
        "recovery": {"A<->B": {"active": "A", **settings}},
    }


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"stop_producer": {"command": ["x"]}}, 'did you mean "stop_producers"'),
        ({"stop_producers": {}}, ".stop_producers.command: is missing"),
        ({"stop_producers": {"command": "x y"}}, ".command: not a list of words"),
        ({"stop_producers": {"command": [" "]}}, "the first word is empty"),
        ({"stop_producers": {"command": ["x", 3]}}, "3 is not text"),
        (
            {"stop_producers": {"command": ["x"], "url": "https://x/"}},
            ".url: command says the same; keep one",
        ),
        (
            {"stop_producers": {"command": ["x"], "token_file": "/x"}},
            ".token_file: a command does not use it",
        ),
        ({"stop_producers": {"url": "https://me:s3same@x/"}}, "not a valid address"),
        (
            {"stop_producers": {"command": ["x"], "timeout_seconds": 0}},
            ".timeout_seconds: 0 is too small",
        ),
    ],
)
def test_a_hook_that_cannot_be_meant(
    tmp_path: Path, settings: dict[str, Any], text: str
) -> None:
    """One message, with the setting's whole name and never the address."""
    file = tmp_path / "mirror.yaml"
    file.write_text(json.dumps(pair(hooks=settings)))
    with pytest.raises(ConfigError) as found:
        load(file)
    (problem,) = found.value.problems
    assert problem.startswith('recovery."A<->B".hooks.stop_producer')
    assert text in problem
    assert "s3same" not in problem


def test_a_fence_by_hook_needs_the_hook(tmp_path: Path) -> None:
    """Nothing else would stop the producers."""
    file = tmp_path / "mirror.yaml"
    file.write_text(json.dumps(pair(fence="hook")))
    with pytest.raises(ConfigError, match="nothing stops producers without the hook"):
        load(file)


def stage(noted: list[Any], *, seconds: float = 20.0, **given: Any) -> Stage:
    config = configuration(pair(hooks=given))
    return Stage(
        kind=Kind.SWITCH,
        config=config,
        pair=config.recovery["A<->B"],
        flow=config.flows["A->B"],
        reverse=config.flows["B->A"],
        source_or_none=None,
        target_or_none=None,
        notes={step: {} for step in STEPS},
        note=noted.append,
        tell=noted.append,
        deadline=time.monotonic() + seconds,
        run="7a",
    )


def test_a_command_that_is_no_file_is_refused() -> None:
    """Before anything is done, with its name; what is on the PATH is a file."""
    there = stage([], stop_producers={"command": ["sh", "-c", "true"]})
    assert not [*hooks.unusable(there.pair)]
    missing = stage([], stop_producers={"command": ["/no/such/hook"]})
    (found,) = hooks.unusable(missing.pair)
    assert str(found).startswith('hook stop_producers: "/no/such/hook" is no file')
    assert found.refuses == (Kind.SWITCH,)


def test_what_would_be_called_is_shown_without_secrets() -> None:
    """Those that are named, and those of the configuration; other words stay."""
    words = ["stop", "--token", "abc", "--key-file", "/k", "password=x", "s3same-b"]
    shown = hooks.shown(stage([], stop_producers={"command": words}), "stop_producers")
    assert shown["command"] == [
        *("stop", "--token", "***", "--key-file", "/k", "password=***", "***"),
    ]
    url = {"url": "https://ops.example.com/stop?token=abc"}
    shown = hooks.shown(stage([], stop_producers=url), "stop_producers")
    assert shown == {"url": "https://ops.example.com/stop?token=***"}
    assert hooks.shown(stage([]), "stop_consumers") == {}


def test_a_hook_that_says_not_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is called again with the same id, until it is done; the journal has the call
    before it is made, and afterwards what it said, without the configuration's secrets.
    """
    monkeypatch.setattr(hooks, "_PAUSE_SECONDS", 0.01)
    calls = tmp_path / "calls"
    code = (
        "import os, sys; file = open(sys.argv[1], 'a');"
        "file.write(os.environ['MIRROR_CALL'] + '\\n'); file.close();"
        "print('with s3same-b, password=other');"
        "sys.exit(75 * (len(open(sys.argv[1]).readlines()) < 3))"
    )
    noted: list[Any] = []
    at = stage(noted, stop_producers={"command": python(code, str(calls))})

    assert hooks.call(at, hooks.STOP_PRODUCERS) == "stop_producers called"

    assert calls.read_text().splitlines() == ["7a-stop_producers"] * 3
    first, *told, last = noted
    assert first[hooks.STOP_PRODUCERS]["call"] == "7a-stop_producers"
    assert told == ["stop_producers says: not yet"] * 2
    assert last == {
        hooks.STOP_PRODUCERS: {
            "call": "7a-stop_producers",
            "said": "done",
            "output": "with ***, password=***\n",
        }
    }


def test_an_operator_that_was_overtaken_calls_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hook said "not yet", and another operator took over meanwhile: that one calls
    it, and may have moved the applications on since. While no journal tells, nothing
    is called.
    """
    monkeypatch.setattr(hooks, "_PAUSE_SECONDS", 0.01)
    calls = tmp_path / "calls"
    code = "import sys; open(sys.argv[1], 'a').write('x'); sys.exit(75)"
    answers = [UnreachableError("A is silent"), UnreachableError("B, too"), None]
    answers.append(FencedError("another owner took over"))

    def hold() -> None:
        if (error := answers.pop(0)) is not None:
            raise error

    at = stage([], stop_producers={"command": python(code, str(calls))})
    with pytest.raises(FencedError, match="another owner took over"):
        hooks.call(replace(at, hold=hold), hooks.STOP_PRODUCERS)
    assert calls.read_text() == "xx"
    assert not answers


def test_a_hook_that_is_never_done() -> None:
    """The step's deadline ends it."""
    at = stage([], seconds=1.5, stop_producers={"command": ["sh", "-c", "exit 75"]})
    with pytest.raises(StepError, match="stop_producers still says: not yet"):
        hooks.call(at, hooks.STOP_PRODUCERS)


def test_a_fence_that_nobody_confirms() -> None:
    """With `fence: confirmed` the user is asked whether producers have stopped, and
    without a yes the step fails before it looks at any log.
    """
    asked: list[str] = []

    def no(question: str) -> bool:
        asked.append(question)
        return False

    config = configuration(pair(fence="confirmed"))
    at = replace(stage([]), pair=config.recovery["A<->B"], agree=no)
    with pytest.raises(StepError, match="producers of A are not confirmed"):
        STEPS["fence"].do(at)
    assert asked == ["Have all producers of A stopped?"]


def test_what_a_command_gets() -> None:
    """The same as variables and as JSON on stdin; arguments stay as they are."""
    code = (
        "import json, os, sys; print(json.dumps([json.load(sys.stdin), sys.argv[1],"
        "{k: v for k, v in os.environ.items() if k.startswith('MIRROR_')}]))"
    )
    answer = hooks.run_command(python(code, "$HOME; x"), CALL, seconds=20)
    assert answer.said is HookReply.DONE
    document, word, variables = json.loads(answer.output)
    assert document == {
        "run": "7a", "step": "fence", "hook": "stop_producers",
        "call": "7a-stop_producers", "from": "A", "to": "B", "planned": True,
    }  # fmt: skip
    assert word == "$HOME; x"
    assert variables["MIRROR_FROM"] == "A"
    assert variables["MIRROR_PLANNED"] == "true"
    assert len([n for n in variables if n[7:].lower() in document]) == len(document)


def test_a_command_gets_no_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a configuration whose secrets come from variables, the environment of the
    hook's process has none; the user's own variables and other settings stay.
    """
    config = tmp_path / "mirror.yaml"
    clusters = {
        "A": {
            **CLUSTERS["B"],
            "bootstrap_servers": "a:1",
            "schema_registry": {"url": "http://r:1"},
        },
        "B": CLUSTERS["A"],
    }
    config.write_text(json.dumps({**pair(), "clusters": clusters}))
    secrets = {
        "MIRROR_CLUSTERS__A__sasl_password": "s3cret-1",
        "MIRROR_CLUSTERS__a__SCHEMA_REGISTRY__headers": '{"X-Key": "s3cret-2"}',
        "MIRROR_SERVICE__http_token": "s3cret-3",
        "MIRROR_SERVICE__spark": '{"spark.ssl.keyPassword": "s3cret-4"}',
    }
    kept = {
        "MIRROR_CLUSTERS__B__bootstrap_servers": "elsewhere:1",
        "MIRROR_CLUSTERS__A__ssl_ca_file": __file__,
        "MIRROR_TOKEN_FILE": "/etc/token",
        "KUBECONFIG": "/etc/kube",
        "GATEWAY_PASSWORD": "the hook's own",
    }
    for name, value in {**secrets, **kept}.items():
        monkeypatch.setenv(name, value)
    loaded, _ = load(config)
    assert loaded.service.http_token == SecretStr("s3cret-3")
    out = tmp_path / "environment"
    code = (
        "import os, sys; file = open(sys.argv[1], 'wb');"
        "file.write(open('/proc/self/environ', 'rb').read())"
    )
    assert (
        hooks.run_command(python(code, str(out)), CALL, seconds=20).said
        is HookReply.DONE
    )
    found = dict(
        line.split("=", 1) for line in out.read_text().split("\0") if "=" in line
    )
    assert "s3cret" not in out.read_text()
    assert kept.items() <= found.items()
    assert {"PATH", "HOME"} <= found.keys()


def test_a_command_may_run_mirror(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It warns of no variable that a hook gets."""
    monkeypatch.delenv("MIRROR_HOOK", raising=False)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    config = tmp_path / "mirror.yaml"
    config.write_text(json.dumps(pair()))
    command = [sys.executable, "-m", "mirror", "config", "show", "-c", str(config)]
    without_table = ["sh", "-c", '"$@" 2>&1 >/dev/null', "-", *command]
    answer = hooks.run_command(without_table, CALL, seconds=60)
    assert (answer.said, answer.output) == (HookReply.DONE, "")


def test_a_command_that_fails() -> None:
    """Any other exit code, a signal, and no program: failed, each with the reason."""
    failed = hooks.run_command(["sh", "-c", "echo no; exit 3"], CALL, seconds=20)
    assert (failed.said, failed.why) == (HookReply.FAILED, "exit code 3")
    assert failed.output == "no\n"
    killed = hooks.run_command(["sh", "-c", "kill -9 $$"], CALL, seconds=20)
    assert (killed.said, killed.why) == (HookReply.FAILED, "it was ended by SIGKILL")
    missing = hooks.run_command(["/no/such/hook"], CALL, seconds=20)
    assert missing.said is HookReply.FAILED
    assert "No such file" in missing.why


def test_a_command_that_hangs(tmp_path: Path) -> None:
    """It is ended with all that it started, also what ignores SIGTERM."""
    pid = tmp_path / "pid"
    script = f"trap '' TERM; sleep 600 & echo $! > {pid}; echo begun; wait; sleep 600"
    began = time.monotonic()
    answer = hooks.run_command(["sh", "-c", script], CALL, seconds=0.5)
    assert answer.said is HookReply.FAILED
    assert answer.why == "no answer within 0.5 s"
    assert answer.output == "begun\n"
    assert time.monotonic() - began < 10
    with pytest.raises(ProcessLookupError):
        _require_gone(int(pid.read_text()))


def _require_gone(pid: int) -> None:
    """Raises ProcessLookupError once it is no more, or only waits to be reaped."""
    for _ in range(100):
        os.kill(pid, 0)
        if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
            raise ProcessLookupError
        time.sleep(0.05)


def test_a_command_that_leaves_something_running() -> None:
    """It is done when it ends, though what it started holds its output open."""
    began = time.monotonic()
    answer = hooks.run_command(["sh", "-c", "sleep 5 & echo done"], CALL, seconds=4)
    assert (answer.said, answer.output) == (HookReply.DONE, "done\n")
    assert time.monotonic() - began < 3


def test_the_end_of_a_long_output() -> None:
    """4 KB are kept, and a secret is hidden also where it begins before them."""
    text = f"begin s3same-b{'x' * 4090}end\n"
    kept = hooks.masked(text, ["s3same-b"])
    assert len(kept.encode()) == 4096
    assert "s3same" not in kept
    assert kept.endswith("xend\n")


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("Authorization: Bearer abc.def", "Authorization: Bearer ***"),
        ('{"token": "abc"}', '{"token": "***"}'),
        ("API_KEY=abc next", "API_KEY=*** next"),
        ("https://me:abc@host/path", "https://me:***@host/path"),
        ("3 pods of token-service", "3 pods of token-service"),
    ],
)
def test_what_looks_like_a_secret(text: str, kept: str) -> None:
    """It is hidden although the configuration does not know it."""
    assert hooks.masked(text, []) == kept


@contextmanager
def server(*answers: tuple[int, float]) -> Iterator[tuple[str, list[Any]]]:
    """Its address and what it was asked; each answer is a status, after seconds."""
    asked: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            asked.append((self.headers["Authorization"], json.loads(body)))
            status, seconds = answers[len(asked) - 1]
            time.sleep(seconds)
            self.send_response(status)
            self.send_header("Location", "/elsewhere")
            self.end_headers()
            self.wfile.write(b"x" * 100)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as listening:
        thread = threading.Thread(target=listening.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.server_port}/stop", asked
        finally:
            listening.shutdown()
            thread.join()


def test_a_post(tmp_path: Path) -> None:
    """2xx is done, 202 is not yet, anything else failed: redirects are not followed,
    since the token belongs to the address. The token's file is read for each call.
    """
    token = tmp_path / "token"
    with server((204, 0), (202, 0), (307, 0), (500, 0)) as (url, asked):
        found = []
        for number in range(4):
            token.write_text(f"t-{number}\n")
            found.append(hooks.post(url, token, CALL, seconds=5))
    assert [each.said for each in found] == [
        HookReply.DONE, HookReply.LATER, HookReply.FAILED, HookReply.FAILED,
    ]  # fmt: skip
    assert found[2].why == "status 307 Temporary Redirect"
    assert found[3].output == "x" * 100
    assert asked == [(f"Bearer t-{n}", CALL.document) for n in range(4)]


def test_a_url_that_does_not_answer(tmp_path: Path) -> None:
    """One that hangs, one that nobody listens at, and a token that cannot be read."""
    with server((200, 1.0)) as (url, _):
        slow = hooks.post(url, None, CALL, seconds=0.3)
    assert (slow.said, slow.why) == (HookReply.FAILED, "no answer within 0.3 s")
    gone = hooks.post(url, None, CALL, seconds=5)
    assert gone.said is HookReply.FAILED
    assert "refused" in gone.why
    unread = hooks.post(url, tmp_path / "none", CALL, seconds=5)
    assert unread.said is HookReply.FAILED
    assert "No such file" in unread.why


def test_what_is_left_to_people() -> None:
    """Hooks that were called are named in their order, those of all runs that were
    undone; nothing is said without any.
    """
    assert hooks.put_right([{"fence": {"cut": {}}}], "A") == ""
    notes = [{"consumers": {"stop_consumers": {}}}, {"fence": {"stop_producers": {}}}]
    assert "stop_producers, stop_consumers; what" in hooks.put_right(notes, "A")
