"""`mirror topic`: topics and their copies, read from the clusters themselves.

It works without a service. `list` shows differences and changes nothing; `configs` and
`acls` do once, after asking, what the service does at intervals. `topics` compares
and corrects.
"""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from mirror.cli.options import Change, ConfigFile, Flows, chosen_flows, family, noted
from mirror.cli.output import Form, Output, complain, document, end, table
from mirror.cli.spread import spread
from mirror.clusters.reach import Reach
from mirror.config import scopes
from mirror.status.states import AclState
from mirror.status.wording import config_value, differences
from mirror.topics import acls, configs
from mirror.topics.merging import Merging

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mirror.clusters.admin.acls import Binding
    from mirror.config.schema import FlowConfig, MirrorConfig
    from mirror.topics.acls import AclsResult
    from mirror.topics.configs import ConfigsResult

T = TypeVar("T")
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

app = family("Show topics and their copies; correct configs and ACLs.")


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
    failures: list[str] = []
    found = _each(chosen, flows, failures, _configs_of(configs.look))
    rows = {
        name: [t for t in result.topics if t.differs or not differing]
        for name, result in found.items()
    }
    if output is Form.JSON:
        told = [
            {
                "name": name,
                "topics": [{**asdict(t), "differs": t.differs} for t in topics],
            }
            for name, topics in rows.items()
        ]
        document({"flows": told, "failures": failures})
    elif found:
        table(
            LIST_COLUMNS,
            (
                (
                    *(name, topic.topic, topic.partitions, topic.target_topic),
                    *(topic.target_partitions, differences(asdict(topic))),
                )
                for name, topics in rows.items()
                for topic in topics
            ),
        )
    end(failures)


@app.command("configs")
@spread
def correct_configs(config: ConfigFile, *, flow: Flows = None, change: Change) -> None:
    """Correct configs of copies, once.

    The service does this at intervals where sync_topic_configs is on; the command works
    even where it is off. Exit status 1 if something could not be corrected.

    \b
    Examples:
      mirror topic configs -c mirror.yaml --dry-run
      mirror topic configs -c mirror.yaml --flow A/B --yes
    """
    chosen, flows = chosen_flows(config, flow)
    failures: list[str] = []
    found = _each(chosen, flows, failures, _configs_of(configs.look))
    changes = [
        (name, topic.target_topic, each)
        for name, result in found.items()
        for topic in result.topics
        for each in topic.configs
    ]
    if change.output is Form.JSON:
        told = [
            {"flow": name, "target_topic": copy, **asdict(each)}
            for name, copy, each in changes
        ]
        document({"changes": told, "failures": failures})
    elif changes:
        table(
            CONFIG_COLUMNS,
            (
                (n, copy, c.name, config_value(c.found), config_value(c.wanted))
                for n, copy, c in changes
            ),
        )
    if changes and change.agreed("Change these configs?"):

        def correct(flow: FlowConfig, reach: Reach, merging: Merging) -> None:
            done = _configs_of(configs.sync)(flow, reach, merging)
            complain(*(f"changed {each}" for each in done.corrected))
            failures.extend(f"flow {flow.name}: {text}" for text in done.problems)

        _each(chosen, flows, failures, correct, notes=False)
    end(failures)


@app.command("acls", short_help="Give copies the ACLs of their topics, once.")
@spread
def sync_acls(config: ConfigFile, *, flow: Flows = None, change: Change) -> None:
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
    failures: list[str] = []
    found = _each(chosen, flows, failures, partial(_acls_of, acls.look, chosen))
    for name, result in found.items():
        if result.state is AclState.NOT_PERMITTED:
            failures.append(f"flow {name}: {result.reason}")
        elif result.reason:
            complain(f"flow {name}: {result.reason}")
    rows = [row for name, result in found.items() for row in _acl_rows(name, result)]
    if change.output is Form.JSON:
        told = [_acl_document(name, result) for name, result in found.items()]
        document({"flows": told, "failures": failures})
    elif rows:
        table(ACL_COLUMNS, rows)
    to_do = [f for f in flows if f.name in found and _has_changes(found[f.name])]
    if to_do and change.agreed("Make these changes?"):
        sync = partial(_acls_of, acls.sync, chosen)
        done = _each(chosen, to_do, failures, sync, notes=False)
        for name, result in done.items():
            complain(
                *(f"added {binding}" for binding in result.added),
                *(f"removed {binding}" for binding in result.removed),
            )
            failures += [f"flow {name}: {text}" for text in result.problems]
            if result.state is AclState.NOT_PERMITTED:
                failures.append(f"flow {name}: {result.reason}")
    end(failures)


def _each(
    chosen: MirrorConfig,
    flows: Iterable[FlowConfig],
    failures: list[str],
    work: Callable[[FlowConfig, Reach, Merging], T],
    *,
    notes: bool = True,
) -> dict[str, T]:
    """The results by flow; `failures` gets the flows whose clusters do not answer. Each
    flow is without what pairs with names have moved; `Merging` has all that count.
    `notes`: say of which pairs it is not certain who is active.
    """
    from mirror.pairs.flow_roles import in_order

    found: dict[str, T] = {}
    with Reach(chosen.clusters, client_id="mirror.topic") as reach:
        counting, uncertain = in_order(chosen, reach)
        if notes:
            complain(*uncertain)
        now, merging = {flow.name: flow for flow in counting}, Merging(counting)
        for flow in flows:
            with noted(failures, flow):
                found[flow.name] = work(now.get(flow.name, flow), reach, merging)
    return found


def _configs_of(
    work: Callable[..., ConfigsResult],
) -> Callable[[FlowConfig, Reach, Merging], ConfigsResult]:
    """`configs.look` or `sync`, for a flow."""

    def on(flow: FlowConfig, reach: Reach, merging: Merging) -> ConfigsResult:
        return work(reach(flow.source), reach(flow.target), flow, merging, reach)

    return on


def _acls_of(
    work: Callable[..., AclsResult],
    chosen: MirrorConfig,
    flow: FlowConfig,
    reach: Reach,
    _merging: Merging,
) -> AclsResult:
    """`acls.look` or `sync`, for a flow."""
    rests = partial(scopes.left_alone, chosen.flows[flow.name], flow)
    return work(reach(flow.source), reach(flow.target), flow, rests=rests)


def _has_changes(result: AclsResult) -> bool:
    return bool(result.added or result.removed)


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
            *(flow, change, binding.topic, binding.pattern, binding.principal),
            *(binding.host, binding.operation, binding.permission, reason),
        )
        for change, binding, reason in changes
    )
