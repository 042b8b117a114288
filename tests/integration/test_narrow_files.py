"""A command with a file that selects less than the service changes nothing, and says
what the file lacks.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, Self

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
import pytest

from mirror.pairs.journal import Kind
from tests.harness.admin import create_topic
from tests.harness.application import Application
from tests.harness.group_moves import commit_for, committed
from tests.harness.rehearsal import Rehearsal
from tests.harness.service import RunningMirror
from tests.harness.switching import Switch, command
from tests.harness.witness import read_topic

if TYPE_CHECKING:
    from pathlib import Path

    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration

_LOGS = {"isolation.level": "read_uncommitted"}


class Copied:
    """A pair of two clusters with two topics, which a service has copied and of which
    it has noted what it selects; a context manager. The service is gone by now.
    """

    def __init__(
        self,
        clusters: dict[str, PlaygroundCluster],
        topic: str,
        folder: Path,
        **pairs: Any,
    ) -> None:
        """`pairs`: pairs with names, of which the first one is switched."""
        tag = topic[-6:]
        self.one, self.two = f"A{tag}", f"B{tag}"
        self.here, self.there = (clusters[name].bootstrap for name in "ab")
        self.orders, self.billing = f"{topic}-orders", f"{topic}-billing"
        self.groups = [f"app-{each}" for each in (self.orders, self.billing)]
        self._tag, self._folder = topic, folder
        self.rehearsal = Rehearsal(
            *((self.one, self.here), (self.two, self.there), f"{topic}-.*"),
            groups=[f"app-{topic}-.*"],
            pairs=pairs or None,
        )
        self.file(self.rehearsal.document)

    def __enter__(self) -> Self:
        for topic, group in zip((self.orders, self.billing), self.groups, strict=True):
            create_topic(self.here, topic, 1)
            assert Application(topic, 1, group).write(self.here, 10)
            commit_for(self.here, group, {topic: 7})
        for topic in (self.orders, self.billing):
            self.rehearsal.copy(self.there, f"{self.one}.{topic}", 10)
        self.rehearsal.see()
        return self

    def __exit__(self, *args: object) -> None:
        self.rehearsal.__exit__(*args)

    def file(self, document: dict[str, Any]) -> None:
        """What the operator's file says, or that of a service that runs."""
        file = self._folder / "mirror.yaml"
        there = json.loads(file.read_text()) if file.exists() else {}
        document = {**document, "service": there.get("service", {})}
        other = file.with_suffix(".new")
        other.write_text(json.dumps(document))
        other.rename(file)

    def narrow(self, **settings: Any) -> None:
        """An operator's file with other settings of all flows."""
        document = json.loads(json.dumps(self.rehearsal.document))
        document["defaults"].update(settings)
        self.file(document)

    def refused(self, *words: str, **environment: str) -> str:
        """What a command complains, which has changed nothing on either cluster."""
        before = self.seen()
        began = time.monotonic()
        said = Switch(self._folder, *words).fails()
        print(f"{' '.join(words)}: {time.monotonic() - began:.1f} s: {said}")
        assert self.seen() == before
        assert "Nothing was changed" in said
        return said

    def seen(self) -> Any:
        """What an outsider sees of the pair: the ends of all logs with its names, the
        entries of journals, and where groups stand.
        """
        found = []
        for bootstrap in (self.here, self.there):
            admin = AdminClient({"bootstrap.servers": bootstrap})
            topics = admin.list_topics(timeout=30).topics
            marks = (self._tag, self.one, self.two)
            reader = Consumer(
                {"bootstrap.servers": bootstrap, "group.id": "w", **_LOGS}
            )
            try:
                for name, topic in sorted(topics.items()):
                    if any(mark in name for mark in marks):
                        for number in topic.partitions:
                            place = TopicPartition(name, number)
                            ends = reader.get_watermark_offsets(place, 30)
                            found.append((bootstrap, name, number, ends))
            finally:
                reader.close()
            if "mirror-journal.internal" in topics:
                journal = read_topic(bootstrap, "mirror-journal.internal")[0]
                keys = [str(each.key()) for each in journal]
                found.append((bootstrap, sum(self.one in key for key in keys)))
        copies = [f"{self.one}.{each}" for each in (self.orders, self.billing)]
        for group, copy in zip(self.groups, copies, strict=True):
            found.append((group, committed(self.there, group, copy)))
        return found


@pytest.mark.parametrize(
    ("narrow", "lacks"),
    [
        ({"topics": ["{billing}"]}, "leaves out topics {orders} (topics of {flow})"),
        (
            {"topics_exclude": ["{orders}"]},
            "leaves out topics {orders} (topics_exclude of {flow})",
        ),
        (
            {"groups": ["app-{billing}"]},
            "leaves out groups app-{orders} (groups of {flow})",
        ),
        (
            {"policy": "identity"},
            "{orders} instead of {one}.{orders} (policy of {flow}: identity instead",
        ),
    ],
)
def test_a_switch_does_not_begin(
    clusters: dict[str, PlaygroundCluster],
    topic_name: str,
    tmp_path: Path,
    narrow: dict[str, Any],
    lacks: str,
) -> None:
    """Neither switch nor failover nor drill, planned or in earnest: the message names
    what the file lacks, the setting and the service. With the service's file the same
    switch goes through.
    """
    with Copied(clusters, topic_name, tmp_path) as pair:
        flow = f"{pair.one}->{pair.two}"
        names = {**vars(pair), "flow": flow}
        told = {
            key: value.format(**names)
            if isinstance(value, str)
            else [each.format(**names) for each in value]
            for key, value in narrow.items()
        }
        pair.narrow(**told)
        ends = f"{pair.one}/{pair.two}"
        for words in (
            ("switch", ends, "--yes"),
            ("switch", ends, "--dry-run"),
            ("failover", ends, "--force", "--yes"),
            ("failover", ends, "--force", "--dry-run"),
            ("drill", ends),
        ):
            if words[0] == "failover" and "groups" in narrow:
                continue  # no group is known without checkpoints
            said = pair.refused(*words)
            assert lacks.format(**names) in said
            assert "run the service with this configuration first" in said
        pair.file(pair.rehearsal.document)
        pair.rehearsal.carry_out()
        for group, topic in zip(pair.groups, (pair.orders, pair.billing), strict=True):
            assert committed(pair.there, group, f"{pair.one}.{topic}") == 7


def test_the_environment_counts(
    clusters: dict[str, PlaygroundCluster],
    topic_name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One file for both, and the service's topics in its environment only: without the
    variable the operator's switch is refused, with it it can be made.
    """
    with Copied(clusters, topic_name, tmp_path) as pair:
        pair.narrow(topics=[pair.billing])
        words = ("switch", f"{pair.one}/{pair.two}", "--dry-run")
        assert f"leaves out topics {pair.orders}" in pair.refused(*words)
        monkeypatch.setenv("MIRROR_DEFAULTS__topics", f"{topic_name}-.*")
        assert ": 2 topics, 2 groups" in Switch(tmp_path, *words).succeeds()


def test_what_judges_or_moves_a_flow(
    clusters: dict[str, PlaygroundCluster], topic_name: str, tmp_path: Path
) -> None:
    """Proofs, repairs, resets and adoption of a part would pass for those of the flow,
    and so would what is at risk and what was written on both sides.
    """
    with Copied(clusters, topic_name, tmp_path) as pair:
        ends = f"{pair.one}/{pair.two}"
        pair.narrow(topics=[pair.billing])
        for words in (
            ("verify", "--flow", ends),
            ("repair", "append", ends, "--yes"),
            ("repair", "rebuild", ends, pair.billing, "--yes"),
            ("flow", "reset", ends, "--to", "latest", "--yes"),
            ("adopt", "--flow", ends, "--replace", "--although-written", "--yes"),
            ("risk", "--flow", ends),
            ("risk", "--flow", ends, "--target-only"),
            ("conflicts", ends),
        ):
            assert f"leaves out topics {pair.orders} (topics of" in pair.refused(*words)


def test_after_a_failover(
    clusters: dict[str, PlaygroundCluster], topic_name: str, tmp_path: Path
) -> None:
    """The tail and the way home are refused, too, although no service has run since,
    and none has ever noted anything on the cluster that is back.
    """
    with Copied(clusters, topic_name, tmp_path) as pair:
        assert Application(pair.orders, 1, "more").write(pair.here, 3)
        pair.rehearsal.carry_out(kind=Kind.FAILOVER)
        pair.narrow(topics=[f"{pair.one}.*", pair.billing])
        ends, home = f"{pair.one}/{pair.two}", f"{pair.two}/{pair.one}"
        for words in (
            ("tail", "list", ends),
            ("tail", "replay", ends, "--yes"),
            ("tail", "skip", ends, "--yes"),
            ("failback", home, "--yes"),
            ("failback", home, "--restore", "--yes"),
            ("failback", home, "--dry-run"),
            ("switch", home, "--yes"),
        ):
            assert f"leaves out topics {pair.orders}" in pair.refused(*words)
        pair.file(pair.rehearsal.document)
        shown = json.loads(command(tmp_path, "tail", "list", ends, "-o", "json"))
        assert [each["topic"] for each in shown["partitions"]] == [pair.orders]


def test_a_named_pair_with_fewer_topics(
    clusters: dict[str, PlaygroundCluster], topic_name: str, tmp_path: Path
) -> None:
    """The operator's pair has one of the topics that the service's pair has under this
    name, or is called something else.
    """
    shop = {"topics": [f"{topic_name}-.*"], "groups": [f"app-{topic_name}-.*"]}
    with Copied(clusters, topic_name, tmp_path, shop=shop) as pair:
        name = f"{pair.one}<->{pair.two}"
        document = json.loads(json.dumps(pair.rehearsal.document))
        of_pair = document["recovery"].pop(f"{name}/shop")
        few = {**of_pair, "topics": [pair.billing]}
        pair.file({**document, "recovery": {f"{name}/shop": few}})
        words = ("switch", f"{pair.one}/{pair.two}/shop", "--yes")
        text = f"leaves out topics {pair.orders} (topics of {name}/shop)"
        assert text in pair.refused(*words)
        whole = {k: v for k, v in of_pair.items() if k not in shop}
        pair.file({**document, "recovery": {name: whole}})
        said = pair.refused("switch", f"{pair.one}/{pair.two}", "--yes")
        assert f"has the pair {name}, and the service {name}/shop" in said


def test_an_open_switch(
    clusters: dict[str, PlaygroundCluster], topic_name: str, tmp_path: Path
) -> None:
    """A run that another operator has begun is not gone on with, but undone."""
    with Copied(clusters, topic_name, tmp_path) as pair:

        def dies() -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            pair.rehearsal.carry_out({"drain": dies})
        pair.narrow(topics=[pair.billing])
        ends = f"{pair.one}/{pair.two}"
        assert "leaves out topics" in pair.refused("switch", ends, "--yes")
        Switch(tmp_path, "switch", ends, "--abort", "--yes").succeeds()
        (shown,) = json.loads(command(tmp_path, "pair", "-o", "json"))["pairs"]
        assert shown["active"] == pair.one
        assert not shown["runs"][-1]["open"]


def test_a_target_without_a_note(
    clusters: dict[str, PlaygroundCluster], topic_name: str, tmp_path: Path
) -> None:
    """Where an older version has copied, the command warns by what that has looked at,
    and is not refused.
    """
    with Copied(clusters, topic_name, tmp_path) as pair:
        standby = f"mirror-standby.{pair.one}.internal"
        old = [e for e in read_topic(pair.there, standby)[0] if b"ends" in e.key()]
        assert old
        from confluent_kafka import Producer

        writer = Producer({"bootstrap.servers": pair.there})
        for name in (f"{pair.one}->{pair.two}", f"{pair.two}->{pair.one}"):
            gone = {"version": 1, "at": "2026-01-31T08:00:00Z", "gone": True}
            key = f"selection/{name}".encode()
            writer.produce(standby, key=key, value=json.dumps(gone).encode())
        assert writer.flush(30) == 0
        pair.narrow(topics=[pair.billing])
        switch = Switch(tmp_path, "switch", f"{pair.one}/{pair.two}", "--dry-run")
        switch.succeeds()
        assert f"leaves out {pair.orders}" in "".join(switch.said)


def test_the_service_notes_it(
    clusters: dict[str, PlaygroundCluster], topic_name: str, tmp_path: Path
) -> None:
    """A service that begins to copy more notes it before the first record of that is
    copied; one that runs with fewer topics makes these count, and so does a reload.
    """
    pair = Copied(clusters, topic_name, tmp_path)
    for topic in (pair.orders, pair.billing):
        create_topic(pair.here, topic, 1)
        assert Application(topic, 1, "app").write(pair.here, 10)
    document = json.loads(json.dumps(pair.rehearsal.document))
    flow, ends = f"{pair.one}->{pair.two}", f"{pair.one}/{pair.two}"

    def noted() -> dict[str, list[str]]:
        """By flow, the topics that were noted last."""
        found = {}
        standby = f"mirror-standby.{pair.one}.internal"
        for each in read_topic(pair.there, standby)[0]:
            kind, _, name = each.key().decode().partition("/")
            if kind == "selection":
                found[name] = json.loads(each.value())["settings"]["topics"]
        return found

    with RunningMirror(document, tmp_path) as mirror:
        mirror.wait_running(flow)
        assert noted()[flow] == noted()[f"{pair.two}->{pair.one}"]
        assert noted()[flow] == document["defaults"]["topics"]
        pair.narrow(topics=[pair.billing])
        mirror.wait_until(lambda _: noted()[flow] == [pair.billing])
        Switch(tmp_path, "switch", ends, "--dry-run").succeeds()
        pair.file(document)
        mirror.wait_until(lambda _: noted()[flow] == document["defaults"]["topics"])
