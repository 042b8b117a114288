"""Options that several commands share, so that they are the same everywhere.

`ConfigFile` is the path of the configuration, from -c or MIRROR_CONFIG; `read_config`
reads it and prints its warnings. `flow_of` finds a flow by name, `agreed` asks for
confirmation before anything is changed.
"""

from __future__ import annotations

from contextvars import ContextVar
from pathlib import Path
import re
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from mirror.cli.output import complain
from mirror.config.load import load
from mirror.config.section_names import flow_ends
from mirror.config.values import near
from mirror.errors import ConfigError, MirrorError

if TYPE_CHECKING:
    from mirror.config.schema import FlowConfig, MirrorConfig

CONFIG_VARIABLE = "MIRROR_CONFIG"
LAST_READ: ContextVar[MirrorConfig | None] = ContextVar("LAST_READ", default=None)
"""The configuration that the running command has read."""

_CONFIG = typer.Option(
    "--config",
    "-c",
    metavar="FILE",
    envvar=CONFIG_VARIABLE,
    show_envvar=True,
    help="Configuration: YAML, or MirrorMaker 2's .properties.",
)
ConfigFile = Annotated[Path, _CONFIG]
OptionalConfigFile = Annotated[Path | None, _CONFIG]
"""Of commands that can do without, in some way to use them."""

FlowName = Annotated[
    str,
    typer.Argument(
        metavar="FLOW", help="The flow's name, A->B; A/B needs no quotes in a shell."
    ),
]


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise typer.BadParameter(f"{text} is not a valid regex: {error}") from error
    return text


TopicPattern = Annotated[
    str,
    typer.Option(
        "--topic",
        "-t",
        metavar="REGEX",
        callback=_pattern,
        help="Only source topics whose whole name matches.",
    ),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Show what would change; change nothing.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def read_config(path: Path) -> MirrorConfig:
    """The configuration; warnings go to stderr.

    Raises:
        ConfigError: it cannot be used.
    """
    found, warnings = load(path)
    complain(*(f"warning: {warning}" for warning in warnings))
    LAST_READ.set(found)
    return found


def flow_of(config: MirrorConfig, name: str) -> FlowConfig:
    """The flow with this name."""
    ends = flow_ends(name)
    found = config.flows.get("->".join(ends)) if ends else None
    if found is None:
        raise typer.BadParameter(
            f'the configuration has no flow "{name}"{near(name, config.flows)}',
            param_hint="FLOW",
        )
    return found


def know_clusters(config: MirrorConfig, *aliases: str) -> None:
    """Check that these are aliases of clusters.

    Raises:
        ConfigError: one is not.
    """
    problems = [
        f'there is no cluster "{alias}" in the configuration'
        f"{near(alias, config.clusters)}"
        for alias in aliases
        if alias not in config.clusters
    ]
    if problems:
        raise ConfigError(problems)


def agreed(question: str, *, yes: bool) -> bool:
    """Whether to go ahead; without a terminal, `--yes` is needed.

    Raises:
        MirrorError: stdin is not a terminal.
        typer.Abort: the answer is no.
    """
    if yes:
        return True
    if not sys.stdin.isatty():
        raise MirrorError("not a terminal; pass --yes")
    return typer.confirm(question, abort=True, err=True)
