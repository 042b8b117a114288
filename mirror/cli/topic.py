"""`mirror topic`: topics and their copies, read from the clusters themselves.

It works without a service. `list` shows differences and changes nothing; `configs` and
`acls` do once, after asking, what the service does at intervals. `topics` compares
and corrects.
"""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mirror.cli.options import ConfigFile, DryRun, Flows, Yes, agreed, chosen_flows
from mirror.cli.output import (
    EXIT_FAILED,
    EXIT_OK,
    Form,
    Output,
    complain,
    document,
    table,
)
from mirror.clusters.reach import Reach
from mirror.config import scopes
from mirror.errors import ClusterError
from mirror.status.states import AclState
from mirror.status.wording import config_value, differences
from mirror.topics import acls, configs
from mirror.topics.merging import Merging

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from mirror.clusters.admin.acls import Binding
    from mirror.config.schema import FlowConfig, MirrorConfig
    from mirror.status.values import TopicDrift
    from mirror.topics.acls import AclsResult
    from mirror.topics.configs import ConfigsResult

PENDING = "PENDING"
"""A flow has ACLs to add or remove."""
LIST_COLUMNS = (
    *("FLOW", "TOPIC", "PARTITIONS", "TARGET-TOPIC", "TARGET-PARTITIONS", "DIFFERS"),
)
CONFIG_COLUMNS = ("FLOW", "TARGET-TOPIC", "CONFIG", "NOW", "WANTED")
ACL_COLUMNS = (
    *("FLOW", "CHANGE", "TOPIC", "PATTERN", "PRINCIPAL", "HOST", "OPERATION"),
    *("PERMISSION", "REASON"),
)

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Show topics and their copies; correct configs and ACLs.",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 88},
)


@app.command("list")
def list_topics(
    config: ConfigFile,
    *,
    flow: Flows = None,
    differing: Annotated[
        bool, typer.Option("--differing", help="Only copies that differ.")
    ] = False,
    output: Output = Form.TABLE,
) -> None:
    """Show every topic with its copy, and how the copy differs.

    DIFFERS lists configs with their actual and expected values, copies with too few or
    too many partitions, and configs on which several sources of one copy disagree.
    Changes nothing. Exit status 1 if a cluster does not answer.

    \b
    Examples:
      mirror topic list -c mirror.yaml
      mirror topic list -c mirror.yaml --differing
      mirror topic list -c mirror.yaml -o json | jq '.flows[].topics[] | .configs'
    """
    chosen, flows = chosen_flows(config, flow)
    found, failures = _compare(chosen, flows)
    rows = {
        name: [t for t in result.topics if t.differs or not differing]
        for name, result in found.items()
    }
    if output is Form.JSON:
        document(
            {
                "flows": [
                    {"name": name, "topics": [_topic_document(t) for t in topics]}
                    for name, topics in rows.items()
                ],
                "failures": failures,
            }
        )
    elif found:
        table(
            LIST_COLUMNS,
            (
                (
                    name,
                    topic.topic,
                    topic.partitions,
                    topic.target_topic,
                    topic.target_partitions,
                    differences(asdict(topic)),
                )
                for name, topics in rows.items()
                for topic in topics
            ),
        )
    _end(failures)


@app.command("configs")
def correct_configs(
    config: ConfigFile,
    *,
    flow: Flows = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    output: Output = Form.TABLE,
) -> None:
    """Correct configs of copies, once.

    The service does this at intervals where sync_topic_configs is on; the command works
    even where it is off. Exit status 1 if something could not be corrected.

    \b
    Examples:
      mirror topic configs -c mirror.yaml --dry-run
      mirror topic configs -c mirror.yaml --flow A/B --yes
    """
    chosen, flows = chosen_flows(config, flow)
    found, failures = _compare(chosen, flows)
    changes = [
        (name, topic.target_topic, each)
        for name, result in found.items()
        for topic in result.topics
        for each in topic.configs
    ]
    if output is Form.JSON:
        document(
            {
                "changes": [
                    {"flow": name, "target_topic": copy, **asdict(each)}
                    for name, copy, each in changes
                ],
                "failures": failures,
            }
        )
    elif changes:
        table(
            CONFIG_COLUMNS,
            (
                (n, copy, c.name, config_value(c.found), config_value(c.wanted))
                for n, copy, c in changes
            ),
        )
    if changes and _go_on(dry_run=dry_run, yes=yes, what="Change these configs"):
        with Reach(chosen.clusters, client_id="mirror.topic") as reach:
            now, merging, _ = _by_roles(chosen, flows, reach)
            for each in now:
                try:
                    done = configs.sync(
                        reach(each.source), reach(each.target), each, merging, reach
                    )
                except ClusterError as error:
                    failures.append(f"flow {each.name}: {error}")
                    continue
                complain(*(f"changed {change}" for change in done.corrected))
                failures += [f"flow {each.name}: {text}" for text in done.problems]
    _end(failures)


@app.command("acls", short_help="Give copies the ACLs of their topics, once.")
def sync_acls(
    config: ConfigFile,
    *,
    flow: Flows = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    output: Output = Form.TABLE,
) -> None:
    """Give copies the ACLs of their topics, and remove revoked ones, once.

    The service does this at intervals where sync_topic_acls is on. CHANGE is add,
    remove, keep, or skip with its REASON. It never removes ACLs that mirror did not
    add. A cluster without an authorizer is reported but is not a failure.

    \b
    Examples:
      mirror topic acls -c mirror.yaml --dry-run
      mirror topic acls -c mirror.yaml --dry-run -o json
      mirror topic acls -c mirror.yaml --yes
    """
    chosen, flows = chosen_flows(config, flow)
    found, failures, notes = _each(chosen, flows, acls.look)
    complain(*notes)
    for name, result in found.items():
        if result.state is AclState.NOT_PERMITTED:
            failures.append(f"flow {name}: {result.reason}")
        elif result.reason:
            complain(f"flow {name}: {result.reason}")
    rows = [row for name, result in found.items() for row in _acl_rows(name, result)]
    if output is Form.JSON:
        document(
            {
                "flows": [_acl_document(n, result) for n, result in found.items()],
                "failures": failures,
            }
        )
    elif rows:
        table(ACL_COLUMNS, rows)
    to_do = [f for f in flows if f.name in found and _has_changes(found[f.name])]
    if to_do and _go_on(dry_run=dry_run, yes=yes, what="Make these changes"):
        done, failed, _ = _each(chosen, to_do, acls.sync)
        failures += failed
        for name, result in done.items():
            complain(
                *(f"added {binding}" for binding in result.added),
                *(f"removed {binding}" for binding in result.removed),
            )
            failures += [f"flow {name}: {text}" for text in result.problems]
            if result.state is AclState.NOT_PERMITTED:
                failures.append(f"flow {name}: {result.reason}")
    _end(failures)


def _each(
    chosen: MirrorConfig,
    flows: Iterable[FlowConfig],
    work: Callable[..., AclsResult],
) -> tuple[dict[str, AclsResult], list[str], tuple[str, ...]]:
    """The results of `acls.look` or `sync` by flow, the flows whose clusters do not
    answer, and the notes of `_by_roles`.
    """
    found: dict[str, AclsResult] = {}
    failures = []
    with Reach(chosen.clusters, client_id="mirror.topic") as reach:
        now, _, notes = _by_roles(chosen, flows, reach)
        for flow in now:
            rests = partial(scopes.left_alone, chosen.flows[flow.name], flow)
            try:
                found[flow.name] = work(
                    reach(flow.source), reach(flow.target), flow, rests=rests
                )
            except ClusterError as error:
                failures.append(f"flow {flow.name}: {error}")
    return found, failures, notes


def _has_changes(result: AclsResult) -> bool:
    return bool(result.added or result.removed)


def _compare(
    chosen: MirrorConfig, flows: Iterable[FlowConfig]
) -> tuple[dict[str, ConfigsResult], list[str]]:
    found: dict[str, ConfigsResult] = {}
    failures = []
    with Reach(chosen.clusters, client_id="mirror.topic") as reach:
        now, merging, notes = _by_roles(chosen, flows, reach)
        complain(*notes)
        for flow in now:
            try:
                found[flow.name] = configs.look(
                    reach(flow.source), reach(flow.target), flow, merging, reach
                )
            except ClusterError as error:
                failures.append(f"flow {flow.name}: {error}")
    return found, failures


def _by_roles(
    chosen: MirrorConfig, flows: Iterable[FlowConfig], reach: Reach
) -> tuple[list[FlowConfig], Merging, tuple[str, ...]]:
    """The flows, each without what pairs with names have moved; how all that count
    merge; and of which pairs it is not certain who is active.
    """
    from mirror.pairs.flow_roles import in_order

    counting, notes = in_order(chosen, reach)
    now = {flow.name: flow for flow in counting}
    return [now.get(f.name, f) for f in flows], Merging(counting), notes


def _go_on(*, dry_run: bool, yes: bool, what: str) -> bool:
    return not dry_run and agreed(f"{what}?", yes=yes)


def _end(failures: Sequence[str]) -> None:
    complain(*failures)
    raise typer.Exit(EXIT_FAILED if failures else EXIT_OK)


def _topic_document(topic: TopicDrift) -> dict[str, Any]:
    return {**asdict(topic), "differs": topic.differs}


def _acl_document(flow: str, result: AclsResult) -> dict[str, Any]:
    return {
        "name": flow,
        "state": PENDING if _has_changes(result) else result.state,
        "reason": result.reason,
        "add": [asdict(binding) for binding in result.added],
        "remove": [asdict(binding) for binding in result.removed],
        "keep": [asdict(binding) for binding in _kept(result)],
        "skip": [asdict(each) for each in result.skipped],
    }


def _kept(result: AclsResult) -> list[Binding]:
    added = set(result.added)
    return [binding for binding in result.wanted if binding not in added]


def _acl_rows(flow: str, result: AclsResult) -> Iterable[tuple[object, ...]]:
    changes = [
        *(("add", binding, "") for binding in result.added),
        *(("remove", binding, "") for binding in result.removed),
        *(("keep", binding, "") for binding in _kept(result)),
        *(("skip", each.binding, each.reason) for each in result.skipped),
    ]
    return (
        (
            flow,
            change,
            binding.topic,
            binding.pattern,
            binding.principal,
            binding.host,
            binding.operation,
            binding.permission,
            reason,
        )
        for change, binding, reason in changes
    )
