"""The command `mirror`: its help, its commands, and what runs it.

Main names: `app` and `main`, to which `start` comes first. `Commands` is the group of
all commands, each a `Later`: known by name and one line until it is used, since
importing everything takes a second, which `mirror status` need not wait for. `Commands`
turns our exceptions into sentences and exit codes. A traceback is a bug in mirror.
"""

from __future__ import annotations

from functools import cached_property
import gc
from importlib import import_module
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from mirror import __version__
from mirror.cli import audit, interrupts
from mirror.cli.output import EXIT_FAILED, EXIT_USAGE, complain
from mirror.errors import ConfigError, MirrorError

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
_NO_CACHE = (
    "compiled kernels cannot be kept: this user can write neither mirror's folder nor "
    "~/.cache; set NUMBA_CACHE_DIR to a folder that it can, or run mirror compile once "
    "as the user that installed mirror"
)
_COMMANDS = {
    "run": ("run:run", "Copy topics as the configuration says, until stopped."),
    "check": ("check:check", "Show what would be copied, and whether it can be."),
    "plan": ("check:plan", "Show what a run would create and change."),
    "status": ("status:status", "Show the flows and partitions of a running service."),
    "lag": ("status:lag", "Show how far behind each partition is."),
    "risk": ("risk:risk", "Show what a failover now would lose."),
    "topology": ("status:topology", "Draw the clusters and the flows between them."),
    "events": ("status:events", "Show what happened to flows and clusters."),
    "pause": ("flow:pause", "Pause a flow, or some of its topics."),
    "resume": ("flow:resume", "Resume a paused flow, or some of its topics."),
    "verify": ("proof:verify", "Prove that copies have everything, and the same."),
    "repair": ("repair:app", "Append missing records to copies, or rebuild copies."),
    "compare": (
        "proof:compare",
        "Show where two clusters differ, and what explains it.",
    ),
    "trace": ("proof:trace", "Show where a record is on all clusters, or why not."),
    "pair": ("pair:pair", "Show pairs of clusters, and which one is active."),
    "drill": ("pair:drill", "Rehearse a failover; applications notice nothing."),
    "switch": ("switch:switch", "Make the other cluster of a pair active."),
    "failover": (
        "switch:failover",
        "Make the other cluster active, because one is gone.",
    ),
    "tail": ("tail:app", "Show and settle what a failover left uncopied."),
    "failback": (
        "switch:failback",
        "Go home to a cluster that is back after a failover.",
    ),
    "conflicts": ("tail:conflicts", "Show keys that were written on both clusters."),
    "adopt": ("adopt:adopt", "Take over flows from MirrorMaker 2, or hand them back."),
    "demo": ("installation:demo", "Watch it work on two clusters of its own."),
    "compile": (
        "installation:compile_",
        "Compile what copies records, ahead of the first start.",
    ),
    "version": (
        "installation:version",
        "Print the versions of mirror and what it runs on.",
    ),
    "topic": ("topic:app", "Show topics and their copies; correct configs and ACLs."),
    "schema": (
        "schema:app",
        "Show the schemas of both registries; copy what is missing.",
    ),
    "config": ("config:app", "Show, convert and describe the configuration."),
    "flow": ("flow:app", "Change where a flow continues, or take it away."),
    "loss": ("risk:app", "Show what could not be copied."),
    "group": ("group:app", "Show the offsets of consumer groups on both sides."),
}
"""Where each is, below `mirror.cli`, and what the list of commands says about it."""


class Later(TyperCommand):
    """A command, or a group of them, that is not imported yet."""

    def __init__(self, name: str, place: str, short_help: str) -> None:
        super().__init__(name, short_help=short_help, rich_markup_mode=None)
        self._place = place

    @cached_property
    def command(self) -> Any:
        """The command itself."""
        module, _, attribute = self._place.partition(":")
        found = getattr(import_module(f"mirror.cli.{module}"), attribute)
        around = typer.Typer(
            add_completion=False, rich_markup_mode=None, callback=lambda: None
        )
        if isinstance(found, typer.Typer):
            around.add_typer(found, name=self.name)
        else:
            around.command(self.name)(found)
        group: Any = typer.main.get_command(around)
        return audit.watched(group.commands[self.name])

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        """The context of the command itself."""
        return self.command.make_context(*arguments, **options)


class Commands(TyperGroup):
    """All commands; an error that a person can act on is one sentence on stderr."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        for name, (place, short_help) in _COMMANDS.items():
            self.add_command(Later(name, place, short_help))

    def invoke(self, ctx: Any) -> Any:
        try:
            with interrupts.raising():
                return super().invoke(ctx)
        except KeyboardInterrupt as stop:
            if not isinstance(stop, interrupts.Told):
                complain("interrupted")
            raise typer.Exit(interrupts.EXIT_INTERRUPTED) from stop
        except typer.Abort as error:
            complain("not confirmed")
            raise typer.Exit(EXIT_FAILED) from error
        except ConfigError as error:
            complain(*error.problems)
            raise typer.Exit(EXIT_USAGE) from error
        except MirrorError as error:
            complain(str(error))
            stopped = interrupts.caught()  # and what was to be cleared then failed
            code = interrupts.EXIT_INTERRUPTED if stopped else EXIT_FAILED
            raise typer.Exit(code) from error
        except RuntimeError as error:
            if "no locator available" not in str(error):
                raise
            complain(_NO_CACHE)  # of numba, which has no type for it
            raise typer.Exit(EXIT_USAGE) from error


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
