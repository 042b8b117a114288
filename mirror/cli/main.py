"""The command `mirror`: its subcommands and exit codes.

Main names: `app`, to which every command is added, and `main`, the entry point. An
error that a person can act on becomes one sentence on stderr and an exit code; a
traceback is a bug in mirror.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from mirror import retry
from mirror.cli import (
    acls,
    adopt,
    check,
    config,
    demo,
    events,
    flow,
    group,
    lag,
    loss,
    pause,
    plan,
    run,
    status,
    topic,
    topology,
    translate,
    version,
)
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
  mirror events --follow             what happens, as it happens
  mirror topic list -c mirror.yaml   what differs between topics and copies
  mirror group list -c mirror.yaml   offsets of consumer groups on both sides

\b
Exit status:
  0  all is well
  1  something did not work
  2  the command line or the configuration is wrong

\b
Environment:
  MIRROR_CONFIG                       the configuration file, instead of -c
  MIRROR_CLUSTERS__<alias>__<name>    a cluster's setting; overrides the file
  MIRROR_FLOWS__<a>__TO__<b>__<name>  a flow's setting; overrides the file
  MIRROR_DEFAULTS__<name>             a setting of all flows; overrides the file
  MIRROR_SERVICE__<name>              a service setting; overrides the file
"""


class _Commands(TyperGroup):
    """Turns our exceptions into sentences and exit codes."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except ConfigError as error:
            complain(*error.problems)
            raise typer.Exit(EXIT_USAGE) from error
        except MirrorError as error:
            complain(str(error))
            raise typer.Exit(EXIT_FAILED) from error


app = typer.Typer(
    name="mirror",
    cls=_Commands,
    help=_HELP,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 88},
)
app.command()(run.run)
app.command(short_help="Show what would be copied, and whether it can be.")(check.check)
app.command(short_help="Show what a run would create and change.")(plan.plan)
app.command()(status.status)
app.command(short_help="Show how far behind each partition is.")(lag.lag)
app.command(short_help="Draw the clusters and the flows between them.")(
    topology.topology
)
app.command(short_help="Show what happened to flows and clusters.")(events.events)
app.add_typer(topic.app, name="topic")
config.app.command("acls", short_help="Show the ACLs that mirror needs.")(acls.acls)
app.add_typer(config.app, name="config")
app.command(short_help="Pause a flow, or some of its topics.")(pause.pause)
app.command(short_help="Resume a paused flow, or some of its topics.")(pause.resume)
app.add_typer(flow.app, name="flow")
app.add_typer(loss.app, name="loss")
app.command(short_help="Take over flows from MirrorMaker 2, or hand them back.")(
    adopt.adopt
)
group.app.command("translate")(translate.translate)
app.add_typer(group.app, name="group")
app.command(short_help="Watch it work on two clusters of its own.")(demo.demo)
app.command(short_help="Print the versions of mirror and what it runs on.")(
    version.version
)


def _show_version(wanted: bool) -> None:
    if wanted:
        version.print_own()
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
    retry.be_quiet()


def main() -> None:
    """Run the command line of this process."""
    app(prog_name="mirror")


if __name__ == "__main__":
    main()
