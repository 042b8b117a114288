"""`mirror check`: is the configuration right, and what would it mirror?

It reads the configuration, reaches every cluster of an enabled flow and shows the
topics with their copies. It changes nothing, on no cluster.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import typer

from mirror.cli.options import ConfigFile
from mirror.cli.output import (
    EXIT_FAILED,
    EXIT_USAGE,
    Form,
    Output,
    complain,
    document,
    table,
)
from mirror.cli.transforms import unusable
from mirror.config.load import load
from mirror.metadata.survey import survey

if TYPE_CHECKING:
    from mirror.metadata.survey import Survey

FORMAT_VERSION = 1
COLUMNS = ("FLOW", "TOPIC", "PARTITIONS", "TARGET-TOPIC", "TARGET-PARTITIONS", "COPY")


def check(config: ConfigFile, *, output: Output = Form.TABLE) -> None:
    """Read the configuration, reach its clusters, show what would be copied.

    Nothing is changed. COPY says what becomes of the topic on the target: it exists,
    is to be created, or is to be grown by partitions. All problems are told at once,
    on stderr: exit status 2 if the configuration has to be changed, 1 if a cluster
    does not answer or a topic cannot be copied.

    \b
    Examples:
      mirror check -c mirror.yaml
      mirror check -c mm2.properties -o json
    """
    chosen, warnings = load(config)
    complain(*(f"warning: {warning}" for warning in warnings))
    found = survey(chosen)
    found = replace(found, mistakes=(*unusable(chosen), *found.mistakes))
    if output is Form.JSON:
        document({"format_version": FORMAT_VERSION, **asdict(found)})
    elif found.flows:
        _show(found)
    topics = [
        f"flow {flow.name}: {text}" for flow in found.flows for text in flow.problems
    ]
    complain(*found.mistakes, *found.failures, *topics)
    if found.mistakes:
        raise typer.Exit(EXIT_USAGE)
    if found.failures or topics:
        raise typer.Exit(EXIT_FAILED)


def _show(found: Survey) -> None:
    table(
        COLUMNS,
        (
            (
                flow.name,
                topic.topic,
                topic.partitions,
                topic.target_topic,
                topic.target_partitions,
                topic.copy,
            )
            for flow in found.flows
            for topic in flow.topics
        ),
    )
    for flow in found.flows:
        if not flow.topics:
            complain(f"flow {flow.name}: no topic of {flow.source_id} matches")
        if flow.came_from_target:
            complain(
                f"note: flow {flow.name} leaves out {', '.join(flow.came_from_target)}:"
                " by their names they came from its target"
            )
