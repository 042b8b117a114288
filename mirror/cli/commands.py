"""The commands of `mirror`, each imported when it is used.

Main types: `Later`, a command known by name and one line until then, and `Commands`,
the group of all of them, which turns our exceptions into sentences and exit codes.
Importing everything takes a second, which `mirror status` need not wait for.
"""

from __future__ import annotations

from functools import cached_property
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from mirror.cli import audit, interrupts
from mirror.cli.output import EXIT_FAILED, EXIT_USAGE, complain
from mirror.errors import ConfigError, MirrorError

_NO_CACHE = (
    "compiled kernels cannot be kept: this user can write neither mirror's folder nor "
    "~/.cache; set NUMBA_CACHE_DIR to a folder that it can, or run mirror compile once "
    "as the user that installed mirror"
)
_COMMANDS = {
    "run": ("run:run", "Copy topics as the configuration says, until stopped."),
    "check": ("check:check", "Show what would be copied, and whether it can be."),
    "plan": ("plan:plan", "Show what a run would create and change."),
    "status": (
        "status:status",
        "Show the flows and partitions of a running service.",
    ),
    "lag": ("lag:lag", "Show how far behind each partition is."),
    "risk": ("risk:risk", "Show what a failover now would lose."),
    "topology": ("topology:topology", "Draw the clusters and the flows between them."),
    "events": ("events:events", "Show what happened to flows and clusters."),
    "pause": ("pause:pause", "Pause a flow, or some of its topics."),
    "resume": ("pause:resume", "Resume a paused flow, or some of its topics."),
    "verify": (
        "verify:verify",
        "Prove that copies have everything, and the same.",
    ),
    "repair": (
        "repair:app",
        "Append missing records to copies, or rebuild copies.",
    ),
    "compare": (
        "compare:compare",
        "Show where two clusters differ, and what explains it.",
    ),
    "trace": (
        "trace:trace",
        "Show where a record is on all clusters, or why not.",
    ),
    "pair": ("pair:pair", "Show pairs of clusters, and which one is active."),
    "drill": ("drill:drill", "Rehearse a failover; applications notice nothing."),
    "switch": ("switch:switch", "Make the other cluster of a pair active."),
    "failover": (
        "switch:failover",
        "Make the other cluster active, because one is gone.",
    ),
    "tail": (
        "tail:app",
        "Show and settle what a failover left uncopied.",
    ),
    "failback": (
        "switch:failback",
        "Go home to a cluster that is back after a failover.",
    ),
    "conflicts": (
        "conflicts:conflicts",
        "Show keys that were written on both clusters.",
    ),
    "adopt": (
        "adopt:adopt",
        "Take over flows from MirrorMaker 2, or hand them back.",
    ),
    "demo": ("demo:demo", "Watch it work on two clusters of its own."),
    "compile": (
        "compile:compile_",
        "Compile what copies records, ahead of the first start.",
    ),
    "version": (
        "version:version",
        "Print the versions of mirror and what it runs on.",
    ),
    "topic": (
        "topic:app",
        "Show topics and their copies; correct configs and ACLs.",
    ),
    "schema": (
        "schema:app",
        "Show the schemas of both registries; copy what is missing.",
    ),
    "config": ("config:app", "Show, convert and describe the configuration."),
    "flow": ("flow:app", "Change where a flow continues."),
    "loss": ("loss:app", "Show what could not be copied."),
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
