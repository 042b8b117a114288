"""`mirror run`: runs the service in this process until it is stopped.

It reads the configuration, sets up the log and hands over to `Service`. It imports
Spark only once the configuration is valid.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
import functools
import gc
from importlib import import_module
from pathlib import Path
import time
from typing import TYPE_CHECKING, Annotated, Any, Self
from urllib.parse import urlsplit

import structlog
import typer

from mirror import log
from mirror.cli.options import ConfigFile, unusable
from mirror.cli.output import EXIT_FAILED, EXIT_OK, EXIT_USAGE
from mirror.config.load import load
from mirror.errors import ConfigError, MirrorError
from mirror.service.reload import Watch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mirror.config.schema import MirrorConfig
    from mirror.status.store import StatusStore

LISTENS = "service listens"
"""The log event with the status address; programs may wait for it."""


def run(
    config: ConfigFile,
    *,
    clusters: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ALIAS [ALIAS ...]", help="Run only the flows into these clusters."
        ),
    ] = None,
    further: Annotated[
        list[str] | None, typer.Argument(hidden=True, metavar="ALIAS")
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="Copy what is there now, then exit.")
    ] = False,
    metrics_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            dir_okay=False,
            help="With --once: write metrics of the run there when it ends, for "
            "node_exporter's textfile collector.",
        ),
    ] = None,
    push_gateway: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            callback=gateway_address,
            help="With --once: send the same metrics to this Pushgateway.",
        ),
    ] = None,
    push_job: Annotated[
        str,
        typer.Option(metavar="NAME", help="The Pushgateway's job for these metrics."),
    ] = "mirror",
) -> None:
    """Copy topics as the configuration says, until stopped.

    Stop it with Ctrl-C or SIGTERM: it finishes open transactions first. Started again,
    here or elsewhere, it continues where it stopped. The log is on stderr; its event
    "service listens" has the address of the status. When the configuration file
    changes, or on SIGHUP, the service reads it again and applies it; it refuses an
    invalid one and keeps the current one.

    \b
    Examples:
      mirror run -c mirror.yaml
      mirror run -c mm2.properties --clusters B C
      mirror run -c mirror.yaml --once && echo everything is copied
      mirror run -c mirror.yaml --once --push-gateway http://pushgateway:9091
    """
    if not once and (metrics_file or push_gateway):
        option = "--metrics-file" if metrics_file else "--push-gateway"
        raise typer.BadParameter(
            f"{option} goes with --once: a service that runs on has its metrics at "
            "/metrics"
        )
    if further and not clusters:
        raise typer.BadParameter(
            f"unexpected {' '.join(further)}: cluster aliases follow --clusters"
        )
    aliases = [*(clusters or ()), *(further or ())]
    with RunEnd(file=metrics_file, gateway=push_gateway, job=push_job) as end:
        _run(config, aliases, once=once, end=end)


def _run(config: Path, clusters: Sequence[str], *, once: bool, end: RunEnd) -> None:
    tend_memory()
    read = functools.partial(_read, config, clusters)
    watch = Watch(config, read)
    chosen, warnings = read()
    log.set_up(chosen.service.log_level, chosen.service.log_format)
    log.nothing_else()
    logger = structlog.get_logger()
    for warning in warnings:
        logger.warning("configuration", warning=warning)

    # These take a second to import, and Spark's JVM one to start.
    from mirror.service.session import launch

    launch(chosen.service)
    from mirror.proofs.in_service import ServiceProofs
    from mirror.service.service import Service

    compare = _later("mirror.proofs.prefix", "difference")
    service = (
        Service(chosen, once=True, compare=compare)
        if once
        else Service(
            chosen,
            watch=watch,
            proofs=ServiceProofs(),
            compare=compare,
            settle_fence=_later("mirror.recovery.pending", "settle_fence"),
            rehearse=_later("mirror.recovery.drilling.runner", "rehearse"),
            new_count=_later("mirror.recovery.tails.survey", "Unsettled"),
        )
    )
    end.store = service.store
    try:
        well = service.run(ready=lambda url: logger.info(LISTENS, url=url))
    except MirrorError as error:
        logger.error(str(error))  # noqa: TRY400  a sentence, like all of its log
        raise typer.Exit(EXIT_FAILED) from error
    if not well:
        for flow in service.store.read().flows:
            if flow.faulted:
                logger.error(
                    "partitions are FAULTED", flow=flow.name, partitions=flow.faulted
                )
            elif flow.reason:
                logger.error(
                    "the flow did not end well",
                    flow=flow.name,
                    state=flow.state,
                    reason=flow.reason,
                )
        raise typer.Exit(EXIT_FAILED)


def _later(module: str, name: str) -> Callable[..., Any]:
    """A function that is loaded when it is called: few services need these, and none to
    begin.
    """

    def call(*arguments: Any, **named: Any) -> Any:
        return getattr(import_module(module), name)(*arguments, **named)

    return call


def _read(file: Path, clusters: Sequence[str]) -> tuple[MirrorConfig, tuple[str, ...]]:
    """The configuration in effect, and its warnings.

    Raises:
        ConfigError: with everything that is wrong with it.
    """
    chosen, warnings = load(file)
    if clusters:
        chosen = chosen.select(clusters)
    if mistakes := unusable(chosen):
        raise ConfigError(mistakes)
    return chosen, warnings


# ---- how a service's process treats its memory ----
#
# Main function: `tend_memory`, called before anything large is imported: what modules
# make stays, so looking for garbage among it is work for nothing.


_YOUNG_OBJECTS = 20_000
"""Jobs on many groups create objects by the hundred thousand; at Python's default of
700, the garbage collector takes half of their time, and no other thread runs."""
_MMAP_THRESHOLD, _ARENA_MAX = -3, -8
"""What glibc's mallopt calls them (malloc.h)."""


def tend_memory() -> None:
    """Look for garbage less often. And by default glibc keeps what threads once needed,
    for as many as eight times the cores, up to 14 MB each: now it keeps two threads'
    worth, and large pieces go back at once. Other libraries have no such function.
    """
    gc.set_threshold(_YOUNG_OBJECTS, 20, 10)
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_ARENA_MAX, 2)
        mallopt(_MMAP_THRESHOLD, 1 << 20)


# ---- what `mirror run --once` leaves behind for Prometheus ----


@dataclass(slots=True, kw_only=True)
class RunEnd:
    """Writes the metrics of one run when it ends, however that is. That they cannot be
    written changes nothing about the exit code.
    """

    file: Path | None
    gateway: str | None
    job: str
    store: StatusStore | None = None
    """The run's; None until it begins."""
    _began: float = field(default_factory=time.monotonic)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: object, error: BaseException | None, _where: object
    ) -> None:
        if self.file is None and self.gateway is None:
            return
        # These libraries load for a while: only runs that end need them.
        from http.client import HTTPException

        from mirror.observing import of_runs

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
