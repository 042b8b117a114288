"""The log: one event per line on stderr, for people or for machines.

Main function: `set_up`, called once per process. Our modules log through structlog;
messages of libraries that use the standard library get the same form, and so does what
another process printed (`pass_on`) and, after `nothing_else`, whatever this one prints
on stderr. For kafka-python and Py4J only errors are logged.
`LogThrottle` logs a persisting failure once a minute instead of at every attempt.
"""

from __future__ import annotations

import io
import json
import logging
import sys
import threading
import time
from typing import TYPE_CHECKING, Literal, TextIO

import structlog

if TYPE_CHECKING:
    from structlog.typing import Processor

_AGAIN_SECONDS = 60.0
_PY4J_MODULES = {"java_gateway", "clientserver"}
_QUIET = {
    "kafka": logging.ERROR,
    "py4j": logging.CRITICAL,
    "httpx": logging.WARNING,
    "tornado": logging.ERROR,
    "tornado.access": logging.CRITICAL,  # a line per scrape would drown what matters
}

_START_UP = (
    *("WARNING: Using incubator modules", "Using Spark's default log4j"),
    *("Setting default log level", "To adjust logging level"),
)
"""How lines begin that Java and Spark print at every start."""

Level = Literal["debug", "info", "warning", "error"]
Form = Literal["auto", "console", "json"]
Settings = tuple[Level, Form]


def set_up(level: Level, form: Form) -> None:
    """Log from this level on; `auto` is console on a terminal and JSON elsewhere."""
    on_terminal = sys.stderr.isatty()
    console = form == "console" or (form == "auto" and on_terminal)
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=not console),
    ]
    # Exceptions are formatted here; the console renderer's default would show the
    # values of local variables, and so secrets.
    last: list[Processor] = (
        [
            structlog.dev.ConsoleRenderer(
                colors=on_terminal, exception_formatter=structlog.dev.plain_traceback
            )
        ]
        if console
        else [
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(default=str),
        ]
    )
    structlog.configure(
        processors=[
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *last,
            ],
        )
    )
    handler.addFilter(_is_worth_it)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    logging.captureWarnings(capture=True)
    for name, quiet in _QUIET.items():
        logging.getLogger(name).setLevel(quiet)


def nothing_else() -> None:
    """If the log is JSON, stderr gets nothing else from now on: each line that
    something in this process prints becomes an event, such as a traceback of a thread.
    """
    if _is_json():
        sys.stderr = _AsEvents(_stream())


def pass_on(line: str) -> None:
    """Write a line that another process printed: as it is, or as an event where the
    log is JSON and it is not.
    """
    if not line.strip():
        return
    if not _is_json() or _is_event(line):
        _stream().write(f"{line}\n")
    elif line.startswith(_START_UP):
        structlog.get_logger().info(line)
    else:
        structlog.get_logger().warning(line)


def _is_json() -> bool:
    formatters = [handler.formatter for handler in logging.getLogger().handlers]
    return any(
        isinstance(each, structlog.stdlib.ProcessorFormatter)
        and isinstance(each.processors[-1], structlog.processors.JSONRenderer)
        for each in formatters
    )


def _stream() -> TextIO:
    """Stderr itself."""
    return sys.stderr.stream if isinstance(sys.stderr, _AsEvents) else sys.stderr


def _is_event(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


class _AsEvents(io.TextIOBase):
    """A text stream in front of `stream`: each line that is written to it is an event.

    Threads may write at the same time; each one's line is its own.
    """

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self._begun = threading.local()

    def write(self, text: str) -> int:
        *lines, rest = (getattr(self._begun, "line", "") + text).split("\n")
        self._begun.line = rest
        for line in lines:
            pass_on(line)
        return len(text)

    def flush(self) -> None:
        self.stream.flush()

    def fileno(self) -> int:
        return self.stream.fileno()


def _is_worth_it(record: logging.LogRecord) -> bool:
    """Py4J reports lost connections through the root logger, not its own."""
    return not (record.name == "root" and record.module in _PY4J_MODULES)


class LogThrottle:
    """Limits one message, whose reason may change.

    It decides whether the message is due; the caller writes it.
    """

    def __init__(self) -> None:
        self._reason = ""
        self._logged_at = 0.0

    def due(self, reason: str) -> bool:
        """Whether to log this now: it is new, or was last logged a minute ago."""
        now = time.monotonic()
        if reason == self._reason and now - self._logged_at < _AGAIN_SECONDS:
            return False
        self._reason, self._logged_at = reason, now
        return True

    def clear(self) -> None:
        """It succeeded: the same reason counts as new again."""
        self._reason = ""
