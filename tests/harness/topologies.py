"""What the tests of topologies share: examples as users run them, and who has what.

`RunningExample` runs a file of `config/examples` with nothing but the clusters'
addresses, port and state directory put into its environment; `example` is for a service
that runs already. `Stage` gives its aliases to real clusters, produces records whose
keys name their origin, and compares what ordinary consumers and admin clients find with
what should be there.
"""

from __future__ import annotations

from collections import Counter
from contextlib import closing
import json
from pathlib import Path
import re
import sys
import time
from typing import TYPE_CHECKING, Any

from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient
import yaml

from tests.harness.admin import create_topic, end_offsets, topic_exists
from tests.harness.load import producer
from tests.harness.service import RunningMirror
from tests.harness.waiting import deadline_in, wait_for
from tests.harness.witness import Witness, read_topic

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from confluent_kafka import Message

    from mirror.playground.cluster import PlaygroundCluster

EXAMPLES = Path(__file__).parents[2] / "config" / "examples"
# What a flow keeps on its target, and heartbeats, which belong to none.
_KEPT = (
    r"(mirror-[a-z-]+\.{a}|mm2-[a-z-]+\.{a}|{a}\.(checkpoints|offset-map))\.internal"
)
_HEARTBEATS = re.compile(r"(.+\.)?heartbeats")


class RunningFile(RunningMirror):
    """`mirror run` on a file, as it stands."""

    def __init__(self, file: Path, folder: Path, **variables: str) -> None:
        super().__init__({}, folder)
        variables = {
            "MIRROR_SERVICE__http_port": "0",
            "MIRROR_SERVICE__state_dir": str(self.state_dir),
            **variables,
        }
        self._command = [
            *("env", *(f"{key}={value}" for key, value in variables.items())),
            *(sys.executable, "-m", "mirror", "run", "-c", str(file)),
        ]


class RunningExample(RunningFile):
    """`mirror run` on an example, as it stands in the repository."""

    def __init__(self, name: str, stage: Stage, folder: Path, **variables: str) -> None:
        """`variables` are further settings, without the MIRROR_ before them."""
        settings = {
            **{
                f"CLUSTERS__{alias.replace('-', '_')}__bootstrap_servers": bootstrap
                for alias, bootstrap in stage.bootstrap.items()
            },
            **variables,
        }
        super().__init__(
            EXAMPLES / name,
            folder,
            **{f"MIRROR_{key}": value for key, value in settings.items()},
        )


def example(name: str, stage: Stage) -> dict[str, Any]:
    """An example with nothing but the clusters' addresses put into it, and one slot
    with short leases for each flow.
    """
    document: dict[str, Any] = yaml.safe_load((EXAMPLES / name).read_text())
    assert document["clusters"].keys() == stage.bootstrap.keys()
    for alias, bootstrap in stage.bootstrap.items():
        document["clusters"][alias]["bootstrap_servers"] = bootstrap
    document.setdefault("defaults", {}).update(tasks=1, lease_seconds=2)
    return document


class Stage:
    """Clusters under the aliases of one configuration, empty at the beginning."""

    def __init__(
        self, clusters: Iterable[PlaygroundCluster], *aliases: str, partitions: int = 2
    ) -> None:
        self.bootstrap = {
            alias: cluster.bootstrap
            for alias, cluster in zip(aliases, clusters, strict=False)
        }
        self.partitions = partitions
        self.sent: dict[tuple[str, str], Counter[int]] = {}
        for bootstrap in self.bootstrap.values():
            _empty(bootstrap)

    def create(self, alias: str, *topics: str, partitions: int | None = None) -> None:
        for topic in topics:
            create_topic(self.bootstrap[alias], topic, partitions or self.partitions)

    def send(self, alias: str, topic: str, each: int = 200) -> None:
        """So many records more to each partition, keys `<alias>:<topic>:<p>:<n>`."""
        client = producer(self.bootstrap[alias])
        sent = self.sent.setdefault((alias, topic), Counter())
        for partition in end_offsets(self.bootstrap[alias], topic):
            for number in range(sent[partition], sent[partition] + each):
                client.produce(
                    topic,
                    key=f"{alias}:{topic}:{partition}:{number}".encode(),
                    value=b"v" * (number % 200),
                    partition=partition,
                )
            sent[partition] += each
        assert client.flush(60) == 0

    def wait_for(
        self,
        mirror: RunningMirror,
        expected: Mapping[str, Mapping[str, Iterable[tuple[str, str]]]],
        timeout: float = 180,
    ) -> None:
        """Until every cluster's topics hold at least as many records as they should."""
        deadline = deadline_in(timeout)
        for alias, topics in expected.items():
            bootstrap = self.bootstrap[alias]
            for topic, origins in topics.items():
                wanted = sum(self.sent[origin].total() for origin in origins)
                try:
                    wait_for(
                        lambda at=(bootstrap, topic): topic_exists(*at),
                        deadline - time.monotonic(),
                    )
                    with Witness(bootstrap) as witness:
                        witness.begin(topic)
                        witness.wait(wanted, deadline - time.monotonic())
                except AssertionError as error:
                    flows = json.dumps(mirror.status()["flows"], indent=1)
                    raise AssertionError(
                        f"{topic} on {alias}: {error}\n{flows[:8000]}\n"
                        f"{mirror.log_tail()}"
                    ) from error

    def assert_holds(
        self, expected: Mapping[str, Mapping[str, Iterable[tuple[str, str]]]]
    ) -> None:
        """Every cluster has these topics and no other, each with every record of these
        origins once and in their order, and no other record.
        """
        for alias, topics in expected.items():
            for topic, origins in topics.items():
                self._assert_topic(alias, topic, list(origins))

    def assert_topics(
        self, mirror: RunningMirror, expected: Mapping[str, Iterable[str]]
    ) -> None:
        """No cluster has a topic that is not expected, or kept by a flow into it."""
        flows = [flow["name"].split("->") for flow in mirror.status()["flows"]]
        for alias, bootstrap in self.bootstrap.items():
            kept = [
                re.compile(_KEPT.replace("{a}", re.escape(source)))
                for source, target in flows
                if target == alias
            ]
            found = {
                name
                for name in topics_of(bootstrap)
                if not _HEARTBEATS.fullmatch(name)
                and not any(pattern.fullmatch(name) for pattern in kept)
            }
            assert found == set(expected.get(alias, ())), alias

    def rests(self, seconds: float = 3.0) -> bool:
        """Whether nothing is written to any user's topic for so long."""
        before = self._ends()
        time.sleep(seconds)
        return self._ends() == before

    def messages(self, alias: str, topic: str) -> list[Message]:
        found = read_topic(self.bootstrap[alias], topic)
        return [message for part in found.values() for message in part]

    def _ends(self) -> dict[tuple[str, str], dict[int, int]]:
        return {
            (alias, topic): end_offsets(bootstrap, topic)
            for alias, bootstrap in self.bootstrap.items()
            for topic in topics_of(bootstrap)
            if not topic.endswith((".internal", "heartbeats"))
        }

    def _assert_topic(
        self, alias: str, topic: str, origins: list[tuple[str, str]]
    ) -> None:
        for partition, messages in read_topic(self.bootstrap[alias], topic).items():
            keys = [message.key().decode() for message in messages]
            for origin in origins:
                start = f"{origin[0]}:{origin[1]}:{partition}:"
                own = [key for key in keys if key.startswith(start)]
                sent = self.sent[origin][partition]
                assert own == [f"{start}{number}" for number in range(sent)], (
                    f"{topic}-{partition} on {alias}, of {origin[0]}: {len(own)} "
                    f"records of {sent}, {len(own) - len(set(own))} repeated"
                )
            wanted = sum(self.sent[origin][partition] for origin in origins)
            assert len(keys) == wanted, f"{topic}-{partition} on {alias}"


def topics_of(bootstrap: str) -> set[str]:
    """Every topic but the brokers' own, as kafka-python's admin client lists them."""
    with closing(KafkaAdminClient(bootstrap_servers=bootstrap)) as admin:
        return {name for name in admin.list_topics() if not name.startswith("__")}


def via(message: Message) -> list[str]:
    """The aliases of the clusters that a record came through, first one first."""
    headers: list[tuple[str, Any]] = message.headers() or []
    return [
        value.decode().partition("/")[0]
        for key, value in headers
        if key == "mirror.via"
    ]


def _empty(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    if old := topics_of(bootstrap):
        for future in admin.delete_topics(sorted(old)).values():
            future.result(30)
        wait_for(lambda: not topics_of(bootstrap))
