"""Prometheus' own tool on the rules: each alert just below and just above its limit."""

from __future__ import annotations

from dataclasses import dataclass
import json
from pathlib import Path
import re
import shutil
import subprocess

import pytest
import yaml

pytestmark = pytest.mark.acceptance

ROOT = Path(__file__).parents[2]
RULES = sorted((ROOT / "dashboards" / "prometheus").glob("*.rules.yaml"))
RUNBOOKS = ROOT / "docs" / "howto" / "runbooks"
FLOW = 'job="mirror",instance="i",source="A",target="B"'
RUNNING = f'mirror_flow_state{{{FLOW},state="RUNNING"}}'
PAUSED = f'mirror_flow_state{{{FLOW},state="PAUSED"}}'
STANDBY = f'mirror_flow_state{{{FLOW},state="STANDBY"}}'
RETRYING = f'mirror_flow_state{{{FLOW},state="RETRYING"}}'
LAG = f"mirror_flow_lag_seconds{{{FLOW}}}"
SLA = f"mirror_flow_sla_seconds{{{FLOW}}}"
WITHIN = f"mirror_flow_within_sla{{{FLOW}}}"
TOPIC = f'{FLOW},topic="t"'
PARTITION = f'{TOPIC},partition="0"'
PROGRESS = tuple(
    f"mirror_{what}_total{{{PARTITION}}}"
    for what in (
        *("filtered_records", "skipped_records", "transform_removed_records"),
        *("dead_letter_records", "lost_records"),
    )
)
LOST = f"mirror_lost_records_total{{{PARTITION}}}"

Series = dict[str, str]
"""Values by series, in promtool's notation, one a minute."""


@dataclass(frozen=True, kw_only=True)
class Case:
    alert: str
    what: str
    series: Series
    minutes: int
    fires: bool
    severity: str = ""

    @property
    def name(self) -> str:
        return f"{self.alert}: {self.what}"


def both(
    alert: str, below: tuple[str, Series, int], above: tuple[str, Series, int]
) -> list[Case]:
    (a, quiet, early), (b, loud, late) = below, above
    return [
        Case(alert=alert, what=a, series=quiet, minutes=early, fires=False),
        Case(alert=alert, what=b, series=loud, minutes=late, fires=True),
    ]


def steady(value: float, series: str, **more: str) -> Series:
    return {series: f"{value}+0x6000", **more}


def lag(value: str, state: str = RUNNING) -> Series:
    return {LAG: value, SLA: "60+0x6000", state: "1+0x6000"}


def stalled(records: str, lag_records: int = 5, state: str = RUNNING) -> Series:
    return {
        f"mirror_flow_lag_records{{{FLOW}}}": f"{lag_records}+0x100",
        f"mirror_records_total{{{PARTITION}}}": records,
        **dict.fromkeys(PROGRESS, "0+0x100"),
        state: "1+0x100",
    }


def transactions(aborted: str) -> Series:
    return {
        f"mirror_transactions_aborted_total{{{FLOW}}}": aborted,
        f"mirror_transaction_duration_seconds_count{{{FLOW}}}": "0+90x100",
    }


FAULTED = f'mirror_partitions{{{TOPIC},state="FAULTED"}}'
OVERDUE = f"mirror_flow_report_overdue_seconds{{{FLOW}}}"
HEARTBEAT = f"mirror_heartbeat_timestamp_seconds{{{FLOW}}}"
CHECKPOINT = f"mirror_checkpoint_timestamp_seconds{{{FLOW}}}"
JOB = f'mirror_job_failing{{{FLOW},job_name="j"}}'
GROUP = f'mirror_group_unknown_partitions{{{FLOW},group="g"}}'
DEAD = f"mirror_dead_letter_records_total{{{PARTITION}}}"
RESTARTS = f"mirror_flow_restarts_total{{{FLOW}}}"
BUILD = 'mirror_build_info{job="mirror",instance="i"}'
MINUTES_OF_LOSS = "1x{0} 0x{1} 1x6000"


CASES = [
    *both(
        "MirrorMetricsAbsent",
        ("gone for 9 minutes, five of which Prometheus looks back",
         {BUILD: "1 _x30"}, 9),
        ("gone for 11 minutes", {BUILD: "1 _x30"}, 11),
    ),
    *both(
        "MirrorFlowDown",
        ("for 2 minutes", steady(1, RETRYING), 2),
        ("for 3 minutes", steady(1, RETRYING), 3),
    ),
    Case(
        alert="MirrorFlowDown", what="starting and failing in turns", fires=True,
        series={
            RETRYING: "1 0 1 0 1 0",
            f'mirror_flow_state{{{FLOW},state="STARTING"}}': "0 1 0 1 0 1",
        },
        minutes=4,
    ),
    *both(
        "MirrorFlowWithoutLeader",
        ("another one leads", {
            STANDBY: "1x10", RUNNING: "0x10",
            STANDBY.replace('"i"', '"j"'): "0x10",
            RUNNING.replace('"i"', '"j"'): "1x10",
        }, 8),
        ("both stand by", {
            STANDBY: "1x10", RUNNING: "0x10",
            STANDBY.replace('"i"', '"j"'): "1x10",
            RUNNING.replace('"i"', '"j"'): "0x10",
        }, 2),
    ),
    *both(
        "MirrorFlowStalled",
        ("one record in 10 minutes", stalled("0+0x5 1+0x9 2+0x9 3+0x80"), 30),
        ("none", stalled("0+0x100"), 20),
    ),
    *both(
        "MirrorFlowStalled",
        ("nothing to do", stalled("0+0x100", lag_records=0), 30),
        ("markers only, then none", stalled("0+0x100"), 30),
    ),
    Case(
        alert="MirrorFlowStalled", what="paused on purpose", fires=False,
        series=stalled("0+0x100", state=PAUSED), minutes=30,
    ),
    *both(
        "MirrorFlowStalled",
        ("a report overdue by 60 s", {OVERDUE: "60x30", RUNNING: "1x30"}, 20),
        ("by 61 s", {OVERDUE: "61x30", RUNNING: "1x30"}, 20),
    ),
    *both(
        "MirrorReplicationLagHigh",
        ("at the SLA", lag("60x30"), 20),
        ("a second beyond it", lag("61x30"), 2),
    ),
    *both(
        "MirrorReplicationLagHigh",
        ("beyond it for a minute", lag("61x30"), 1),
        ("beyond an SLA of its own", {**lag("6x30"), SLA: "5x30"}, 3),
    ),
    Case(
        alert="MirrorReplicationLagHigh", what="paused on purpose", fires=False,
        series=lag("600x30", PAUSED), minutes=20,
    ),
    *both(
        "MirrorReplicationLagGrowing",
        ("by 5 s a minute", lag("16+5x60"), 40),
        ("by 7 s a minute", lag("16+7x60"), 30),
    ),
    *both(
        "MirrorReplicationLagGrowing",
        ("far below the SLA", {**lag("1+7x60"), SLA: "6000x60"}, 40),
        ("at a quarter of it", {**lag("1+7x60"), SLA: "100x60"}, 40),
    ),
    # The budget of 1 %: so many minutes of the window beyond the SLA.
    *both(
        "MirrorLagBudgetBurn",
        ("8 minutes of the last hour", {WITHIN: "1x51 0x7"}, 59),
        ("10 minutes", {WITHIN: "1x49 0x11"}, 61),
    ),
    *both(
        "MirrorLagBudgetBurn",
        ("15 minutes of 6 hours, over by now", {WITHIN: "1x300 0x14 1x200"}, 345),
        ("25 minutes of 6 hours and going on, now and then",
         {WITHIN: "1x300 " + "0x1 1x3 " * 24}, 395),
    ),
    *both(
        "MirrorPartitionFaulted",
        ("for 4 minutes", steady(1, FAULTED), 4),
        ("for 5 minutes", steady(1, FAULTED), 5),
    ),
    *both(
        "MirrorTopicNotMirrored",
        ("none", steady(0, f"mirror_flow_problem_topics{{{FLOW}}}"), 30),
        ("one", steady(1, f"mirror_flow_problem_topics{{{FLOW}}}"), 15),
    ),
    *both(
        "MirrorRecordsLost",
        ("long ago", {LOST: "0x10 7x200"}, 100),
        ("within the hour", {LOST: "0x10 7x200"}, 30),
    ),
    *both(
        "MirrorRecordsLost",
        ("none", {LOST: "0x30"}, 20),
        ("before the first scrape", {LOST: "_x10 7x60"}, 20),
    ),
    *both(
        "MirrorDeadLetters",
        ("half an hour ago", {DEAD: "0x5 1x60"}, 36),
        ("one, just now", {DEAD: "0x5 1x60"}, 10),
    ),
    *both(
        "MirrorTransactionsAborting",
        ("9 % of them", transactions("0+8.9x100"), 60),
        ("11 % of them", transactions("0+11.2x100"), 40),
    ),
    *both(
        "MirrorFlowRestarting",
        ("twice", {RESTARTS: "0x20 1 2x60"}, 25),
        ("five times", {RESTARTS: "0x20 1 2 3 4 5x60"}, 26),
    ),
    *both(
        "MirrorHeartbeatMissing",
        ("120 s old", {HEARTBEAT: "0+60x60", BUILD: "1x60"}, 20),
        ("stopped 5 minutes ago", {HEARTBEAT: "0+0x60"}, 5),
    ),
    *both(
        "MirrorCheckpointStale",
        ("600 s old", {CHECKPOINT: "0+0x60"}, 10),
        ("16 minutes old", {CHECKPOINT: "0+0x60"}, 16),
    ),
    *both(
        "MirrorGroupNotReady",
        ("for 14 minutes", steady(2, GROUP), 14),
        ("for 15 minutes", steady(2, GROUP), 15),
    ),
    *both(
        "MirrorConfigDrift",
        ("for 14 minutes", steady(1, f"mirror_flow_drifted_topics{{{FLOW}}}"), 14),
        ("for 15 minutes", steady(1, f"mirror_flow_drifted_topics{{{FLOW}}}"), 15),
    ),
    *both(
        "MirrorJobFailing",
        ("once in a while", {JOB: "1x10 0 1x13"}, 24),
        ("all the time", steady(1, JOB), 15),
    ),
]  # fmt: skip


def promtool(*arguments: str) -> str:
    if shutil.which("promtool") is None:
        pytest.fail(
            "promtool is missing: install Debian's package prometheus, or put the "
            "promtool of a Prometheus release on PATH"
        )
    done = subprocess.run(
        ["promtool", *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def alerts() -> list[dict[str, object]]:
    found = []
    for file in RULES:
        for group in yaml.safe_load(file.read_text())["groups"]:
            found += [rule for rule in group["rules"] if "alert" in rule]
    return found


def run(tmp_path: Path, tests: list[dict[str, object]]) -> None:
    file = tmp_path / "tests.yaml"
    document = {
        "rule_files": [str(rules) for rules in RULES],
        "evaluation_interval": "1m",
        "tests": tests,
    }
    file.write_text(yaml.safe_dump(document))
    promtool("test", "rules", str(file))


def test_rules_are_valid():
    """Prometheus reads all rule files."""
    assert len(RULES) == 3
    promtool("check", "rules", *map(str, RULES))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_alert(case: Case, tmp_path: Path) -> None:
    """An alert fires beyond its limit and its time, and at neither before."""
    expr = f'count(ALERTS{{alertname="{case.alert}",alertstate="firing"}}) > bool 0'
    samples = [{"labels": "{}", "value": 1}] if case.fires else []
    run(
        tmp_path,
        [
            {
                "interval": "1m",
                "input_series": [
                    {"series": name, "values": values}
                    for name, values in case.series.items()
                ],
                "promql_expr_test": [
                    {"expr": expr, "eval_time": f"{case.minutes}m",
                     "exp_samples": samples}
                ],
            }
        ],
    )  # fmt: skip


def test_what_an_alert_says(tmp_path: Path) -> None:
    """Labels and annotations are filled in, the page's address included."""
    run(
        tmp_path,
        [
            {
                "interval": "1m",
                "input_series": [
                    {"series": name, "values": values}
                    for name, values in lag("75x30").items()
                ],
                "alert_rule_test": [
                    {"alertname": "MirrorReplicationLagHigh", "eval_time": "1m"},
                    {
                        "alertname": "MirrorReplicationLagHigh",
                        "eval_time": "3m",
                        "exp_alerts": [
                            {
                                "exp_labels": {
                                    "severity": "critical",
                                    "job": "mirror",
                                    "instance": "i",
                                    "source": "A",
                                    "target": "B",
                                },
                                "exp_annotations": {
                                    "summary": "A flow is further behind than its SLA "
                                    "allows.",
                                    "description": "Flow A->B is 1m 15s behind. "
                                    "`mirror lag` shows which partitions.",
                                    "runbook_url": "https://mirror.example.com/"
                                    "runbooks/MirrorReplicationLagHigh",
                                },
                            }
                        ],
                    },
                ],
            }
        ],
    )


def test_names_of_mirrormaker_2(tmp_path: Path) -> None:
    """Dashboards for MirrorMaker 2 find its metrics, with the copy's name as topic."""
    info = f'mirror_topic_info{{{TOPIC},target_topic="A.t"}}'
    name = "kafka_connect_mirror_mirrorsourceconnector"
    latency = "mirror_replication_latency_seconds"
    copy = '{job="mirror",instance="i",source="A",target="B",topic="A.t",'
    copy += 'target_topic="A.t"'
    run(
        tmp_path,
        [
            {
                "interval": "1m",
                "input_series": [
                    {"series": info, "values": "1x20"},
                    {"series": f"mirror_records_total{{{PARTITION}}}",
                     "values": "0+60x20"},
                    {"series": f"{latency}_sum{{{TOPIC}}}", "values": "0+3x20"},
                    {"series": f"{latency}_count{{{TOPIC}}}", "values": "0+60x20"},
                ],
                "promql_expr_test": [
                    {"expr": f"{name}_record_count", "eval_time": "10m",
                     "exp_samples": [{"value": 600, "labels":
                         f'{name}_record_count{copy},partition="0"}}'}]},
                    {"expr": f"round({name}_replication_latency_ms_avg)",
                     "eval_time": "10m",
                     "exp_samples": [{"value": 50, "labels": f"{copy}}}"}]},
                ],
            }
        ],
    )  # fmt: skip


def test_every_alert_has_cases_and_a_page():
    """Both sides of its limit are tried, and its page has the parts that help at
    night: what it means, how to confirm it, what to do.
    """
    names = {str(alert["alert"]) for alert in alerts()}

    for fires in (False, True):
        assert {case.alert for case in CASES if case.fires is fires} == names
    assert {page.stem for page in RUNBOOKS.glob("Mirror*.md")} == names
    for page in RUNBOOKS.glob("Mirror*.md"):
        found = re.findall(r"^## (.+)$", page.read_text(), re.MULTILINE)
        assert found == ["Meaning", "Confirm", "What to do"], page


def test_alerts_are_complete():
    """Each has a severity and says what is wrong and where to read on."""
    for file in RULES:
        for group in yaml.safe_load(file.read_text())["groups"]:
            for rule in group["rules"]:
                if "alert" not in rule:
                    continue
                assert rule["labels"]["severity"] in {"critical", "warning", "info"}
                said = rule["annotations"]
                assert set(said) == {"summary", "description", "runbook_url"}
                assert "{{" not in said["summary"]
                assert said["runbook_url"].endswith(f"/{rule['alert']}")


def test_dashboards_ask_in_promql(tmp_path: Path) -> None:
    """Prometheus can read every query of every dashboard."""
    asked = [
        target["expr"].replace("$__rate_interval", "5m").replace("$__range", "1h")
        for file in sorted((ROOT / "dashboards" / "grafana").glob("*.json"))
        for panel in json.loads(file.read_text())["panels"]
        for target in panel.get("targets", ())
    ]
    assert asked
    rules = [
        {"record": f"query:number{number}", "expr": expr}
        for number, expr in enumerate(asked)
    ]
    file = tmp_path / "queries.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "q", "rules": rules}]}))
    promtool("check", "rules", str(file))
