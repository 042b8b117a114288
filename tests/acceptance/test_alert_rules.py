"""Prometheus' own tool on the rules: each alert just below and just above its limit."""

from __future__ import annotations

from dataclasses import dataclass
import json
from pathlib import Path
import re
import subprocess

import pytest
import yaml

from tests import tools
from tests.harness.pages import blocks

pytestmark = pytest.mark.acceptance

ROOT = Path(__file__).parents[2]
RULES = sorted((ROOT / "dashboards" / "prometheus").glob("*.rules.yaml"))
OF_MM2 = "mirror-mm2-names.rules.yaml"
RUNBOOKS = ROOT / "docs" / "howto" / "runbooks"
FLOW = 'job="mirror",instance="i",source="A",target="B"'
RUNNING = f'mirror_flow_state{{{FLOW},state="RUNNING"}}'
STOPPED = f'mirror_flow_state{{{FLOW},state="STOPPED"}}'
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
    labels: str = ""
    """Which of several rules of one name, as matchers with a comma before."""


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
PROBLEMS = f"mirror_flow_problem_topics{{{FLOW}}}"
DRIFT = f"mirror_flow_drifted_topics{{{FLOW}}}"
OVERDUE = f"mirror_flow_report_overdue_seconds{{{FLOW}}}"
HEARTBEAT = f"mirror_heartbeat_timestamp_seconds{{{FLOW}}}"
COPIED = f"mirror_copied_heartbeat_timestamp_seconds{{{FLOW}}}"
LEFT = f"mirror_flow_backfill_remaining_seconds{{{FLOW}}}"
ANSWERS = 'mirror_cluster_answers{job="mirror",instance="i",cluster="A",side="source"}'
UP = 'up{job="mirror",instance="i"}'
CHECKPOINT = f"mirror_checkpoint_timestamp_seconds{{{FLOW}}}"
STANDBY_AT = f"mirror_standby_timestamp_seconds{{{FLOW}}}"
FINDINGS = f"mirror_verify_findings{{{FLOW}}}"
PROVEN = f"mirror_verify_proven_timestamp_seconds{{{FLOW}}}"
CONFIG = 'mirror_config_last_reload_successful{job="mirror",instance="i"}'
CONFLICTS = f'mirror_schema_subjects{{{FLOW},state="CONFLICT"}}'
WAITING = f"mirror_schema_waiting_partitions{{{FLOW}}}"
SCHEMAS_AT = f"mirror_schema_sync_timestamp_seconds{{{FLOW}}}"
JOB = f'mirror_job_failing{{{FLOW},job_name="j"}}'
GROUP = f'mirror_group_unknown_partitions{{{FLOW},group="g"}}'
DEAD = f"mirror_dead_letter_records_total{{{PARTITION}}}"
RESTARTS = f"mirror_flow_restarts_total{{{FLOW}}}"
PAIR = 'job="mirror",instance="i",pair="A<->B"'
JOURNAL_AT = f'mirror_journal_read_timestamp_seconds{{{PAIR},cluster="A"}}'
STEP = f"mirror_switch_step{{{PAIR}}}"
OWED = f'mirror_fence_owed{{{PAIR},cluster="A"}}'
NOT_READY = f'mirror_readiness{{{PAIR},state="NOT_READY"}}'
DEGRADED = f'mirror_readiness{{{PAIR},state="DEGRADED"}}'
DRILLED = f"mirror_drill_timestamp_seconds{{{PAIR}}}"
ON_PASSIVE = f'mirror_writes_on_passive_records_total{{{PAIR},cluster="A"}}'
TAIL = f'mirror_tail_records{{{PAIR},cluster="A"}}'
INSTANCE = 'job="mirror",instance="i"'
BUILD = f"mirror_build_info{{{INSTANCE}}}"
MEMORY = f"mirror_memory_bytes{{{INSTANCE}}}"
MEMORY_LIMIT = f"mirror_memory_limit_bytes{{{INSTANCE}}}"
HEAP = f"mirror_jvm_heap_bytes{{{INSTANCE}}}"
HEAP_LIMIT = f"mirror_jvm_heap_limit_bytes{{{INSTANCE}}}"
FILES = f'mirror_slot_open_files{{{FLOW},slot="0"}}'
FILES_LIMIT = f'mirror_slot_open_files_limit{{{FLOW},slot="0"}}'


def standing_by(*states: tuple[str, str]) -> Series:
    """Two instances: whether each stands by, and whether it runs, by minute."""
    return {
        series.replace('"i"', f'"{instance}"'): values
        for instance, pair in zip("ij", states, strict=True)
        for series, values in zip((STANDBY, RUNNING), pair, strict=True)
    }


def burning(long: str, missed: str, minutes: int, after: int) -> list[Case]:
    """A rule on the budget, by its longer window: a steady share of missed time that
    is just allowed, one just above, and that one before its time is up. The share
    itself is the series, so that no window's edge decides.
    """

    def case(what: str, change: float, at: int, *, fires: bool) -> Case:
        share = 1 - (float(missed) + change)
        return Case(
            alert="MirrorLagBudgetBurn", labels=f',long="{long}"', what=what,
            series=steady(round(share, 6), WITHIN), minutes=at, fires=fires,
        )  # fmt: skip

    return [
        case(f"{long}: just below {missed}", -0.0002, minutes * 2, fires=False),
        case(f"{long}: above, too short", 0.0002, minutes - 1, fires=False),
        case(f"{long}: just above {missed}", 0.0002, after, fires=True),
    ]


CASES = [
    *both(
        "MirrorMetricsAbsent",
        ("gone for 9 minutes, five of which Prometheus looks back",
         {BUILD: "1 _x30"}, 9),
        ("gone for 11 minutes", {BUILD: "1 _x30"}, 11),
    ),
    Case(
        alert="MirrorMetricsAbsent", what="of two jobs, one is gone", fires=True,
        series={BUILD: "1 _x30", BUILD.replace('"mirror"', '"other"'): "1x30"},
        minutes=11, labels=',job="mirror"',
    ),
    Case(
        alert="MirrorMetricsAbsent", what="the other one is there", fires=False,
        series={BUILD: "1 _x30", BUILD.replace('"mirror"', '"other"'): "1x30"},
        minutes=20, labels=',job="other"',
    ),
    Case(
        alert="MirrorMetricsAbsent", what="one of its instances is gone", fires=False,
        series={BUILD: "1 _x30", BUILD.replace('"i"', '"j"'): "1x30"}, minutes=20,
    ),
    Case(
        alert="MirrorMetricsAbsent", what="it has been gone for a day", fires=False,
        series={BUILD: "1 _x1600", BUILD.replace('"mirror"', '"other"'): "1x1600"},
        minutes=1450,
    ),
    *both(
        "MirrorInstanceDown",
        ("for 2 minutes", {BUILD: "1 _x30", UP: "1 0x30"}, 3),
        ("for 3 minutes", {BUILD: "1 _x30", UP: "1 0x30"}, 4),
    ),
    Case(
        alert="MirrorInstanceDown", what="another program of this job", fires=False,
        series={BUILD: "1x30", UP: "1x30", UP.replace('"i"', '"other"'): "0x30"},
        minutes=20,
    ),
    *both(
        "MirrorClusterDown",
        ("for 1 minute", {ANSWERS: "1 0x30"}, 2),
        ("for 2 minutes", {ANSWERS: "1 0x30"}, 3),
    ),
    Case(
        alert="MirrorClusterDown", what="it answers another instance", fires=False,
        series={ANSWERS: "0x30", ANSWERS.replace('"i"', '"j"'): "1x30"}, minutes=20,
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
    Case(
        alert="MirrorFlowDown", what="it runs", fires=False,
        series=steady(0, RETRYING), minutes=10,
    ),
    *both(
        "MirrorFlowWithoutLeader",
        ("another one leads", standing_by(("1x10", "0x10"), ("0x10", "1x10")), 8),
        ("both stand by", standing_by(("1x10", "0x10"), ("1x10", "0x10")), 2),
    ),
    Case(
        alert="MirrorFlowWithoutLeader", what="for a minute, while one takes over",
        series=standing_by(("1x10", "0x10"), ("1x10", "0x10")),
        minutes=1, fires=False,
    ),
    *both(
        "MirrorFlowStalled",
        ("one record in 10 minutes", stalled("0+0x5 1+0x9 2+0x9 3+0x80"), 30),
        ("none", stalled("0+0x100"), 20),
    ),
    # What it asks for is recorded first: it is known from minute 1 or 2 on.
    *both(
        "MirrorFlowStalled",
        ("none, for 4 minutes", stalled("0+0x100"), 5),
        ("none, for 5 minutes", stalled("0+0x100"), 7),
    ),
    *both(
        "MirrorFlowStalled",
        ("nothing to do", stalled("0+0x100", lag_records=0), 30),
        ("a single record to do", stalled("0+0x100", lag_records=1), 30),
    ),
    *(
        Case(
            alert="MirrorFlowStalled", what=f"{what} on purpose", fires=False,
            series=stalled("0+0x100", state=state), minutes=30,
        )
        for what, state in (("stopped", STOPPED), ("standing by", STANDBY))
    ),
    *(
        Case(
            alert="MirrorFlowStalled", what=f"{series} alone moves", fires=False,
            series={**stalled("0+0x100"), series: "0+1x100"}, minutes=30,
        )
        for series in PROGRESS
    ),
    *both(
        "MirrorFlowStalled",
        ("a report overdue by 60 s", {OVERDUE: "60x30", RUNNING: "1x30"}, 20),
        ("by 61 s", {OVERDUE: "61x30", RUNNING: "1x30"}, 5),
    ),
    *both(
        "MirrorReplicationLagHigh",
        ("at the SLA", lag("60x30"), 20),
        ("a second beyond it", lag("61x30"), 2),
    ),
    *both(
        "MirrorReplicationLagHigh",
        ("beyond it for a minute", lag("61x30"), 1),
        ("beyond an SLA of its own", {**lag("5.1x30"), SLA: "5x30"}, 3),
    ),
    *(
        Case(
            alert="MirrorReplicationLagHigh", what=f"{what} on purpose", fires=False,
            series=lag("600x30", state), minutes=20,
        )
        for what, state in (("stopped", STOPPED), ("standing by", STANDBY))
    ),
    *(
        Case(
            alert="MirrorReplicationLagHigh", labels=f',severity="{severity}"',
            what=f"{what}: {severity}", fires=fires, minutes=minutes,
            series={**lag("600x60"), LEFT: left},
        )
        for what, left, minutes, paged in (
            ("caught up in six hours", "21600x60", 10, True),
            ("a second earlier", "21599x60", 10, False),
            ("not known for 4 minutes", "60x10 _x50", 14, False),
            ("not known for 8 minutes", "60x10 _x50", 18, True),
        )
        for severity, fires in (("critical", paged), ("warning", not paged))
    ),
    *both(
        "MirrorReplicationLagGrowing",
        ("by 5.9 s a minute", lag("16+5.9x60"), 60),
        ("by 6.1 s a minute", lag("16+6.1x60"), 30),
    ),
    # It is above a quarter of 564 s from minute 21 on.
    *both(
        "MirrorReplicationLagGrowing",
        ("above a quarter of the SLA for 9 minutes",
         {**lag("1+7x60"), SLA: "564x60"}, 30),
        ("for 10 minutes", {**lag("1+7x60"), SLA: "564x60"}, 31),
    ),
    # The budget is 1 % in 30 days; how many times as fast, in which two windows.
    *burning("1h", "0.144", 2, 3),
    *burning("6h", "0.06", 15, 16),
    *burning("1d", "0.03", 60, 61),
    *burning("3d", "0.01", 180, 181),
    # A backfill pages no one, neither while it will end in time nor when it has ended.
    *(
        Case(
            alert="MirrorLagBudgetBurn", labels=f',long="{long}"',
            what=f"{long}: after {minutes} minutes of backfill, {what}", fires=fires,
            series={WITHIN: "0x100 1x100", LEFT: left}, minutes=minutes,
        )
        for long in ("1h", "6h")
        for what, left, minutes, fires in (
            ("too slow", "21600x100", 90, True),
            ("in time", "600x100", 90, False),
            ("which ended", "600x100", 102, False),
            ("which ended", "600x100", 118, False),
        )
    ),
    # It ends with the shorter window, long before the longer one has forgotten.
    *(
        Case(
            alert="MirrorLagBudgetBurn", labels=f',long="{long}"', fires=fires,
            what=f"{long}: {what} within SLA", minutes=200 + minutes,
            series={WITHIN: "0x200 1x6000"},
        )
        for long, short in (("1h", 5), ("6h", 30), ("1d", 120), ("3d", 360))
        for what, minutes, fires in (
            ("for less than its short window", short // 2, True),
            ("for all of its short window", short + 3, False),
        )
    ),
    *both(
        "MirrorPartitionFaulted",
        ("for 4 minutes", steady(1, FAULTED), 4),
        ("for 5 minutes", steady(1, FAULTED), 5),
    ),
    *both(
        "MirrorTopicNotMirrored",
        ("for 14 minutes", steady(1, PROBLEMS), 14),
        ("for 15 minutes", steady(1, PROBLEMS), 15),
    ),
    *both(
        "MirrorRecordsLost",
        ("more than an hour ago", {LOST: "0x10 7x200"}, 72),
        ("59 minutes ago", {LOST: "0x10 7x200"}, 69),
    ),
    *both(
        "MirrorRecordsLost",
        ("more than an hour before, and before the first scrape",
         {LOST: "_x10 7x90"}, 72),
        ("before the first scrape", {LOST: "_x10 7x90"}, 69),
    ),
    *both(
        "MirrorDeadLetters",
        ("16 minutes ago", {DEAD: "0x5 1x60"}, 22),
        ("14 minutes ago", {DEAD: "0x5 1x60"}, 20),
    ),
    *both(
        "MirrorTransactionsAborting",
        ("9.9 % of them", transactions("0+9.88x100"), 60),
        ("10.1 % of them", transactions("0+10.12x100"), 11),
    ),
    Case(
        alert="MirrorTransactionsAborting", what="10.1 % for less than 10 minutes",
        series=transactions("0+10.12x100"), minutes=10, fires=False,
    ),
    *both(
        "MirrorFlowRestarting",
        ("three times", {RESTARTS: "0x20 1 2 3x60"}, 26),
        ("four times", {RESTARTS: "0x20 1 2 3 4x60"}, 26),
    ),
    *both(
        "MirrorHeartbeatMissing",
        ("120 s old", {HEARTBEAT: "-120+60x60"}, 20),
        ("121 s old", {HEARTBEAT: "-121+60x60"}, 2),
    ),
    *both(
        "MirrorCopiedHeartbeatMissing",
        ("300 s old", {COPIED: "-300+60x60"}, 20),
        ("301 s old", {COPIED: "-301+60x60"}, 5),
    ),
    *both(
        "MirrorStandbyStale",
        ("60 s old", {STANDBY_AT: "-60+60x60"}, 20),
        ("61 s old", {STANDBY_AT: "-61+60x60"}, 2),
    ),
    *both(
        "MirrorJournalUnread",
        ("60 s old", {JOURNAL_AT: "-60+60x60"}, 20),
        ("61 s old", {JOURNAL_AT: "-61+60x60"}, 2),
    ),
    *both(
        "MirrorSwitchStuck",
        ("open for 9 minutes", steady(3, STEP), 9),
        ("open for 10 minutes, at one step and another", {STEP: "3x5 4x60"}, 10),
    ),
    *both(
        "MirrorFenceOwed",
        ("for 4 minutes", steady(1, OWED), 4),
        ("for 5 minutes", steady(1, OWED), 5),
    ),
    *both(
        "MirrorNotReady",
        ("only DEGRADED", {NOT_READY: "0+0x60", DEGRADED: "1+0x60"}, 20),
        ("for 5 minutes", steady(1, NOT_READY), 5),
    ),
    *both(
        "MirrorDrillStale",
        ("two days ago", {DRILLED: "-172800+60x90"}, 60),
        ("a second more", {DRILLED: "-172801+60x90"}, 5),
    ),
    *both(
        "MirrorWritesOnPassive",
        ("none since long ago", {ON_PASSIVE: "0 17x60"}, 20),
        ("a single record", {ON_PASSIVE: "17x9 18x60"}, 12),
    ),
    *both(
        "MirrorWritesOnPassive",
        ("some before the first look", steady(17, ON_PASSIVE), 20),
        ("after a role changed", {ON_PASSIVE: "17x9 2x60"}, 12),
    ),
    *both(
        "MirrorTailUnsettled",
        ("settled after 59 minutes", {TAIL: "7x58 0x20"}, 61),
        ("for an hour, some settled meanwhile", {TAIL: "7x30 3x60"}, 60),
    ),
    *both(
        "MirrorCopyDiffers",
        ("none", steady(0, FINDINGS), 60),
        ("one, at once", {FINDINGS: "0 1x60"}, 1),
    ),
    *both(
        "MirrorProofStale",
        ("3600 s old", {PROVEN: "-3600+60x90"}, 60),
        ("3601 s old", {PROVEN: "-3601+60x90"}, 5),
    ),
    *both(
        "MirrorCheckpointStale",
        ("600 s old", {CHECKPOINT: "-600+60x60"}, 20),
        ("601 s old", {CHECKPOINT: "-601+60x60"}, 5),
    ),
    *both(
        "MirrorGroupNotReady",
        ("for 14 minutes", steady(1, GROUP), 14),
        ("for 15 minutes", steady(1, GROUP), 15),
    ),
    *both(
        "MirrorConfigDrift",
        ("for 14 minutes", steady(1, DRIFT), 14),
        ("for 15 minutes", steady(1, DRIFT), 15),
    ),
    *both(
        "MirrorJobFailing",
        ("for 14 minutes", steady(1, JOB), 14),
        ("for 15 minutes", steady(1, JOB), 15),
    ),
    *both(
        "MirrorSchemaConflict",
        ("for 4 minutes", steady(1, CONFLICTS), 4),
        ("for 5 minutes", steady(1, CONFLICTS), 5),
    ),
    Case(
        alert="MirrorSchemaConflict", what="on standby", fires=False, minutes=30,
        series=steady(1, CONFLICTS, **{STANDBY: "1x60"}),
    ),
    *both(
        "MirrorSchemaStale",
        ("300 s old", {SCHEMAS_AT: "-300+60x60"}, 20),
        ("301 s old", {SCHEMAS_AT: "-301+60x60"}, 2),
    ),
    *both(
        "MirrorSchemaWaiting",
        ("for 1 minute", steady(1, WAITING), 1),
        ("for 2 minutes", steady(1, WAITING), 2),
    ),
    Case(
        alert="MirrorSchemaWaiting", what="on standby", fires=False, minutes=30,
        series=steady(1, WAITING, **{STANDBY: "1x60"}),
    ),
    *both(
        "MirrorMemoryNearLimit",
        ("90 %", {MEMORY: "900x60", MEMORY_LIMIT: "1000x60"}, 60),
        ("91 %", {MEMORY: "910x60", MEMORY_LIMIT: "1000x60"}, 10),
    ),
    *both(
        "MirrorHeapNearLimit",
        ("emptied now and then", {HEAP: "99 99 99 99 20 99 99 99 99 99x60",
                                  HEAP_LIMIT: "100x60"}, 10),
        ("91 % at its lowest", {HEAP: "91 99x60", HEAP_LIMIT: "100x60"}, 20),
    ),
    *both(
        "MirrorOpenFilesNearLimit",
        ("80 %", {FILES: "80x60", FILES_LIMIT: "100x60"}, 60),
        ("81 % in a slot", {FILES: "81x60", FILES_LIMIT: "100x60"}, 10),
    ),
    Case(
        alert="MirrorOpenFilesNearLimit", what="the JVM", fires=True, minutes=10,
        series={f"mirror_jvm_open_files{{{INSTANCE}}}": "81x60",
                f"mirror_jvm_open_files_limit{{{INSTANCE}}}": "100x60"},
    ),
    Case(
        alert="MirrorOpenFilesNearLimit", what="the driver", fires=True, minutes=10,
        series={f"process_open_fds{{{INSTANCE}}}": "81x60",
                f"process_max_fds{{{INSTANCE}}}": "100x60", BUILD: "1x60"},
    ),
    Case(
        alert="MirrorOpenFilesNearLimit", what="another program", fires=False,
        minutes=30,
        series={f"process_open_fds{{{INSTANCE}}}": "81x60",
                f"process_max_fds{{{INSTANCE}}}": "100x60"},
    ),
    *both(
        "MirrorConfigRefused",
        ("for 4 minutes", steady(0, CONFIG), 4),
        ("for 5 minutes", steady(0, CONFIG), 5),
    ),
    Case(
        alert="MirrorConfigRefused", what="it counts", fires=False,
        series=steady(1, CONFIG), minutes=30,
    ),
    Case(
        alert="MirrorJobFailing", what="it went well in between", fires=False,
        series={JOB: "1x10 0 1x13"}, minutes=24,
    ),
    *(
        Case(alert=alert, what="nothing", series=steady(0, series), minutes=30,
             fires=False)
        for alert, series in (
            ("MirrorPartitionFaulted", FAULTED),
            ("MirrorTopicNotMirrored", PROBLEMS),
            ("MirrorRecordsLost", LOST),
            ("MirrorDeadLetters", DEAD),
            ("MirrorGroupNotReady", GROUP),
            ("MirrorConfigDrift", DRIFT),
            ("MirrorJobFailing", JOB),
            ("MirrorSchemaConflict", CONFLICTS),
            ("MirrorSchemaWaiting", WAITING),
        )
    ),
]  # fmt: skip


def promtool(*arguments: str) -> str:
    done = subprocess.run(
        [tools.path("promtool"), *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def alerts() -> list[dict[str, object]]:
    found = []
    for file in RULES:
        for group in yaml.safe_load(file.read_text())["groups"]:
            found += [rule for rule in group["rules"] if "alert" in rule]
    return found


def only(alert: str, folder: Path) -> list[Path]:
    """The rules of an alert and what is recorded for it: promtool evaluates every rule
    for every minute.
    """
    files = []
    for rules in RULES:
        document = yaml.safe_load(rules.read_text())
        for group in document["groups"]:
            group["rules"] = [
                rule for rule in group["rules"] if rule.get("alert", alert) == alert
            ]
        if rules.name != OF_MM2:
            files.append(folder / rules.name)
            files[-1].write_text(yaml.safe_dump(document))
    return files


def run(
    tmp_path: Path, tests: list[dict[str, object]], rules: list[Path] = RULES
) -> None:
    file = tmp_path / "tests.yaml"
    document = {
        "rule_files": [str(each) for each in rules],
        "evaluation_interval": "1m",
        "tests": tests,
    }
    file.write_text(yaml.safe_dump(document))
    promtool("test", "rules", str(file))


@pytest.mark.needs("promtool")
def test_rules_are_valid():
    """Prometheus reads all rule files."""
    assert len(RULES) == 3
    promtool("check", "rules", *map(str, RULES))


@pytest.mark.needs("promtool")
@pytest.mark.parametrize("alert", sorted({case.alert for case in CASES}))
def test_alert(alert: str, tmp_path: Path) -> None:
    """An alert fires beyond its limit and its time, and at neither before: for each of
    two releases of one name side by side, with the labels of pods; and once for a
    target without them.
    """
    cases = [case for case in CASES if case.alert == alert]
    plain = next(case for case in cases if case.fires)
    # What is asked of the same series costs one run through their time.
    alike: dict[str, list[Case]] = {}
    for case in cases:
        alike.setdefault(json.dumps(case.series), []).append(case)
    pods = [asked(several, ("n", "m")) for several in alike.values()]
    run(tmp_path, [asked([plain]), *pods], only(alert, tmp_path))


def asked(cases: list[Case], namespaces: tuple[str, ...] = ()) -> dict[str, object]:
    """Cases of the same series in promtool's words, which name the one that fails."""
    series = cases[0].series
    if namespaces:
        series = {
            in_pod(name, namespace): values
            for namespace in namespaces
            for name, values in series.items()
        }
    releases = max(1, len(namespaces))
    return {
        "interval": "1m",
        "input_series": [
            {"series": name, "values": values} for name, values in series.items()
        ],
        "promql_expr_test": [
            {
                "expr": f"count(ALERTS{{{chosen(case)}}}) # {case.what}, {namespaces}",
                "eval_time": f"{case.minutes}m",
                "exp_samples": [{"labels": "{}", "value": releases}]
                if case.fires
                else [],
            }
            for case in cases
        ],
    }


def chosen(case: Case) -> str:
    return f'alertname="{case.alert}",alertstate="firing"{case.labels}'


def in_pod(series: str, namespace: str) -> str:
    """A series with the labels that Prometheus adds to those of a pod."""
    more = f'namespace="{namespace}",pod="\\1",container="mirror",endpoint="http"'
    return re.sub(
        r'instance="(\w+)"', rf'instance="{namespace}-\1",{more}', series, count=1
    )


@pytest.mark.needs("promtool")
def test_what_an_alert_says(tmp_path: Path) -> None:
    """Labels and annotations are filled in, including the page's address."""
    run(
        tmp_path,
        [
            {
                "interval": "1m",
                "input_series": [
                    {"series": name, "values": values}
                    for name, values in [*lag("75x30").items(), (BUILD, "1x30")]
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
                                    "runbook_url": "http://i/runbooks/"
                                    "MirrorReplicationLagHigh",
                                },
                            }
                        ],
                    },
                ],
            }
        ],
    )


@pytest.mark.needs("promtool")
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
    """Each alert has cases on both sides of its limit, and its page has the parts that
    help at night: what it means, how to confirm it, what to do.
    """
    names = {str(alert["alert"]) for alert in alerts()}

    for fires in (False, True):
        assert {case.alert for case in CASES if case.fires is fires} == names
    assert {page.stem for page in RUNBOOKS.glob("Mirror*.md")} == names
    for page in RUNBOOKS.glob("Mirror*.md"):
        found = re.findall(r"^## (.+)$", page.read_text(), re.MULTILINE)
        assert found == ["Meaning", "Confirm", "What to do"], page


def test_alerts_are_complete():
    """Each alert has a severity, says what is wrong, and links to its own runbook."""
    for file in RULES:
        for group in yaml.safe_load(file.read_text())["groups"]:
            for rule in group["rules"]:
                if "alert" not in rule:
                    continue
                assert rule["labels"]["severity"] in {"critical", "warning", "info"}
                said = rule["annotations"]
                assert set(said) == {"summary", "description", "runbook_url"}
                assert "{{" not in said["summary"]
                assert f"/runbooks/{rule['alert']}{{{{ end }}}}" in said["runbook_url"]
                assert (RUNBOOKS / f"{rule['alert']}.md").is_file()


def keda_queries() -> list[str]:
    page = ROOT / "docs" / "howto" / "autoscaling.md"
    return [
        trigger["metadata"]["query"]
        for block in blocks(page, "yaml")
        for trigger in yaml.safe_load(block.text)["spec"]["triggers"]
    ]


@pytest.mark.needs("promtool")
def test_autoscaling_counts_late_flows(tmp_path: Path) -> None:
    """KEDA gets a pod for each late flow and the standby, whichever pod leads it, and
    nothing while no flow is late.
    """
    [query] = keda_queries()
    late = (
        'mirror_flow_lag_seconds{{namespace="mirror",pod="{}",source="{}",target="B"}}'
    )
    run(
        tmp_path,
        [
            {
                "interval": "1m",
                "input_series": [
                    {"series": late.format("p", "A"), "values": "61 61 1"},
                    {"series": late.format("q", "A"), "values": "61 61 1"},
                    {"series": late.format("q", "C"), "values": "61 1 1"},
                ],
                "promql_expr_test": [
                    {
                        "expr": query,
                        "eval_time": f"{minute}m",
                        "exp_samples": [{"labels": "{}", "value": pods}]
                        if pods
                        else [],
                    }
                    for minute, pods in enumerate((3, 2, None))
                ],
            }
        ],
    )


@pytest.mark.needs("promtool")
def test_dashboards_ask_in_promql(tmp_path: Path) -> None:
    """Prometheus can read every query of every dashboard, and that of the page on
    autoscaling.
    """
    asked = keda_queries() + [
        target["expr"].replace("$__rate_interval", "5m").replace("$__range", "1h")
        for file in sorted((ROOT / "dashboards" / "grafana").glob("*.json"))
        for panel in json.loads(file.read_text())["panels"]
        for target in panel.get("targets", ())
    ]
    assert asked
    asked = [re.sub(r"\$(price_\w+|replicas)", "2", each) for each in asked]
    rules = [
        {"record": f"query:number{number}", "expr": expr}
        for number, expr in enumerate(asked)
    ]
    file = tmp_path / "queries.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "q", "rules": rules}]}))
    promtool("check", "rules", str(file))
