"""`mirror pause` and `mirror resume`: stop copying topics of a flow, and continue.

Both write the request to the target, where a running service finds it within seconds
and a service started later finds it too. They need no source.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

from mirror.cli.options import (
    ConfigFile,
    DryRun,
    FlowName,
    TopicPattern,
    Yes,
    agreed,
    flow_of,
    read_config,
)
from mirror.cli.output import Form, Output, complain, document, moment, table
from mirror.clusters.cluster import Cluster
from mirror.pairs import control

if TYPE_CHECKING:
    from pathlib import Path

    from mirror.pairs.control import Pauses

FORMAT_VERSION = 1
COLUMNS = ("FLOW", "TOPICS", "PAUSED", "SINCE")


def pause(
    flow: FlowName,
    *,
    config: ConfigFile,
    topic: TopicPattern = control.EVERY_TOPIC,
    dry_run: DryRun = False,
    yes: Yes = False,
    output: Output = Form.TABLE,
) -> None:
    """Pause a flow, or some of its topics, until `mirror resume`.

    Positions are kept, and the pause survives a restart of the service. Paused
    partitions are shown as PAUSED. Records written to the source meanwhile are copied
    after the pause, unless retention deletes them first. The table shows all rules in
    force; of those that match a topic, the last one counts.

    \b
    Examples:
      mirror pause 'A->B' -c mirror.yaml
      mirror pause A/B --topic 'payments\\..*' -c mirror.yaml --yes
    """
    _change(config, flow, topic, paused=True, dry_run=dry_run, yes=yes, output=output)


def resume(
    flow: FlowName,
    *,
    config: ConfigFile,
    topic: TopicPattern = control.EVERY_TOPIC,
    dry_run: DryRun = False,
    yes: Yes = False,
    output: Output = Form.TABLE,
) -> None:
    """Resume a paused flow, or some of its topics.

    Without --topic it resumes everything, however it was paused.

    \b
    Examples:
      mirror resume 'A->B' -c mirror.yaml
      mirror resume A/B --topic payments.eu -c mirror.yaml
    """
    _change(config, flow, topic, paused=False, dry_run=dry_run, yes=yes, output=output)


def _change(
    config: Path,
    name: str,
    topic: str,
    *,
    paused: bool,
    dry_run: bool,
    yes: bool,
    output: Form,
) -> None:
    chosen = read_config(config)
    flow = flow_of(chosen, name)
    target = Cluster(chosen.clusters[flow.target])
    with contextlib.closing(target.connect()):
        held = control.PausesReader(target, flow).read()
        wanted = held.changed(topic, paused=paused, now=time.time())
        verb = "Pause" if paused else "Resume"
        what = "all topics" if topic == control.EVERY_TOPIC else f"topics {topic}"
        if dry_run:
            held = wanted
        elif agreed(f"{verb} {what} of {flow.name}?", yes=yes):
            held = control.change_pauses(target, flow, topic, paused=paused)
    if output is Form.JSON:
        document(
            {
                "format_version": FORMAT_VERSION,
                "flow": flow.name,
                "dry_run": dry_run,
                "rules": held.document()["rules"],
            }
        )
    else:
        _show(flow.name, held)


def _show(flow: str, held: Pauses) -> None:
    for topic in sorted(held.rebuilding):
        complain(f"flow {flow}: {topic} rests until its copy is rebuilt")
    if not held.rules:
        complain(f"flow {flow}: nothing is paused")
        return
    table(
        COLUMNS,
        (
            (flow, rule.topics, "yes" if rule.paused else "no", moment(rule.since))
            for rule in held.rules
        ),
    )
