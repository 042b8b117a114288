"""The command `mirror`: its help and what runs it.

Main names: `app`, whose commands `commands` lists, and `main`, to which `start` comes
first. A traceback is a bug in mirror.
"""

from __future__ import annotations

import gc
import sys
from typing import Annotated

import typer

from mirror import __version__
from mirror.cli import interrupts
from mirror.cli.commands import Commands

_HELP = """Copy topics between Kafka clusters, continuously and exactly once.

A flow copies from one cluster to another; the configuration file names the clusters
and the flows. It is a YAML file, or MirrorMaker 2's own .properties file.

\b
Examples:
  mirror demo                        watch it work on two clusters of its own
  mirror check -c mirror.yaml        check what would be copied, and that it can be
  mirror plan -c mirror.yaml         what a run would create and change
  mirror run -c mirror.yaml          copy until stopped by Ctrl-C or SIGTERM
  mirror run -c mirror.yaml --once   copy what is there now, then exit
  mirror config convert mm2.properties   our YAML from MirrorMaker 2's file
  mirror adopt -c mm2.properties     continue where MirrorMaker 2 stopped
  mirror status                      ask the service on this machine
  mirror lag --watch                 how far behind it is, refreshed
  mirror risk -c mirror.yaml         what a failover now would lose
  mirror events --follow             what happens, as it happens
  mirror topic list -c mirror.yaml   what differs between topics and copies
  mirror group list -c mirror.yaml   offsets of consumer groups on both sides

\b
Exit status:
  0  all is well
  1  something did not work
  2  the command line or the configuration is wrong
  130  interrupted by Ctrl-C or SIGTERM

\b
Environment:
  MIRROR_CONFIG                       the configuration file, instead of -c
  MIRROR_CLUSTERS__<alias>__<name>    a cluster's setting; overrides the file
  MIRROR_FLOWS__<a>__TO__<b>__<name>  a flow's setting; overrides the file
  MIRROR_DEFAULTS__<name>             a setting of all flows; overrides the file
  MIRROR_SERVICE__<name>              a service setting; overrides the file
"""


app = typer.Typer(
    name="mirror",
    cls=Commands,
    help=_HELP,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 88},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"mirror {__version__}\n")
        raise typer.Exit


@app.callback()
def _top(
    *,
    _version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_show_version,
            is_eager=True,
            help="Print mirror's version and exit.",
        ),
    ] = False,
) -> None:
    pass  # the options of all commands


def main() -> None:
    """Run the command line of this process."""
    try:
        app(prog_name="mirror")
    except SystemExit as stop:
        interrupts.end(stop.code)
        raise
    finally:
        # At its end, Python would search all that was loaded for what is not in use any
        # more: half a second of CPU after a switch.
        gc.freeze()


if __name__ == "__main__":
    main()
