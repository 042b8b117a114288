"""What the JVM prints, passed on line by line to mirror's own log.

Main function: `passed_on`. The JVM, Spark's scripts and tasks inside this process's JVM
print to the same place: lines of our own log go on as they are, all others become
events where the log is JSON, so that programs can read it from the first line on.
"""

from __future__ import annotations

import contextlib
import os
import threading
from typing import TYPE_CHECKING

from mirror import log

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def passed_on() -> Iterator[int]:
    """The pipe for a JVM that is started in the block: where it and its workers print.
    It is read until they end.
    """
    reading, writing = os.pipe()
    # Not joined: the JVM outlives Python by a moment.
    threading.Thread(
        target=_read, args=(reading,), name="jvm-output", daemon=True
    ).start()
    try:
        yield writing
    finally:
        os.close(writing)


def _read(reading: int) -> None:
    with open(reading, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            log.pass_on(line.rstrip("\n"))
