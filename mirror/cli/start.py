"""Where the command `mirror` begins, before it loads anything.

Main function: `main`. A rehearsal gives way to what copies on this machine from its
first module on: half a second of CPU passes before a command knows what it was asked
for, and a copy that has to wait for it is late.
"""

from __future__ import annotations

import os
import sys

from mirror.cli import interrupts

_NICE = 10
_WAITED_FOR = {"--canary", "--help", "-h"}
"""A canary measures how long a switch takes."""


def main() -> None:
    """Run the command line of this process."""
    if sys.argv[1:2] != ["run"]:
        interrupts.listen()
    if sys.argv[1:2] == ["drill"] and not _WAITED_FOR & {*sys.argv}:
        from mirror.clusters import cpu_share

        os.nice(_NICE)
        with cpu_share.throughout():
            _run()
    else:
        _run()


def _run() -> None:
    from mirror.cli.main import main as run

    run()
