"""Calls the hooks of a pair until they say that they are done.

Main functions: `call`, for a step; `attempt`, where the run goes on without it; and
`put_right`, what is left to people when a run is undone. A call is in the journal
before it is made, with an id that stays the same: it may be made again, also by another
machine. What a hook says is not believed: the steps look at its effect.

One call is a command in a process of its own (`run_command`), or a POST (`post`): a
`Call` is what the hook gets, a `HookAnswer` what it says. Neither takes longer than it
may: a command that hangs is ended with all that it started. What goes wrong is in the
answer. `masked` hides secrets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
import contextlib
from dataclasses import dataclass
from enum import StrEnum
import json
import os
import re
import select
import signal
import ssl
import subprocess
import time
from typing import TYPE_CHECKING

from pydantic import SecretStr

from mirror.clusters.bounded import UNPACKED
from mirror.config import environment
from mirror.config.section import HIDDEN, is_file, may_hide_secrets, settings, traits
from mirror.errors import MirrorError, UnreachableError, system_error
from mirror.pairs.journal import Kind
from mirror.recovery.stage import Finding, Level, StepError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

    from mirror.config.pair_settings import HookConfig, PairConfig
    from mirror.config.schema import MirrorConfig
    from mirror.recovery.stage import Notes, Stage


STOP_PRODUCERS = "stop_producers"
STOP_CONSUMERS = "stop_consumers"
REDIRECT_PRODUCERS = "redirect_producers"
START_CONSUMERS = "start_consumers"
_STEPS = {
    STOP_PRODUCERS: "fence",
    STOP_CONSUMERS: "consumers",
    REDIRECT_PRODUCERS: "redirect",
    START_CONSUMERS: "redirect",
}
_PAUSE_SECONDS = 1.0
_SECRET_FILES = ("password_file", "secret_file", "token_file")
_OUTPUT_BYTES = 4096
"""Of what a hook prints, the end is kept."""
_READ_BYTES = 4 * _OUTPUT_BYTES
"""More, since secrets are hidden before the rest is cut off."""
_LARGEST_ANSWER = 1 << 20
_LATER = 75
"""EX_TEMPFAIL of sysexits.h."""
_YES = {True: "true", False: "false"}
_GRACE_SECONDS = 1.0
_SHORTEST_SECRET = 4
_NAMED_SECRET = re.compile(
    r"(?i)((?:password|passwd|secret|token|api[-_]?key|authorization)['\"]?\s*[=:]\s*"
    r"['\"]?(?:(?:bearer|basic)\s+)?|\bbearer\s+|://[^\s/:@]*:)[^\s'\",;&@]+"
)


def has(pair: PairConfig, hook: str) -> bool:
    return _settings(pair, hook) is not None


def unusable(pair: PairConfig) -> Iterator[Finding]:
    """Hooks that cannot be called on this machine."""
    for name, hook in pair.hooks.given() if pair.hooks is not None else ():
        if why := hook.why_unusable:
            yield Finding(
                level=Level.NOT_READY,
                subject=f"hook {name}",
                reason=why,
                fix="correct the hook, or run this where switches are run",
                refuses=(Kind.SWITCH,),
            )


def shown(stage: Stage, hook: str) -> dict[str, object]:
    """What would be called, with secrets hidden; empty if there is no such hook."""
    given = _settings(stage.pair, hook)
    if given is None:
        return {}
    secrets = secrets_of(stage.config, given)
    if given.command is None:
        return {"url": masked(given.url or "", secrets)}
    words = []
    before = ""
    for word in given.command:
        # `--token 123` is a secret as much as `--token=123` is.
        is_named = masked(f"{before}=1", ()) != f"{before}=1"
        words.append(HIDDEN if is_named else masked(word, secrets))
        before = "" if is_named or "=" in word else word
    return {"command": words}


def call(stage: Stage, hook: str) -> str:
    """Call a hook until it is done; returns what to say about it, nothing if there is
    none. One that was done before is not called again.

    Raises:
        StepError: it failed, or was not done in time.
        ClusterError: the journal cannot be written.
    """
    given = _settings(stage.pair, hook)
    if given is None:
        return ""
    step = _STEPS[hook]
    noted = dict(stage.notes.get(step, {}).get(hook, {}))
    if noted.get("said") == HookReply.DONE:
        return f"{hook} was called before"
    asked = Call(
        hook=hook,
        run=stage.run,
        step=step,
        call=f"{stage.run}-{hook}",
        source=stage.flow.source,
        target=stage.flow.target,
        planned=stage.planned,
    )
    stage.note({hook: {"call": asked.call, "at": round(time.time(), 3)}})
    answer = _until_done(stage, given, asked)
    output = masked(answer.output, secrets_of(stage.config, given))
    why = masked(answer.why, secrets_of(stage.config, given))
    stage.note({hook: {"call": asked.call, "said": answer.said, "output": output}})
    if answer.said is not HookReply.DONE:
        last = output.strip().splitlines()[-1:]
        said = "failed" if answer.said is HookReply.FAILED else "still says: not yet"
        raise StepError(": ".join(filter(None, [f"hook {hook} {said}", why, *last])))
    return f"{hook} called"


def attempt(stage: Stage, hook: str) -> tuple[str, tuple[str, ...]]:
    """The same in a failover, which goes on without those who cannot be told: what to
    say, and warnings.

    Raises:
        ClusterError: the journal cannot be written.
    """
    try:
        return call(stage, hook), ()
    except StepError as error:
        return "", (str(error),)


def put_right(runs: Iterable[Mapping[str, Notes]], source: str) -> str:
    """After runs were undone, given their notes by step: which hooks were called, empty
    if none was.
    """
    noted = [*runs]
    called = [
        hook
        for hook, step in _STEPS.items()
        if any(hook in notes.get(step, {}) for notes in noted)
    ]
    if not called:
        return ""
    return (
        f"hooks that were called, and are not taken back: {', '.join(called)}; what "
        f"they stopped on {source} must be started there again"
    )


def _until_done(stage: Stage, given: HookConfig, asked: Call) -> HookAnswer:
    """Raises FencedError: a later operator took over, so that another run may have
    moved the applications since.
    """
    while True:
        left = max(stage.deadline - time.monotonic(), 0.0)
        seconds = min(left, given.timeout_seconds or left)
        if given.command is not None:
            answer = run_command(given.command, asked, seconds=seconds)
        else:
            answer = post(given.url or "", given.token_file, asked, seconds=seconds)
        if answer.said is not HookReply.LATER:
            return answer
        stage.tell(f"{asked.hook} says: not yet")
        # Another call needs time as well, or it would be ended at once.
        if time.monotonic() + 2 * _PAUSE_SECONDS > stage.deadline:
            return answer
        time.sleep(_PAUSE_SECONDS)
        while not _has_place(stage):
            if time.monotonic() > stage.deadline:
                return answer
            time.sleep(_PAUSE_SECONDS)


def _has_place(stage: Stage) -> bool:
    """False: no journal answers now. Raises FencedError."""
    try:
        stage.hold()
    except UnreachableError:
        return False
    return True


def _settings(pair: PairConfig, hook: str) -> HookConfig | None:
    return None if pair.hooks is None else getattr(pair.hooks, hook)


def secrets_of(config: MirrorConfig, *hooks: HookConfig) -> set[str]:
    """All that this configuration keeps secret, as far as it can be read here."""
    found = set()
    registries = (each.schema_registry for each in config.clusters.values())
    given = (each for each in registries if each is not None)
    for section in (*config.clusters.values(), *given, config.service, *hooks):
        for name, info in settings(type(section)).items():
            value = getattr(section, name)
            if isinstance(value, SecretStr):
                found.add(value.get_secret_value())
            elif isinstance(value, Mapping) and may_hide_secrets(info):
                secret = traits(info).secret_keys
                found |= {
                    str(each)
                    for key, each in value.items()
                    if secret is None or secret.search(key)
                }
            elif value is not None and is_file(info) and name.endswith(_SECRET_FILES):
                from mirror.observing.access import read_secret  # noqa: PLC0415  few have any

                try:
                    found.add(read_secret(value, None))
                except MirrorError:  # then the hook could not read it, either
                    continue
    return found


# ---- one call ----


class HookReply(StrEnum):
    """What a hook says."""

    DONE = "done"
    LATER = "not yet"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What a hook gets, as a document and as variables."""

    hook: str
    run: str
    step: str
    call: str
    """The same however often a run calls the hook."""
    source: str
    target: str
    planned: bool

    @property
    def document(self) -> dict[str, str | bool]:
        return {
            "hook": self.hook,
            "run": self.run,
            "step": self.step,
            "call": self.call,
            "from": self.source,
            "to": self.target,
            "planned": self.planned,
        }

    @property
    def environment(self) -> dict[str, str]:
        return {
            f"MIRROR_{name.upper()}": value if isinstance(value, str) else _YES[value]
            for name, value in self.document.items()
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class HookAnswer:
    said: HookReply
    why: str = ""
    """How it failed."""
    output: str = ""
    """The end of what it printed, or of the answer's body."""


def run_command(command: Collection[str], call: Call, *, seconds: float) -> HookAnswer:
    """Run a command; its exit code is the answer."""
    until = time.monotonic() + seconds
    try:
        process = subprocess.Popen(
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            bufsize=0,
            start_new_session=True,  # so that all that it starts can be ended
            env={**environment.without_secrets(os.environ), **call.environment},
        )
    except (OSError, ValueError) as error:
        return HookAnswer(said=HookReply.FAILED, why=f"it cannot be run: {error}")
    with process:
        try:
            code, output = _watch(process, call, until)
        finally:
            if process.poll() is None:
                _end(process)
    return _of_code(code, output.decode(errors="replace"), seconds)


def _of_code(code: int | None, output: str, seconds: float) -> HookAnswer:
    if code == 0:
        return HookAnswer(said=HookReply.DONE, output=output)
    if code == _LATER:
        return HookAnswer(said=HookReply.LATER, output=output)
    why = f"exit code {code}"
    if code is None:
        why = f"no answer within {seconds:.1f} s"
    elif code < 0:
        why = f"it was ended by {signal.Signals(-code).name}"
    return HookAnswer(said=HookReply.FAILED, why=why, output=output)


def post(
    url: str, token_file: Path | None, call: Call, *, seconds: float
) -> HookAnswer:
    """Send a POST; the status of the answer is what the hook says."""
    import httpx  # noqa: PLC0415  most hooks are commands

    from mirror.observing.access import read_secret  # noqa: PLC0415

    until = time.monotonic() + seconds
    raw = b""
    try:
        token = read_secret(token_file, None)
        # No redirects: the token goes where it was meant to go.
        with httpx.stream(
            "POST",
            url,
            json=call.document,
            headers={
                **UNPACKED,
                **({"Authorization": f"Bearer {token}"} if token else {}),
            },
            verify=ssl.create_default_context() if url.startswith("https:") else False,
            timeout=seconds,
        ) as answer:
            for part in answer.iter_raw(_READ_BYTES):  # as it comes: nothing unpacks
                raw = (raw + part)[-_READ_BYTES:]
                if answer.num_bytes_downloaded > _LARGEST_ANSWER:
                    break
                if time.monotonic() > until:
                    raise httpx.ReadTimeout("")
    except httpx.TimeoutException:
        return HookAnswer(
            said=HookReply.FAILED, why=f"no answer within {seconds:.1f} s"
        )
    except (MirrorError, httpx.HTTPError, httpx.InvalidURL, ImportError) as error:
        return HookAnswer(said=HookReply.FAILED, why=str(system_error(error)))
    except ValueError as error:  # a token that no header can carry, or a proxy
        return HookAnswer(
            said=HookReply.FAILED, why=f"it cannot be asked: {type(error)}"
        )
    said = HookReply.FAILED
    if answer.status_code == httpx.codes.ACCEPTED:
        said = HookReply.LATER
    elif answer.is_success:
        said = HookReply.DONE
    why = f"status {answer.status_code} {answer.reason_phrase}".rstrip()
    return HookAnswer(said=said, why=why, output=raw.decode(errors="replace"))


def masked(text: str, secrets: Collection[str]) -> str:
    """The end of a text, with stars in place of these secrets, and of what looks like
    one.
    """
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= _SHORTEST_SECRET:
            text = text.replace(secret, HIDDEN)
    text = _NAMED_SECRET.sub(rf"\g<1>{HIDDEN}", text)
    return text.encode()[-_OUTPUT_BYTES:].decode(errors="ignore")


def _watch(
    process: subprocess.Popen[bytes], call: Call, until: float
) -> tuple[int | None, bytes]:
    """The exit code, None if it runs too long; and the end of what it printed."""
    assert process.stdin is not None
    assert process.stdout is not None
    with contextlib.suppress(BrokenPipeError), process.stdin:  # it need not read it
        process.stdin.write(json.dumps(call.document).encode())
    output, there = b"", True
    while (left := until - time.monotonic()) > 0:
        pause = min(left, 0.05)
        if there and select.select([process.stdout], [], [], pause)[0]:
            part = os.read(process.stdout.fileno(), _READ_BYTES)
            output = (output + part)[-_READ_BYTES:]
            there = bool(part)
            continue
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(0 if there else pause), output
    return None, output


def _end(process: subprocess.Popen[bytes]) -> None:
    """End it and all that it started: first kindly."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, sign)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_SECONDS)
