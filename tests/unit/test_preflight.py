"""The plan, from decisions laid over what exists; and findings about this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING
import uuid

import pytest

from mirror.checks import local_host, of_cluster
from mirror.checks.finding import State, some
from mirror.clusters.admin.configs import Config, Origin, TopicConfigs
from mirror.clusters.admin.topic_admin import NewTopic
from mirror.clusters.topics import Leader, Topic
from mirror.config import own_topics
from mirror.config.cluster_settings import ClusterConfig
from mirror.topics import configs, topics
from mirror.topics.merging import Merging
from mirror.topics.sides import Foreseen
from tests.harness import configurations

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path
    from typing import Any

    from mirror.config.schema import MirrorConfig

pytestmark = pytest.mark.unit

UNKNOWN = 3


class Given:
    """A side that has what a test says."""

    def __init__(self, alias: str, **partitions: int) -> None:
        self.alias = alias
        self.there = {
            name.replace("_", "."): Topic(
                name=name.replace("_", "."),
                topic_id=uuid.UUID(int=1),
                leaders={n: Leader(node=1, epoch=0) for n in range(count)},
                error=0,
                replication_factor=1,
            )
            for name, count in partitions.items()
        }
        self.overrides: dict[str, dict[str, str]] = {}
        self.asked = 0

    def topics(self, names: Iterable[str] | None = None) -> Mapping[str, Topic]:
        self.asked += 1
        if names is None:
            return self.there
        return {name: self.there.get(name, _missing(name)) for name in names}

    def configs(self, names: Iterable[str]) -> Mapping[str, TopicConfigs]:
        self.asked += 1
        return {
            name: TopicConfigs(
                configs={
                    key: Config(value=value, origin=origin, settable=True)
                    for key, (value, origin) in {
                        "retention.ms": ("604800000", Origin.DEFAULT),
                        "segment.bytes": ("1073741824", Origin.DEFAULT),
                        **{
                            key: (value, Origin.TOPIC)
                            for key, value in self.overrides.get(name, {}).items()
                        },
                    }.items()
                }
            )
            for name in names
        }


def _missing(name: str) -> Topic:
    return Topic(
        name=name,
        topic_id=uuid.UUID(int=0),
        leaders={},
        error=UNKNOWN,
        replication_factor=0,
    )


def config_of(flows: dict[str, dict[str, Any]], **service: Any) -> MirrorConfig:
    aliases = {alias for name in flows for alias in name.split("->")}
    return configurations.config(flows, aliases, service=service)


def test_what_one_flow_makes_the_next_one_copies() -> None:
    """A chain of three clusters is planned to its end: later flows see the partitions
    and configs that earlier ones will make.
    """
    config = config_of({"A->B": {"topics": ["orders"]}, "B->C": {}})
    a, b, c = Given("A", orders=3), Given("B"), Given("C")
    a.overrides["orders"] = {"retention.ms": "5"}
    sides = {side.alias: Foreseen(side) for side in (a, b, c)}
    for flow in config.flows.values():
        source, target = sides[flow.source], sides[flow.target]
        planned = topics.plan(source, target, flow)
        models = source.configs(planned.like.values())
        for name, new in planned.create.items():
            target.create(new, models[planned.like[name]].configs)
    assert dict(sides["C"].created) == {
        "B.A.orders": NewTopic(
            name="B.A.orders",
            partitions=3,
            replication_factor=-1,
            configs={"retention.ms": "5"},
        )
    }
    for flow in config.flows.values():
        again = topics.plan(sides[flow.source], sides[flow.target], flow)
        assert (again.create, again.grow) == ({}, {})
        _, changes = configs.plan(
            sides[flow.source], sides[flow.target], flow,
            Merging(config.enabled_flows), sides.__getitem__,
        )  # fmt: skip
        assert changes == {}


def test_what_is_decided_lies_over_what_is_there() -> None:
    """Growth and changes show at once; the cluster is asked about a topic once."""
    given = Given("B", A_orders=2)
    given.overrides["A.orders"] = {"retention.ms": "5"}
    side = Foreseen(given)
    side.grow("A.orders", 4)
    side.alter("A.orders", {"retention.ms": None, "segment.bytes": "9"})
    for _ in range(3):
        assert side.topics(["A.orders"])["A.orders"].partitions == 4
        found = side.configs(["A.orders"])["A.orders"].configs
    assert found["retention.ms"].value is None
    assert found["retention.ms"].origin is Origin.DEFAULT
    assert (found["segment.bytes"].value, found["segment.bytes"].origin) == (
        "9",
        Origin.TOPIC,
    )
    topic, now = side.present("A.orders")
    assert topic.partitions == 2
    assert now["retention.ms"].value == "5"
    assert given.asked == 2


def test_a_merged_copy_is_planned_as_its_sources_agree() -> None:
    """It begins with what the first source says, and ends up as the strategy says."""
    both = {"policy": "identity", "config_strategy": "intersection"}
    config = config_of({"A->K": both, "B->K": both})
    a, b, k = Given("A", orders=2), Given("B", orders=5), Given("K")
    a.overrides["orders"] = {"retention.ms": "5", "segment.bytes": "7"}
    b.overrides["orders"] = {"retention.ms": "6", "segment.bytes": "7"}
    sides = {side.alias: Foreseen(side) for side in (a, b, k)}
    target = sides["K"]
    for _ in range(2):
        for flow in config.flows.values():
            source = sides[flow.source]
            planned = topics.plan(source, target, flow)
            for name, new in planned.create.items():
                model = source.configs([planned.like[name]])[planned.like[name]]
                target.create(new, model.configs)
            for name, count in planned.grow.items():
                target.grow(name, count)
            _, changes = configs.plan(
                source, target, flow, Merging(config.enabled_flows), sides.__getitem__
            )
            for name, change in changes.items():
                target.alter(name, change)
    (made,) = target.created.values()
    assert made.partitions == 5
    assert made.configs["segment.bytes"] == "7"


def test_internal_topics_follow_the_settings() -> None:
    """A feature that is off gets no topic; the settings choose the side."""
    (flow,) = config_of(
        {
            "A->B": {
                "emit_checkpoints": False,
                "emit_heartbeats": False,
                "emit_offset_syncs": True,
                "offset_syncs_location": "target",
                "replication_factor": 3,
                "offset_syncs_replication_factor": 2,
                "separator": "_",
            }
        }
    ).flows.values()
    assert {(t.alias, t.name, t.replicas) for t in own_topics.of_run(flow)} == {
        ("B", "mirror-progress.A.internal", 3),
        ("B", "A_offset-map_internal", 3),
        ("B", "mirror-losses.A.internal", 3),
        ("B", "mirror-standby.A.internal", 3),
        ("B", "mm2-offset-syncs_A_internal", 2),
    }  # fmt: skip


def test_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything that is missing is reported, each with a fix."""
    file = tmp_path / "file"
    file.write_text("")
    monkeypatch.setenv("JAVA_HOME", "/no/java")
    config = config_of(
        {"A->B": {"tasks": 1000}}, state_dir=str(file / "state"), http_host="192.0.2.1"
    )
    found = {each.check: each for each in local_host.findings(config)}
    assert {name for name, each in found.items() if each.state is State.FAIL} == {
        "Java",
        "state_dir",
    }
    assert {name for name, each in found.items() if each.state is State.WARN} == {
        "cores",
        "HTTP port",
    }
    assert "without a token" in found["HTTP port"].detail
    assert all(each.fix for each in found.values() if each.state is not State.OK)
    assert "/no/java" in found["Java"].detail
    assert "install e.g." in found["Java"].fix


@pytest.mark.parametrize(
    ("protocol", "scheme", "warned"),
    [
        ("SASL_SSL", "https", []),
        ("SASL_PLAINTEXT", "https", ["the token is sent in clear text"]),
        ("SASL_SSL", "http", ["the client secret is sent, and the token comes, in"]),
    ],
)
def test_tokens_that_can_be_read_on_their_way(
    protocol: str, scheme: str, warned: list[str]
) -> None:
    """A listener or a token endpoint without TLS is a finding."""
    client = "sasl_oauthbearer_client_credentials_client"
    config = ClusterConfig(
        alias="A",
        bootstrap_servers="a:9092",
        security_protocol=protocol,
        sasl_mechanism="OAUTHBEARER",
        sasl_oauthbearer_token_endpoint_url=f"{scheme}://id.example.com/token",
        **{f"{client}_id": "mirror", f"{client}_secret": "s"},
    )
    found = [
        each
        for each in of_cluster.security(config, "cluster A")
        if each.state is State.WARN
    ]
    assert len(found) == len(warned)
    for each, words in zip(found, warned, strict=True):
        assert words in each.detail
        assert each.fix


def test_a_hook_that_cannot_be_called(tmp_path: Path) -> None:
    """A hook whose command is there but is not executable fails the check, by name."""
    file = tmp_path / "hook"
    file.write_text("")
    hooks = {"stop_producers": {"command": [str(file)]}}
    config = configurations.config(
        {"A->B": {}, "B->A": {}}, recovery={"A<->B": {"active": "A", "hooks": hooks}}
    )
    [found] = [each for each in local_host.findings(config) if each.check == "hooks"]

    assert found.state is State.FAIL
    assert found.detail == (
        f'recovery.A<->B.hooks.stop_producers: "{file}" is no file that can be '
        "executed here"
    )


def test_an_extra_need_not_be_installed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What the package asks for only with an extra is not missing without it."""
    config = config_of({}, state_dir=tmp_path)
    asked = ["pyspark>=4", "no-such-one>=1; extra == 'demo'"]
    monkeypatch.setattr(local_host, "requires", lambda _: asked)
    [found] = [
        each for each in local_host.findings(config) if each.check == "libraries"
    ]
    assert found.state is State.OK
    asked[1] = "no-such-one>=1; python_version >= '3'"
    [found] = [
        each for each in local_host.findings(config) if each.check == "libraries"
    ]
    assert found.state is State.FAIL
    assert "no-such-one" in found.detail


def test_a_user_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user with neither a home directory nor a folder in the settings is reported."""
    monkeypatch.delenv("HOME")
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setattr("pwd.getpwuid", dict[int, str]().__getitem__)  # a KeyError
    config = config_of({"A->B": {}})
    [found] = [
        each for each in local_host.findings(config) if each.check == "state_dir"
    ]

    assert found.state is State.FAIL
    assert "has no home directory" in found.detail
    assert found.fix == "set it to a folder, or set HOME or XDG_STATE_HOME"


def test_many_names_are_cut() -> None:
    """A thousand topics with one problem are one row."""
    assert some(["a", "b", "c"]) == "a, b, c"
    assert some(list("abcdefgh")) == "a, b, c and 5 more"
