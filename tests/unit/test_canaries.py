"""Canaries: what is theirs, what others see of them, and what they found."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from mirror.cli.main import app
from mirror.config.load import load
from mirror.config.schema import MirrorConfig
from mirror.drilling.canaries import own_pair
from mirror.drilling.canaries.outcome import Canary, Leg
from mirror.errors import ConfigError, MirrorError
from mirror.policy.naming import CANARY
from mirror.recovery import canaries, roles
from mirror.recovery.audit import AuditWriter
from mirror.recovery.journal import Entry, Kind, StepState
from mirror.recovery.passive_writes import of_applications

if TYPE_CHECKING:
    from pathlib import Path

    from mirror.config.pair_settings import PairConfig
    from mirror.status.events import Event

pytestmark = pytest.mark.unit

HOOKS = {
    "stop_producers": {"command": ["true"]},
    "stop_consumers": {"command": ["true"], "canary": True},
}


def document(**flow: Any) -> dict[str, Any]:
    return {
        "clusters": {a: {"bootstrap_servers": f"{a}:9092"} for a in "AB"},
        "defaults": {"topics": [".*"], **flow},
        "flows": {"A->B": {}, "B->A": {}},
        "recovery": {
            "A<->B": {"active": "A", "fence": "hook", "hooks": HOOKS},
        },
    }


PAIR = MirrorConfig.model_validate(document()).recovery["A<->B"]
OWN = own_pair.of(PAIR, "B")
LEG = Leg(
    source="A", target="B", block_seconds=2.0, rto_seconds=3.0, rpo_seconds=0.1,
    rpo_records=2,
)  # fmt: skip
DONE = Canary(
    pair="A<->B", source="A", target="B", at=5.0, seconds=9.0,
    switches=(LEG, replace(LEG, block_seconds=1.0)),
    written=7, read=7, lost=0, repeated=0,
)  # fmt: skip


def entry(pair: PairConfig) -> Entry:
    """The first one of a switch."""
    return Entry(
        pair=pair.name, run="run", number=0, kind=Kind.SWITCH, epoch=2, source="A",
        target="B", step="assess", state=StepState.BEGUN, at=1.0, by="me",
    )  # fmt: skip


def test_the_pair_of_a_canary() -> None:
    """It has its topic and group alone, begins where the real pair is, and calls only
    the hooks that are marked; without the one that stops producers, only its own
    producer has to stop.
    """
    assert (OWN.name, OWN.active) == (f"A<->B/{CANARY}", "B")
    assert (OWN.topics, OWN.groups) == ((CANARY,), (CANARY,))
    assert OWN.hooks is not None
    assert [name for name, _ in OWN.hooks.given()] == ["stop_consumers"]
    assert OWN.fence == "confirmed"


def test_a_canary_keeps_no_switch_waiting() -> None:
    """An open switch of the pair keeps a canary from beginning, not the reverse."""
    assert roles.open_beside(OWN, [entry(PAIR)]) is not None
    assert roles.open_beside(PAIR, [entry(OWN)]) is None
    assert roles.open_beside(OWN, [entry(OWN)]) is None, "its own"


def test_its_name_is_kept(tmp_path: Path) -> None:
    """No pair of a configuration can have the name of the canary's."""
    file = tmp_path / "mirror.yaml"
    file.write_text(
        "clusters: {A: {bootstrap_servers: a:1}, B: {bootstrap_servers: b:1}}\n"
        "flows: {A->B: {topics: [a]}, B->A: {topics: [a]}}\n"
        f"recovery: {{A<->B/{CANARY}: {{active: A, topics: [a], groups: []}}}}\n"
    )
    with pytest.raises(ConfigError, match="is kept for `mirror drill --canary`"):
        load(file)


@pytest.mark.parametrize(
    ("flow", "text"),
    [
        ({"topics": ["orders"]}, 'A->B does not copy the topic .* add "mirror-canary"'),
        ({"groups": ["app"]}, 'A->B leaves the group .* out: add "mirror-canary"'),
        (
            {"policy": "rename", "rename": [{"match": "(.*)", "to": r"x-\1"}]},
            "calls the copy of mirror-canary x-mirror-canary",
        ),
    ],
)
def test_flows_that_do_not_copy_it(flow: dict[str, Any], text: str) -> None:
    """Each is named, with what to change."""
    config = MirrorConfig.model_validate(document(**flow))
    with pytest.raises(MirrorError, match=text):
        own_pair.require_copied(config, config.recovery["A<->B"])


def test_what_a_pair_with_a_name_moves() -> None:
    """Its switches would move the canary's topic, so a canary is refused."""
    known = document()
    pair = {"active": "A", "fence": "hook", "hooks": HOOKS}
    known["recovery"] = {
        "A<->B/some": {**pair, "topics": ["orders"], "groups": ["billing"]},
        "A<->B/all": {**pair, "topics": ["mirror-.*"], "groups": ["app"]},
    }
    config = MirrorConfig.model_validate(known)
    with pytest.raises(MirrorError, match=f"A<->B/all has {CANARY} in topics"):
        own_pair.require_copied(config, config.recovery["A<->B/some"])


def test_its_writes_are_not_those_of_applications() -> None:
    """The count of writes on the passive cluster leaves its topic out."""
    back = MirrorConfig.model_validate(document()).flows["A->B"]
    assert of_applications(["orders", CANARY, "A.orders"], back) == ["orders"]


def test_what_is_kept() -> None:
    """The journal's entry has the longer ones of both switches, and is no drill's."""
    assert DONE.text == (
        "PASSED: producers were blocked for 2.0 and 1.0 s; 7 records, 0 lost, 0 "
        "repeated"
    )
    failed = replace(DONE, switches=(), failure="step fence: no")
    assert failed.text == "NOT PASSED: step fence: no"
    assert not replace(DONE, lost=1).passed
    made = replace(
        entry(PAIR), pair="canary/A<->B", step=roles.END, details=DONE.kept()
    )
    (kept,) = canaries.read([made, entry(PAIR)], "A<->B")
    assert (kept.passed, kept.block_seconds, kept.rto_seconds) == (True, 2.0, 3.0)
    for damage in (5, ["x", 3], [{"block_seconds": "long"}], {"a": 1}):
        damaged = replace(made, details={**DONE.kept(), "switches": damage})
        assert canaries.read([damaged], "A<->B")[0].block_seconds == 0.0


@pytest.mark.parametrize(
    ("words", "written"),
    [([], 0), (["--canary"], 1), (["--canary", "--dry-run"], 0)],
)
def test_only_a_canary_is_an_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], written: int
) -> None:
    """A drill that changes nothing writes none."""
    file = tmp_path / "mirror.yaml"
    file.write_text(
        "clusters: {A: {bootstrap_servers: '127.0.0.1:1'}, "
        "B: {bootstrap_servers: '127.0.0.1:2'}}\n"
        "flows: {A->B: {topics: [a]}, B->A: {topics: [a]}}\n"
        "recovery: {A<->B: {active: A}}\nservice: {audit_topic: A/changes}\n"
    )
    events: list[Event] = []
    monkeypatch.setattr(
        AuditWriter, "close", lambda *_, last: events.append(last) or ""
    )
    done = CliRunner().invoke(
        app, ["drill", "A/B", *words, "-c", str(file)], prog_name="mirror"
    )
    assert done.exit_code == 1
    assert len(events) == written


def test_there_is_nothing_to_agree_to(tmp_path: Path) -> None:
    """`--yes` without a canary is a mistake."""
    file = tmp_path / "mirror.yaml"
    file.write_text("{}")
    done = CliRunner().invoke(app, ["drill", "A/B", "--yes", "-c", str(file)])
    assert done.exit_code == 2
    assert "changes nothing" in done.output
