"""A copy loop in Go with franz-go: what a team with time and skill writes by hand.

Main type: `FranzGo`. Its source stands in `franz_go/`; it is built once and kept in
the cache by the hash of its source. Exactly once and with one header added, as mirror
does it; no retries, no new topics, no metrics.
"""

from __future__ import annotations

from dataclasses import dataclass
import hashlib
import os
from pathlib import Path
import shutil
import subprocess
from typing import TYPE_CHECKING

from mirror.playground.jars import cache_folder, cache_lock
from tests.benchmarks.processes import PeerError, Service

if TYPE_CHECKING:
    from tests.benchmarks.peers.peer import Task

_SOURCE = Path(__file__).parent / "franz_go"


@dataclass(frozen=True, slots=True, kw_only=True)
class FranzGo:
    @property
    def about(self) -> str:
        return "copy loop in Go with franz-go, exactly once, header stamped, tuned"

    def missing(self) -> str | None:
        try:
            self.prepare()
        except PeerError as error:
            return str(error)
        return None

    def prepare(self) -> None:
        with cache_lock("franz-go"):
            if not _program().exists():
                _build(_program())

    def start(self, task: Task) -> Service:
        if task.security:
            raise PeerError("this loop speaks plaintext only")
        return Service(
            [
                _program(),
                *("-source", task.source, "-target", task.target),
                *("-topic", task.topic, "-alias", task.alias),
                *("-compression", task.compression),
            ],
            log=task.folder / "franz-go.log",
        )


def _program() -> Path:
    sources = b"".join(
        (_SOURCE / name).read_bytes() for name in ("main.go", "go.mod", "go.sum")
    )
    return cache_folder() / f"franz-go-{hashlib.sha256(sources).hexdigest()[:16]}"


def _build(program: Path) -> None:
    if shutil.which("go") is None:
        raise PeerError("franz-go needs Go, and there is no `go` on the PATH")
    # A build that is interrupted must not leave half a program.
    half = program.with_suffix(".half")
    built = subprocess.run(
        ["go", "build", "-trimpath", "-buildvcs=false", "-o", half, "."],
        cwd=_SOURCE,
        env={**os.environ, "GOWORK": "off"},
        capture_output=True,
        text=True,
        check=False,
    )
    if built.returncode:
        raise PeerError(f"franz-go cannot be built: {built.stderr.strip()}")
    half.replace(program)
