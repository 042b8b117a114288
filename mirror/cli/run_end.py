"""What `mirror run --once` leaves behind for Prometheus: `--metrics-file` and
`--push-gateway`.

Main type: `RunEnd`, a context manager around the run. However the run ends, it writes
the metrics; that they cannot be written changes nothing about the exit code.
`gateway_address` checks the option.
"""

from __future__ import annotations

from dataclasses import dataclass, field
import time
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

import structlog
import typer

from mirror.cli.output import EXIT_FAILED, EXIT_OK, EXIT_USAGE
from mirror.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from mirror.status.store import StatusStore


@dataclass(slots=True, kw_only=True)
class RunEnd:
    """Writes the metrics of one run when it ends."""

    file: Path | None
    gateway: str | None
    job: str
    store: StatusStore | None = None
    """The run's; None until it begins."""
    _began: float = field(default_factory=time.monotonic)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _where: TracebackType | None,
    ) -> None:
        if self.file is None and self.gateway is None:
            return
        # These libraries load for a while: only runs that end need them.
        from http.client import HTTPException

        from mirror.metrics import of_runs

        ended = of_runs.Ended(
            at=time.time(),
            seconds=time.monotonic() - self._began,
            exit_code=_code(error),
            flows=self.store.read().flows if self.store is not None else (),
            succeeded_at=of_runs.last_success(self.file) if self.file else 0.0,
        )
        log = structlog.get_logger()
        try:
            if self.file is not None:
                of_runs.to_file(ended, self.file)
        except OSError as failure:
            log.error("--metrics-file is not written", error=str(failure))  # noqa: TRY400  a sentence
        try:
            if self.gateway is not None:
                of_runs.push(ended, self.gateway, self.job)
        except (OSError, HTTPException) as failure:
            log.error("--push-gateway takes no metrics", error=str(failure))  # noqa: TRY400  a sentence


def gateway_address(given: str | None) -> str | None:
    """The option's value. A message does not repeat it: people write passwords into
    addresses.

    Raises:
        BadParameter: it is no address.
    """
    if given is None:
        return None
    try:
        parts = urlsplit(given if "://" in given else f"http://{given}")
        port = parts.port
    except ValueError:
        good = False
    else:
        good = parts.scheme in {"http", "https"} and bool(parts.hostname)
        good = good and port != 0 and "@" not in parts.netloc
    if not good:
        raise typer.BadParameter(
            "not an address such as http://pushgateway:9091, without user and password"
        )
    return given


def _code(error: BaseException | None) -> int:
    """The exit code that the command ends with."""
    if error is None:
        return EXIT_OK
    if isinstance(error, typer.Exit):
        return error.exit_code
    return EXIT_USAGE if isinstance(error, ConfigError) else EXIT_FAILED
