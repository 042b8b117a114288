"""Where the command `mirror` begins, before it loads anything.

Main function: `main`. A rehearsal gives way to what copies on this machine from its
first module on, by its priority; it also rests once it knows that there is anything to
rehearse, since somebody who typed the wrong name waits for the answer.
"""

from __future__ import annotations

import os
import signal
import sys

from mirror.cli import interrupts

_NICE = 10


def main() -> None:
    """Run the command line of this process."""
    if sys.argv[1:2] != ["run"]:
        interrupts.listen()
    elif signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # Until the service listens to it: its log has no room for a traceback.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    if sys.argv[1:2] == ["drill"] and not {"--help", "-h"} & {*sys.argv}:
        os.nice(_NICE)
    from mirror.cli.main import main as run

    run()
