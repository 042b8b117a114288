"""Options that several commands share, so that they are the same everywhere.

`ConfigFile` is the path of the configuration, from -c or MIRROR_CONFIG; `read_config`
reads it and prints its warnings. `flow_of` finds a flow by name and `pair_of` the pair
of its clusters; `chosen_flows` applies the option `Flows`, `of_each_flow` asks each of
them the same, and `require_selected` refuses a configuration that selects less than the
service does. `read_usable` also checks that functions named by flows can be used; only
a configuration that names one pays for importing it. `place_of` and `time_of` read a
place in a log; `agreed` asks before anything is changed.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
import re
import sys
import time
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from mirror.cli import interrupts
from mirror.cli.output import Form, Output, complain
from mirror.config.load import load
from mirror.config.pair_settings import pair_name
from mirror.config.section_names import flow_ends
from mirror.config.values import near
from mirror.errors import ClusterError, ConfigError, FencedError, MirrorError
from mirror.status.wording import named

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.reach import Reach
    from mirror.config.pair_settings import PairConfig
    from mirror.config.schema import FlowConfig, MirrorConfig
    from mirror.offsets.starting import StartPoint
    from mirror.topics.merging import Merging
    from mirror.topics.topics import MirroredTopic

T = TypeVar("T")

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
        raise typer.BadParameter(_no_flow(config, name, ends), param_hint="FLOW")
    return found


def _no_flow(config: MirrorConfig, name: str, ends: tuple[str, str] | None) -> str:
    """Why there is no such flow, and which there are."""
    if len(members := [each.strip() for each in name.split("<->")]) > 1:
        one, other = members[0], members[1].partition("/")[0]
        return (
            f'"{name}" is a pair, which has two flows: say from where to where, as '
            f'"{one}->{other}" or "{other}->{one}"'
        )
    text = f'the configuration has no flow "{name}"{near(name, config.flows)}'
    clusters = sorted(config.clusters)
    if unknown := [each for each in ends or () if each not in clusters]:
        return f'{text} (there is no cluster "{unknown[0]}"; known: {named(clusters)})'
    return f"{text} (flows: {named([*config.flows])})"


def pair_of(config: MirrorConfig, flow: FlowConfig, scope: str | None) -> PairConfig:
    """The pair of a flow's clusters, or the one of several with this name.

    Raises:
        ConfigError: there is none.
    """
    name = pair_name(flow.source, flow.target, scope)
    if (found := config.recovery.get(name)) is None:
        if known := [each.name for each in config.pairs_of(flow.source, flow.target)]:
            hint = near(name, known, cutoff=0.8) if scope else ""
            names = ", ".join(known)
            raise ConfigError(
                [f"recovery: {name} is not a pair; there are {names}{hint}"]
            )
        raise ConfigError(
            [f'recovery: {name} is not a pair; add "{name}": {{active: {flow.source}}}']
        )
    return found


def know_clusters(config: MirrorConfig, *aliases: str) -> None:
    """Check that these are aliases of clusters.

    Raises:
        ConfigError: one is not.
    """
    known = f"; known: {named(sorted(config.clusters))}"
    problems = [
        f'there is no cluster "{alias}" in the configuration'
        f"{near(alias, config.clusters) or known}"
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
    if not confirmed(question):
        raise typer.Abort
    return True


def confirmed(question: str) -> bool:
    """The answer; no if there is none, as after Ctrl-D.

    Raises:
        KeyboardInterrupt: the command is interrupted.
    """
    try:
        return typer.confirm(question, err=True)
    except typer.Abort:  # which stands for all that is no answer
        complain("")
        if interrupts.caught():
            raise KeyboardInterrupt from None
        return False


def place_of(text: str, *, option: str = "--to") -> StartPoint:
    """The place in a log that an option names."""
    from mirror.clusters.admin import topic_admin
    from mirror.offsets.starting import StartPoint

    words = {"earliest": topic_admin.EARLIEST, "latest": topic_admin.LATEST}
    if text.lower() in words:
        return StartPoint(timestamp=words[text.lower()])
    if text.isdecimal():
        return StartPoint(offset=int(text))
    if text.startswith("@") and text[1:].isdecimal():
        return StartPoint(timestamp=int(text[1:]))
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise typer.BadParameter(
            f"{option}: cannot read {text}; use earliest, latest, "
            "2026-01-31T08:00:00Z, @1769846400000 or an offset"
        ) from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    if moment.timestamp() < 0:
        raise typer.BadParameter(f"{option}: {text} is before 1970")
    return StartPoint(timestamp=int(moment.timestamp() * 1000))


def time_of(
    text: str, *, option: str, first: str = "earliest", words: str = "earliest"
) -> int:
    """The time that an option names, in epoch milliseconds. `first`: the word for where
    a log begins; `words`: all that may be given instead of a time.
    """
    from mirror.clusters.admin import topic_admin

    place = place_of("earliest" if text == first else text, option=option)
    if place.offset is not None or place.timestamp == topic_admin.LATEST:
        raise typer.BadParameter(
            f"{option}: cannot read {text}; use {words}, 2026-01-31T08:00:00Z or "
            "@1769846400000"
        )
    if place.timestamp > time.time() * 1000:
        raise typer.BadParameter(f"{option}: {text} is in the future")
    return place.timestamp


_ATTEMPTS = 3


def despite_fencing(work: Callable[[], T]) -> T:
    """Do it again if a run of the service that began meanwhile fenced us.

    Raises:
        FencedError: that happened each time.
    """
    for _ in range(_ATTEMPTS - 1):
        try:
            return work()
        except FencedError:
            continue
    return work()


# ---- commands ----


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The options of each command that changes something."""

    dry_run: DryRun = False
    yes: Yes = False
    output: Output = Form.TABLE

    def agreed(self, question: str) -> bool:
        """Whether to go ahead; raises as `agreed`."""
        return not self.dry_run and agreed(question, yes=self.yes)


def family(text: str) -> typer.Typer:
    """A command that has only commands below it."""
    return typer.Typer(
        help=text, no_args_is_help=True, rich_markup_mode=None, callback=lambda: None
    )


# ---- flows of a configuration ----


Flows = Annotated[
    list[str] | None,
    typer.Option(
        "--flow", "-f", metavar="A->B", help="Only this flow, A->B or A/B. Repeatable."
    ),
]


def chosen_flows(
    path: Path, wanted: Sequence[str] | None
) -> tuple[MirrorConfig, list[FlowConfig]]:
    """The configuration, and the enabled flows selected by `--flow`."""
    chosen = read_config(path)
    flows = [flow for flow in chosen.flows.values() if flow.enabled]
    if not wanted:
        return chosen, flows
    known = {flow.name: flow for flow in flows}
    names = ["->".join(flow_ends(each) or (each,)) for each in wanted]
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ConfigError(
            [
                f'--flow: there is no enabled flow "{name}"{near(name, known)}'
                for name in unknown
            ]
        )
    return chosen, [flow for flow in flows if flow.name in names]


@contextmanager
def noted(
    failures: list[str], flow: FlowConfig, kind: type[MirrorError] = ClusterError
) -> Iterator[None]:
    """Note why a flow's part cannot be done, and go on with the others."""
    try:
        yield
    except kind as error:
        failures.append(f"flow {flow.name}: {error}")


def of_each_flow(
    config: MirrorConfig,
    flows: Iterable[FlowConfig],
    client_id: str,
    ask: Callable[[FlowConfig, Reach, Merging], T],
) -> tuple[dict[str, T], list[str]]:
    """What `ask` finds out about each flow, given the flows that write its copies; and
    which flows have clusters that do not answer.
    """
    from mirror.clusters.reach import Reach
    from mirror.pairs import flow_roles

    found: dict[str, T] = {}
    failures: list[str] = []
    with Reach(config.clusters, client_id=client_id) as reach:
        rests = flow_roles.resting_flows(config, reach)
        for flow in flows:
            writers = flow_roles.writers(config, rests, flow.name)
            with noted(failures, flow):
                found[flow.name] = ask(flow, reach, writers)
    return found, failures


def require_selected(config: MirrorConfig, *flows: FlowConfig) -> None:
    """Compare these flows with what their services have noted.

    Raises:
        MirrorError: one selects less, or a cluster does not answer.
    """
    from mirror.clusters.reach import Reach
    from mirror.pairs import selection

    with Reach(config.clusters, client_id="mirror.selection") as reach:
        for each in flows:
            ends = (reach(each.source), reach(each.target))
            complain(*selection.require(config, each.name, None, ends))


def copied_topics(
    config: MirrorConfig, flow: FlowConfig, ends: tuple[Cluster, Cluster], pattern: str
) -> tuple[tuple[MirroredTopic, ...], list[MirroredTopic]]:
    """All topics that a flow copies, and those of them that match.

    Raises:
        MirrorError: none does, or the configuration selects less than the service.
    """
    from mirror.pairs import selection
    from mirror.service.positions import matching
    from mirror.topics import topics

    complain(*selection.require(config, flow.name, None, ends))
    selected = topics.select(ends[0], flow).topics
    if not (found := matching(selected, pattern)):
        raise MirrorError(
            f"flow {flow.name}: no topic that it copies matches {pattern}"
        )
    return selected, found


# ---- functions that flows name ----


def read_usable(path: Path) -> MirrorConfig:
    """The configuration, with all its functions usable; warnings go to stderr.

    Raises:
        ConfigError: the configuration, or a function, cannot be used.
    """
    config = read_config(path)
    if mistakes := unusable(config):
        raise ConfigError(mistakes)
    return config


def unusable(config: MirrorConfig) -> list[str]:
    """What is wrong with them, a line each."""
    if not any(flow.transform for flow in config.flows.values() if flow.enabled):
        return []

    from mirror.copying import transform

    return transform.problems(config)
