"""Options that several commands share, so that they are the same everywhere.

`ConfigFile` is the path of the configuration, from -c or MIRROR_CONFIG. Reading it
is the command's own first step, since each tells warnings in its own way.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

CONFIG_VARIABLE = "MIRROR_CONFIG"

ConfigFile = Annotated[
    Path,
    typer.Option(
        "--config",
        "-c",
        metavar="FILE",
        envvar=CONFIG_VARIABLE,
        show_envvar=True,
        help="Configuration: YAML, or MirrorMaker 2's .properties.",
    ),
]
