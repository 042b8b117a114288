"""One call of a hook: a command in a process of its own, or a POST.

Main types: `Call`, what a hook gets, and `HookAnswer`, what it says. Main functions:
`run` and `post`, which never take longer than they may: a command that hangs is ended
with all that it started. What goes wrong is in the answer. `masked` hides secrets.
"""

from __future__ import annotations

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

from mirror.clusters.bounded import UNPACKED
from mirror.config import environment
from mirror.config.traits import HIDDEN
from mirror.errors import MirrorError, system_error

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

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


class Said(StrEnum):
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
    said: Said
    why: str = ""
    """How it failed."""
    output: str = ""
    """The end of what it printed, or of the answer's body."""


def run(command: Collection[str], call: Call, *, seconds: float) -> HookAnswer:
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
        return HookAnswer(said=Said.FAILED, why=f"it cannot be run: {error}")
    with process:
        try:
            code, output = _watch(process, call, until)
        finally:
            if process.poll() is None:
                _end(process)
    return _of_code(code, output.decode(errors="replace"), seconds)


def _of_code(code: int | None, output: str, seconds: float) -> HookAnswer:
    if code == 0:
        return HookAnswer(said=Said.DONE, output=output)
    if code == _LATER:
        return HookAnswer(said=Said.LATER, output=output)
    why = f"exit code {code}"
    if code is None:
        why = f"no answer within {seconds:.1f} s"
    elif code < 0:
        why = f"it was ended by {signal.Signals(-code).name}"
    return HookAnswer(said=Said.FAILED, why=why, output=output)


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
        return HookAnswer(said=Said.FAILED, why=f"no answer within {seconds:.1f} s")
    except (MirrorError, httpx.HTTPError, httpx.InvalidURL, ImportError) as error:
        return HookAnswer(said=Said.FAILED, why=str(system_error(error)))
    except ValueError as error:  # a token that no header can carry, or a proxy
        return HookAnswer(said=Said.FAILED, why=f"it cannot be asked: {type(error)}")
    said = Said.FAILED
    if answer.status_code == httpx.codes.ACCEPTED:
        said = Said.LATER
    elif answer.is_success:
        said = Said.DONE
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
