"""Commands that get SIGKILL before each of their requests, and run again elsewhere.

Another machine is another host name with a folder of its own, for configuration, state
and files.
"""

from __future__ import annotations

from collections import Counter
from itertools import count
import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from mirror.pairs import losses
from mirror.recovery.tails import settling
from tests.harness.admin import create_topic
from tests.harness.drilling import Drilled
from tests.harness.dying import dies
from tests.harness.load import producer
from tests.harness.portraits import at_rest, portrait
from tests.harness.rehearsal import Rehearsal
from tests.harness.switching import command, make_active
from tests.harness.witness import read_topic
from tests.integration.test_tail import Play

if TYPE_CHECKING:
    from pathlib import Path

    from mirror.playground.cluster import PlaygroundCluster

pytestmark = [
    pytest.mark.integration,
    pytest.mark.full,
    pytest.mark.timeout(1800),  # many commands, one after the other
]

_HOSTS = ("first", "second")
_SHARED = "REST-|standing"
"""What the standing service writes on shared clusters."""


def _machines(document: dict[str, Any], folder: Path) -> list[Path]:
    made = [folder / host for host in _HOSTS]
    for each in made:
        each.mkdir()
        file = {**document, "service": {"state_dir": str(each / "state")}}
        (each / "mirror.yaml").write_text(yaml.safe_dump(file))
    return made


@pytest.mark.parametrize("way", ["replay", "file", "topic", "skip"])
def test_tail(
    clusters: dict[str, PlaygroundCluster],
    topic_name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    way: str,
) -> None:
    """Commands that settle a tail are killed, on two machines in turn, each before one
    more of the requests that change something, until one has nothing left to do: each
    record is on B once, or in the topic, or in one of the files, and the ledger names
    once what is not on B. Nothing is left to settle, and the flow goes on.
    """
    monkeypatch.setattr(settling, "_PIECE_RECORDS", 10)
    play = Play(clusters, topic_name, f"else{way[0]}", tmp_path)
    there = f"{topic_name}-tail"
    words = ["tail", way, f"{play.one}/{play.other}", "--yes"]
    if way in {"file", "topic"}:
        words[1] = "export"
        create_topic(play.b, there, 1)
    with play.rehearsal:
        machines = _machines(play.rehearsal.document, tmp_path)
        files = [each / "tail.jsonl" for each in machines]
        to = {"file": [["--to-file", str(each)] for each in files]}.get(
            way, [["--to-topic", there] if way == "topic" else []] * 2
        )
        number = 1
        while dies(
            machines[number % 2], *words, *to[number % 2],
            at=number, host=_HOSTS[number % 2],
        ):  # fmt: skip
            number += 1
        assert number > 10, "it was killed less often than it writes"
        command(machines[1], *words, *to[1], host=_HOSTS[1])
        gone = Counter[bytes]() if way == "replay" else Counter(play.left)
        assert play.copied() == Counter(play.application.written) - gone
        named = losses.read(play.rehearsal.cluster(play.other), play.one)
        assert sum(each.count or 0 for each in named) == gone.total()
        if way == "topic":
            ((messages),) = read_topic(play.b, there).values()
            assert Counter(each.key() for each in messages) == gone
        if way == "file":
            # The other one may not have seen the end of what the first one wrote.
            texts = [each.read_text() for each in files]
            lines = [json.loads(x) for text in texts for x in text.splitlines()]
            assert {each["key"]["data"].encode() for each in lines} == gone.keys()
        assert play.tail().settled
        play.goes_on()


def test_drill(
    clusters: dict[str, PlaygroundCluster], topic_name: str, tmp_path: Path
) -> None:
    """Drills are killed before one request after the other, and before each that writes
    to the journal: both clusters are as before. The next one, elsewhere, is READY, and
    the journal keeps what came to a verdict, each by its machine.
    """
    ends = [clusters[name].bootstrap for name in "ab"]
    create_topic(ends[0], topic_name, 2)
    with Drilled(("elsA", ends[0]), ("elsB", ends[1]), topic_name) as pair:
        pair.prepare(*ends)
        make_active(pair.document, "elsB", "elsA", 1)
        first, second = _machines(pair.document, tmp_path)
        but = f"^mirror-journal|{_SHARED}"
        before = [at_rest(each, but=but) for each in ends]
        words = ("drill", "elsA/elsB")

        killed = 0
        for number in count(1, 10):
            if not dies(first, *words, at=number, asks=True):
                break
            killed += 1
        assert killed > 3
        writes = 1
        while dies(first, *words, at=writes):
            writes += 1
        assert writes > 1
        assert [portrait(each, but=but) for each in ends] == before

        done = json.loads(command(second, *words, "-o", "json", host="second"))
        assert (done["verdict"], done["findings"]) == ("READY", [])
        assert [portrait(each, but=but) for each in ends] == before
        (shown,) = json.loads(command(second, "pair", "-o", "json"))["pairs"]
        kept = [
            (each["by"].partition("@")[2], each["verdict"]) for each in shown["drills"]
        ]
        assert kept[-1] == ("second", "READY")
        assert set(kept[:-1]) == {("first", "READY")}


def test_conflicts(
    clusters: dict[str, PlaygroundCluster], topic_name: str, tmp_path: Path
) -> None:
    """A command that lists conflicts is killed before one request after the other: both
    clusters are as before, and elsewhere it lists what one that nothing disturbs does.
    """
    ends = [clusters[name].bootstrap for name in "ab"]
    for bootstrap in ends:
        create_topic(bootstrap, topic_name, 1)
        client = producer(bootstrap)
        client.produce(topic_name, b"v", b"both", partition=0)
        assert client.flush(30) == 0
    with Rehearsal(("elcA", ends[0]), ("elcB", ends[1]), topic_name) as pair:
        first, second = _machines(pair.document, tmp_path)
    words = ("conflicts", "elcA<->elcB", "--topic", topic_name, "-o", "json")
    before = [at_rest(each, but=_SHARED) for each in ends]
    undisturbed = json.loads(command(first, *words, fails=True))
    assert len(undisturbed["conflicts"]) == 1
    number = 1
    while dies(first, *words, at=number, asks=True):
        number += 1
    assert number > 5
    found = json.loads(command(second, *words, fails=True, host="second"))
    assert found == undisturbed
    assert [portrait(each, but=_SHARED) for each in ends] == before
