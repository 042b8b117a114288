"""`mirror status`: shows the flows of a running service, asked over HTTP.

It shows the service's answer at `/status` and judges nothing: the command succeeds even
if a flow has failed.
"""

from __future__ import annotations

from typing import Any

from mirror.cli.asking import CaFile, OfConfig, TokenFile, Url, ask
from mirror.cli.output import (
    Form,
    Output,
    blank_line,
    complain,
    document,
    milliseconds,
    moment,
    rate,
    remaining,
    table,
)
from mirror.status.drift import differences

FLOW_COLUMNS = (
    *("FLOW", "STATE", "SINCE", "LAG", "REMAINING", "RECORDS", "RATE"),
    *("FAULTED", "PAUSED", "LOST", "RESTARTS", "REASON"),
)
_HELD_BACK = 0.8
"""A flow that reads this share of its limit would be faster without it."""
PAIR_COLUMNS = ("PAIR", "ACTIVE", "EPOCH", "SINCE", "RUN")
SLOT_COLUMNS = ("FLOW", "SLOT", "PARTITIONS", "BUSY", "RECORDS/S", "RATE")
DRIFT_COLUMNS = ("FLOW", "TARGET-TOPIC", "DIFFERS")
SCHEMA_COLUMNS = ("FLOW", "SCHEMA-SUBJECT", "STATE", "REASON")
TRANSFORM_COLUMNS = ("FLOW", "TOPIC", "PARTITION", "REMOVED", "DEAD-LETTERS")
GROUP_COLUMNS = (
    *("FLOW", "GROUP", "PARTITIONS", "BEHIND", "EXACTNESS", "ON-TARGET", "REASON"),
)
PARTITION_COLUMNS = (
    *("FLOW", "TOPIC", "PARTITION", "TARGET-TOPIC", "STATE", "LAG", "RECORDS"),
    *("LATENCY-P50", "SINCE", "REASON"),
)


def status(
    *,
    url: Url = None,
    config: OfConfig = None,
    token_file: TokenFile = None,
    ca_file: CaFile = None,
    output: Output = Form.TABLE,
) -> None:
    """Show the flows and partitions of a running service.

    LAG counts source offsets that are not copied yet, REMAINING is the time to catch up
    at the current rate, RECORDS are those copied since the service started. A slot
    copies a share of the partitions; BUSY is its share of one core, RATE what it sends
    to the target. LATENCY-P50 is the time from a record's timestamp to its commit. LOST
    counts source offsets that are gone (`mirror loss list` has their ranges). A FAULTED
    partition is retried with growing pauses. A group is BEHIND by the offsets that it
    has read and that are not copied yet; ON-TARGET is active where it has members
    there, so mirror leaves its offsets alone. If a newer CONFIGURATION was REFUSED, the
    previous one stays in use.

    \b
    Examples:
      mirror status
      mirror status -u http://mirror.example.com:8083
      mirror status -o json | jq '.flows[] | {name, state, lag}'
    """
    answer = ask(url, config, token_file=token_file, ca_file=ca_file)
    if output is Form.JSON:
        document(answer)
    else:
        _show(answer)


def _show(answer: dict[str, Any]) -> None:
    flows = answer["flows"]
    table(FLOW_COLUMNS, map(_flow_row, flows))
    _show_silent(answer.get("clusters", ()))
    _show_pairs(answer.get("pairs", ()))
    if any(flow.get("slot_loads") for flow in flows):
        blank_line()
        table(
            SLOT_COLUMNS,
            (
                _slot_row(flow["name"], slot)
                for flow in flows
                for slot in flow.get("slot_loads", ())
            ),
        )
    if any(flow["partitions"] for flow in flows):
        blank_line()
        table(
            PARTITION_COLUMNS,
            (
                _partition_row(flow["name"], partition)
                for flow in flows
                for partition in flow["partitions"]
            ),
        )
    transformed = [
        (flow["name"], part["topic"], part["partition"], *left_out)
        for flow in flows
        for part in flow["partitions"]
        if any(left_out := (part.get("removed", 0), part.get("dead_letters", 0)))
    ]
    if transformed:
        blank_line()
        table(TRANSFORM_COLUMNS, transformed)
    groups = [
        _group_row(flow["name"], group)
        for flow in flows
        for group in flow.get("groups", ())
    ]
    if groups:
        blank_line()
        table(GROUP_COLUMNS, groups)
    problems = [(flow["name"], text) for flow in flows for text in flow["problems"]]
    if problems:
        blank_line()
        table(("FLOW", "PROBLEM"), problems)
    drift = [
        (flow["name"], topic["target_topic"], differences(topic))
        for flow in flows
        for topic in flow.get("drift", ())
    ]
    if drift:
        blank_line()
        table(DRIFT_COLUMNS, drift)
    _show_schemas(flows)
    gone = [(flow["name"], text) for flow in flows for text in flow.get("gone", ())]
    if gone:
        blank_line()
        table(("FLOW", "GONE"), gone)
    configuration = answer.get("config", {})
    if configuration.get("refused"):
        blank_line()
        refused_at = moment(configuration["refused_at"])
        table(
            ("REFUSED", "CONFIGURATION"),
            ((refused_at, text) for text in configuration["refused"]),
        )


def _show_silent(clusters: list[dict[str, Any]]) -> None:
    silent = [
        (each["alias"], moment(each["since"]), each["reason"])
        for each in clusters
        if not each["answers"]
    ]
    if silent:
        blank_line()
        table(("CLUSTER", "SILENT-SINCE", "REASON"), silent)


def _show_schemas(flows: list[dict[str, Any]]) -> None:
    found = [
        (flow["name"], each["subject"], each["state"], each["reason"])
        for flow in flows
        for each in flow.get("schemas", {}).get("subjects", ())
    ]
    if found:
        blank_line()
        table(SCHEMA_COLUMNS, found)


def _show_pairs(pairs: list[dict[str, Any]]) -> None:
    if pairs:
        blank_line()
        table(
            PAIR_COLUMNS,
            (
                (p["name"], p["active"], p["epoch"], moment(p["since"]), p["run"])
                for p in pairs
            ),
        )
    for pair in pairs:
        complain(*filter(None, (pair.get("problem"), pair.get("pending"))))


def _flow_row(flow: dict[str, Any]) -> tuple[object, ...]:
    return (
        flow["name"],
        flow["state"],
        moment(flow["since"]),
        flow["lag"],
        remaining(flow.get("remaining_seconds", -1.0)),
        flow["records"],
        rate(flow.get("bytes_per_second", 0.0)),
        flow["faulted"],
        flow.get("paused", 0),
        flow.get("lost", 0),
        flow["restarts"],
        flow["reason"] or _limit(flow),
    )


def _limit(flow: dict[str, Any]) -> str:
    """Whether max_bytes_per_second decides how far behind the flow is."""
    used = flow.get("limit_used", 0.0)
    if not flow.get("catching_up") or used < _HELD_BACK:
        return ""
    return f"held back by max_bytes_per_second, {rate(flow['max_bytes_per_second'])}"


def _group_row(flow: str, group: dict[str, Any]) -> tuple[object, ...]:
    return (
        flow,
        group["group"],
        group["partitions"],
        group["behind"],
        group["exactness"],
        "active" if group["active_on_target"] else "",
        group["reason"],
    )


def _slot_row(flow: str, slot: dict[str, Any]) -> tuple[object, ...]:
    return (
        flow,
        slot["number"],
        slot["partitions"],
        f"{slot['busy']:.0%}",
        round(slot["records_per_second"]),
        rate(slot["bytes_per_second"]),
    )


def _partition_row(flow: str, partition: dict[str, Any]) -> tuple[object, ...]:
    return (
        flow,
        partition["topic"],
        partition["partition"],
        partition["target_topic"],
        partition["state"],
        partition["lag"],
        partition["records"],
        milliseconds(partition["latency_p50_ms"]),
        moment(partition["since"]),
        partition["reason"],
    )
