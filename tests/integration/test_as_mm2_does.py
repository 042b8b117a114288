"""A file that MirrorMaker 2's classes take means the same here, or is refused.

Its own classes are asked, from Kafka's jars: which topics of a list it copies, under
which names, and which groups it translates.
"""

from __future__ import annotations

from pathlib import Path
import re
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from mirror.config.build import build
from mirror.config.load import read
from tests.harness.mm2_answers import Answers, ours, theirs

if TYPE_CHECKING:
    from collections.abc import Mapping

pytestmark = pytest.mark.integration

TOPICS = (
    *("orders", "ORDERS", "orders.eu", "Payments.x", "secret.keys", "a", "b", "foo"),
    *(
        "prod.orders",
        "east.orders",
        "west.orders",
        "x.internal",
        "x-internal",
        "x.replica",
    ),
    *("xreplica", "__consumer_offsets", "connect-configs", "orders-dlq"),
)
GROUPS = ("app", "APP", "console-consumer-7", "connect-sink", "__x", "reports")
BASE = """
clusters = east, west
east.bootstrap.servers = a:1
west.bootstrap.servers = b:1
east->west.enabled = true
"""
IDENTITY = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"
STRIMZIS = "io.strimzi.kafka.connect.mirror.IdentityReplicationPolicy"
"""What Strimzi's images had before Kafka 3.0; nothing has it today."""
FILES = {
    "as its example": "",
    "lists": "topics = orders, a\ntopics.exclude = a\ngroups = app, reports",
    "a flag reaches further": "topics = a,(?i)orders,payments.*\ngroups = (?i)app",
    "anchors": "topics = ^orders,eu$,foo|a\ntopics.exclude = ^a$",
    "a line end in a pattern": r"topics.exclude = .*\\.internal, .*\replica, __.*",
    "another separator": "replication.policy.separator = _",
    "dots in internal names": "replication.policy.separator = _\n"
    "replication.policy.internal.topic.separator.enabled = false",
    "kept names": f"replication.policy.class = {IDENTITY}",
    "kept names, no separator": f"replication.policy.class = {IDENTITY}\n"
    "replication.policy.separator =",
    "neither alias nor separator": "replication.policy.separator =\n"
    "east->west.source.cluster.alias =",
    "the same for all flows": "replication.policy.separator =\nsource.cluster.alias =",
    "an alias for copies": "east->west.source.cluster.alias = prod",
    "an alias for all": "source.cluster.alias = prod",
    "the same alias": "east->west.source.cluster.alias = east\n"
    "target.cluster.alias = west",
    "flows of others": "east->east.enabled = true\nsouth->west.enabled = true\n"
    "south->west.topics = foo",
    "both ways": "west->east.enabled = true\nwest->east.topics = orders",
}
REFUSED = {
    "no separator": "replication.policy.separator =",
    "no alias": "east->west.source.cluster.alias =",
    "one alias for two": "source.cluster.alias = prod\nwest->east.enabled = true",
}
MANIFEST = """
apiVersion: kafka.strimzi.io/v1beta2
kind: KafkaMirrorMaker2
spec:
  connectCluster: west
  clusters:
    - {alias: east, bootstrapServers: "a:1"}
    - {alias: west, bootstrapServers: "b:1"}
  mirrors:
    - sourceCluster: east
      targetCluster: west
"""
MANIFESTS = {
    "a pattern": """
      sourceConnector: {}
      checkpointConnector: {}
      topicsPattern: "orders|a"
      groupsPattern: app
""",
    "blank fields": """
      sourceConnector: {config: {topics: }}
      checkpointConnector:
      topicsPattern:
      groupsPattern:
""",
    "connectors differ": """
      sourceConnector:
        config: {topics.exclude: "secret.*", groups.exclude: app}
      checkpointConnector:
        config: {topics.exclude: "orders.*", groups: "app,reports", topics: foo}
""",
    "kept names in both": f"""
      sourceConnector:
        config:
          replication.policy.class: {IDENTITY}
          replication.policy.separator: ""
      checkpointConnector: {{config: {{replication.policy.class: {IDENTITY}}}}}
""",
    "a pattern over a config": """
      sourceConnector: {config: {topics: foo}}
      topicsPattern: orders
""",
}


PUBLISHED = yaml.safe_load(
    (Path(__file__).parent / "published_keys.yaml").read_text(encoding="utf-8")
)
OLDER = (".blacklist", ".exclude"), (".whitelist", "")
"""Names that MirrorMaker 2 4.x no longer knows, and what they are called there."""
MEANT = {
    "italian-primary-secondary": "a comment follows a value",
    "ragingpuppies-agg": "values have quotes",
}
"""Here mirror takes what the author meant, with a warning."""
NOT_TAKEN = {
    "bunyaminonum-cp-docker": '"target" is not among the clusters',
    "bimoqi-cn": "policy rename in a YAML file can name copies",
    "thpham-v1alpha1-custom-policy": "policy rename in a YAML file can name copies",
    "metro-separator-alias": "write sourceConnector: {}",
    "ibm-onprem-to-wdc": "write sourceConnector: {}",
}
"""Those that mirror refuses, and what it says. The first one and the last two copy
nothing in MirrorMaker 2."""
KEYS = {
    "": "",
    **dict.fromkeys(("A.topics", "B.topics", "A.groups", "A->B.topics.include"), "x"),
    **dict.fromkeys(
        ("A.tasks.max", "B.replication.factor", "B.refresh.topics.interval.seconds",
         "A->B.refresh.topics.interval.seconds", "A.rest.port",
         "A.offset-syncs.topic.replication.factor",
         "B.heartbeats.topic.replication.factor",
         "A.topic.creation.default.replication.factor",
         "B.offset.storage.replication.factor"), "7",
    ),
    **dict.fromkeys(
        ("A->B.bootstrap.servers", "A->B.source.bootstrap.servers",
         "A->B.source.cluster.bootstrap.servers",
         "A->B.target.cluster.bootstrap.servers"), "c:1",
    ),
    **dict.fromkeys(
        ("A->B.consumer.auto.offset.reset", "A->B.source.consumer.auto.offset.reset",
         "A.consumer.auto.offset.reset", "A.source.consumer.auto.offset.reset"),
        "latest",
    ),
    **dict.fromkeys(
        ("B.producer.compression.type", "A->B.producer.compression.type",
         "A->B.producer.override.compression.type",
         "A->B.target.producer.compression.type"), "zstd",
    ),
    **dict.fromkeys(
        ("A.emit.heartbeats.enabled", "A->B.emit.checkpoints.enabled",
         "B.sync.topic.configs.enabled", "A.enabled"), "false",
    ),
    **dict.fromkeys(
        ("A->B.sync.group.offsets.enabled", "B.sync.group.offsets.enabled"), "true"
    ),
    **dict.fromkeys(
        ("A.replication.policy.class", "A->B.replication.policy.class"), IDENTITY
    ),
    "A->B.offset-syncs.topic.location": "target",
}  # fmt: skip
"""At the place where MirrorMaker 2 takes them, or at another one."""
Asked = tuple[Path, Answers]


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Asked]:
    """Each file, and what MirrorMaker 2 makes of it; Java starts once for all."""
    folder = tmp_path_factory.mktemp("asked")
    texts = {
        **{f"{name}.properties": f"{BASE}{text}\n" for name, text in FILES.items()},
        **{f"{name}.properties": f"{BASE}{text}\n" for name, text in REFUSED.items()},
        **{f"{name}.yaml": f"{MANIFEST}{text}" for name, text in MANIFESTS.items()},
        **{
            _file(each): _text(each, newer=True).replace(STRIMZIS, IDENTITY)
            for each in PUBLISHED
        },
    }
    files = []
    for name, text in texts.items():
        files.append(folder / name.replace(" ", "-"))
        files[-1].write_text(text)
    told = theirs(files, TOPICS, GROUPS)
    for each in PUBLISHED:
        (folder / _file(each)).write_text(_text(each))
    return {
        name.rpartition(".")[0]: (file, answers)
        for name, file, answers in zip(texts, files, told, strict=True)
    }


@pytest.mark.parametrize("name", [*FILES, *MANIFESTS])
def test_a_file_means_what_it_means_to_mirrormaker(
    asked: Mapping[str, Asked], name: str
) -> None:
    """Copies of the same topics under the same names, and the same groups; checkpoints
    and offset syncs are where its own clients look, if there is a separator.
    """
    file, expected = asked[name]
    found = ours(file, TOPICS, GROUPS, {})
    assert not found.refused
    assert not expected.refused
    assert [*found.copies.values()] == [*expected.copies.values()]
    if name != "blank fields":  # there is no checkpoint connector
        assert [*found.groups.values()] == [*expected.groups.values()]
    if "separator" in name or "dots" in name:
        named = "no separator" not in name and "nor separator" not in name
        same = found.checkpoints == expected.checkpoints
        assert same is named
        assert (found.offset_syncs == expected.offset_syncs) is named


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """By key, what MirrorMaker 2's connectors and clients go by because of it."""
    names, lines = [], []
    for number, (key, value) in enumerate(KEYS.items()):
        source, target = f"A{number}", f"B{number}"
        names += [source, target]
        lines += [f"{each}.bootstrap.servers = a:1" for each in (source, target)]
        lines.append(f"{source}->{target}.enabled = true")
        if key:
            of_these = re.sub(r"\b([AB])(?=[.-])", rf"\g<1>{number}", key)
            lines.append(f"{of_these} = {value}")
    file = tmp_path_factory.mktemp("keys") / "mm2.properties"
    file.write_text("\n".join([f"clusters = {', '.join(names)}", *lines, ""]))
    (told,) = theirs([file], ["t"], ["g"])
    return {
        key: re.sub(rf"\b([AB]){n}\b", r"\1", told.settings[f"A{n}->B{n}"])
        for n, key in enumerate(KEYS)
    }


@pytest.mark.parametrize("key", [each for each in KEYS if each])
def test_a_key_at_the_wrong_place_is_told(
    settings: Mapping[str, str], tmp_path: Path, key: str
) -> None:
    """A key has an effect where it has one in MirrorMaker 2; elsewhere one warning
    names it, and it changes nothing.
    """
    files = [tmp_path / "plain.properties", tmp_path / "key.properties"]
    base = BASE.replace("east", "A").replace("west", "B")
    files[0].write_text(base)
    files[1].write_text(f"{base}{key} = {KEYS[key]}\n")
    documents = [read(file, {}) for file in files]
    configs = [build(each)[0].model_dump() for each in documents]
    about = [each for each in documents[1].warnings if each.startswith(f"{key}: ")]
    if settings[key] == settings[""]:
        assert len(about) == 1
        assert configs[0] == configs[1]
    else:
        assert not about
        assert configs[0] != configs[1]


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_get_other_names_is_refused(
    asked: Mapping[str, Asked], name: str
) -> None:
    """The message says what to write; MirrorMaker 2 takes these files."""
    file, expected = asked[name]
    assert not expected.refused
    assert "write" in ours(file, TOPICS, GROUPS, {}).refused


@pytest.mark.parametrize("name", [each["name"] for each in PUBLISHED])
def test_a_published_file_means_the_same_or_is_refused(
    asked: Mapping[str, Asked], name: str
) -> None:
    """The keys of companies', vendors' and guides' files that decide what is copied:
    the same copies and groups, or a refusal that says what to write.
    """
    file, expected = asked[name]
    found = ours(file, TOPICS, GROUPS, {})
    assert bool(found.refused) is (name in NOT_TAKEN), found.refused
    if name in NOT_TAKEN:
        assert NOT_TAKEN[name] in found.refused
    elif name in MEANT:
        assert found.warnings
    else:
        assert _by_target(found.copies) == _by_target(expected.copies)
        assert _by_target(found.groups) == _by_target(expected.groups)


def _file(published: dict[str, Any]) -> str:
    kind = "properties" if "properties" in published else "yaml"
    return f"{published['name']}.{kind}"


def _text(published: dict[str, Any], *, newer: bool = False) -> str:
    """The file; `newer`: in the words of MirrorMaker 2 4.x."""
    if "manifests" in published:
        return yaml.safe_dump_all(
            {"kind": "KafkaMirrorMaker2", "spec": spec}
            for spec in published["manifests"]
        )
    lines = []
    for key, value in published["properties"].items():
        name = key
        for old, new in OLDER if newer else ():
            name = name.replace(old, new)
        written = value.replace("\\", "\\\\").replace("\r", "\\r")
        lines.append(f"{name} = {written}\n")
    return "".join(lines)


def _by_target(found: dict[str, Any]) -> list[tuple[str, Any]]:
    """By the flow's target and what it has: a source may be called otherwise here."""
    return sorted(
        (
            (
                flow.partition("->")[2],
                sorted(each.items() if isinstance(each, dict) else each),
            )
            for flow, each in found.items()
        ),
        key=str,
    )
