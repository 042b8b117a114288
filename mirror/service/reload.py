"""Reads the configuration again when its file has changed, or on request.

Main types: `Watch`, a thread that checks the file's content, and `Reading`, the result.
A file that is still changing is read once it is stable. `Watch` reads as `mirror run`
did at startup and decides nothing: `service` accepts or refuses a reading. Before that,
`AddressCheck` finds out whether new addresses lead to the clusters that flows run with.
"""

from __future__ import annotations

from dataclasses import dataclass
import hashlib
import threading
import time
from typing import TYPE_CHECKING

import structlog

from mirror.clusters.cluster import Cluster
from mirror.config.mm2.text import files_named
from mirror.config.section import Effect
from mirror.errors import ConfigError, MirrorError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from mirror.config.cluster_settings import ClusterConfig
    from mirror.config.schema import MirrorConfig

log = structlog.get_logger()

_ASLEEP_SECONDS = 1.0
"""While the file is not watched: how often to check whether it should be."""
_AGAIN_SECONDS = 0.2
_PATIENCE_SECONDS = 10.0
"""A new address that takes longer does not answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The configuration as of now: the file, overlaid with flags and variables."""

    at: float
    """When it was read, epoch seconds."""
    config: MirrorConfig | None = None
    """None if it is unusable, for the reasons in `problems`."""
    warnings: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


class Watch:
    """Reads the configuration again, in its own thread."""

    def __init__(
        self,
        file: Path,
        read: Callable[[], tuple[MirrorConfig, tuple[str, ...]]],
    ) -> None:
        """`read` returns the configuration and warnings, or raises `ConfigError`. The
        current content counts as known: create this before the first reading.
        """
        self.file = file
        self._read = read
        self._known = self._seen = _content(file)
        self._seconds: float | None = None
        self._asked = threading.Event()
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._reading: Reading | None = None
        # A daemon, so that a file system that hangs does not keep the service alive.
        self._thread = threading.Thread(
            target=self._run, name="mirror-reload", daemon=True
        )

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        self._asked.set()

    def look_every(self, seconds: float | None) -> None:
        """How often to check the file; None: read it only on `ask`."""
        self._seconds = seconds

    def ask(self) -> None:
        """Read it now, changed or not."""
        self._asked.set()

    def take(self) -> Reading | None:
        """The newest reading, once; None if there is none since the last call."""
        with self._lock:
            reading, self._reading = self._reading, None
        return reading

    def _run(self) -> None:
        while not self._closing.is_set():
            asked = self._asked.wait(self._seconds or _ASLEEP_SECONDS)
            self._asked.clear()
            if self._closing.is_set():
                return
            due = asked or (self._seconds is not None and self.changed())
            if due and not self._take_in() and asked:
                self._closing.wait(_AGAIN_SECONDS)
                self._asked.set()

    def changed(self) -> bool:
        """Check once: whether the file has changed since it was last read, but not
        since the last check, so that its writer has finished.
        """
        before, self._seen = self._seen, _content(self.file)
        return self._seen != self._known and self._seen == before

    def _take_in(self) -> bool:
        """Read it; False if it changed meanwhile and must be read once more."""
        self._known = self._seen = _content(self.file)
        at = time.time()
        try:
            config, warnings = self._read()
            reading = Reading(at=at, config=config, warnings=warnings)
        except ConfigError as error:
            reading = Reading(at=at, problems=tuple(error.problems))
        except Exception as error:
            log.exception("configuration cannot be read", file=str(self.file))
            what = f"{self.file}: {type(error).__name__}: {error}"[:300]
            reading = Reading(at=at, problems=(what,))
        if _content(self.file) != self._known:
            return False
        with self._lock:
            self._reading = reading
        return True


def _content(file: Path) -> bytes:
    """A digest of the file and of those it refers to; empty while it cannot be read.

    Contents instead of times, since Kubernetes changes a link two levels above the
    file, and an editor's new file may have the same time and size.
    """
    try:
        text = file.read_bytes()
    except OSError:
        return b""
    digest = hashlib.sha256(text)
    for other in files_named(text.decode("utf-8", errors="replace")):
        digest.update(b"\0")
        try:
            digest.update(other.read_bytes())
        except (OSError, ValueError):  # ValueError: no path at all
            digest.update(b"?")
    return digest.digest()


class AddressCheck:
    """Asks new addresses which clusters these are, in its own thread."""

    def __init__(
        self, clusters: Sequence[ClusterConfig], ids: Mapping[str, str]
    ) -> None:
        """`ids`: by alias, those that the clusters must have. Where none is known, no
        run has begun, and whatever is there is right.
        """
        self._clusters = clusters
        self._ids = ids
        self._problems: tuple[str, ...] | None = None
        # A daemon, so that an address that hangs does not keep the service alive.
        threading.Thread(target=self._run, name="mirror-addresses", daemon=True).start()

    @property
    def problems(self) -> tuple[str, ...] | None:
        """What is wrong with the addresses; None while that is being found out."""
        return self._problems

    def _run(self) -> None:
        asked = [each for each in self._clusters if self._ids.get(each.alias)]
        self._problems = tuple(filter(None, map(self._problem, asked)))

    def _problem(self, config: ClusterConfig) -> str:
        wanted = self._ids[config.alias]
        seconds = min(config.request_timeout_seconds, _PATIENCE_SECONDS)
        quick = config.model_copy(update={"request_timeout_seconds": seconds})
        cluster = Cluster(quick, client_id="mirror.addresses")
        what = f"clusters.{config.alias}.bootstrap_servers"
        try:
            cluster.connect()
        except MirrorError as error:
            return f"{what}: {error}; once the new addresses answer, send SIGHUP"
        except Exception as error:
            log.exception("new addresses cannot be asked", cluster=config.alias)
            return f"{what}: {type(error).__name__}: {error}"[:300]
        finally:
            cluster.close()
        if cluster.cluster_id == wanted:
            return ""
        servers = ",".join(config.bootstrap_servers)
        return (
            f"{what}: {servers} is the cluster with id {cluster.cluster_id}, and flows "
            f"run with the one with id {wanted}: if it replaces that on purpose, "
            "restart the service and use `mirror flow reset`"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NextConfig:
    """A configuration to apply."""

    config: MirrorConfig
    effect: Effect
    """What it changes for the flow, compared with the last one it applied."""


class PendingConfig:
    """At most one configuration. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next: NextConfig | None = None

    def put(self, config: MirrorConfig, effect: Effect) -> None:
        with self._lock:
            if self._next is not None:
                effect |= self._next.effect
            self._next = NextConfig(config=config, effect=effect)

    def add(self, effect: Effect, config: MirrorConfig) -> None:
        """Something else has changed; `config` is the one to apply unless one waits."""
        with self._lock:
            waiting = self._next
            self._next = NextConfig(
                config=waiting.config if waiting else config,
                effect=effect | waiting.effect if waiting else effect,
            )

    @property
    def effect(self) -> Effect:
        """What the waiting configuration changes; NONE if there is none."""
        with self._lock:
            return self._next.effect if self._next else Effect.NONE

    def tasks(self, flow: str) -> int:
        """How many slots the waiting configuration sets for a flow; 0: it does not."""
        with self._lock:
            return self._next.config.flows[flow].tasks or 0 if self._next else 0

    def take(self) -> NextConfig | None:
        with self._lock:
            found, self._next = self._next, None
        return found
