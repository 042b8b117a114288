"""Files copied from published guides do what the guide promised, or are answered."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.harness.configurations import MM2, java_problems, read_java, secret

if TYPE_CHECKING:
    from pathlib import Path


pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("line", "setting", "value"),
    [
        ('topics = ".*"', "topics", (".*",)),
        ("topics = \"orders\", 'customers'", "topics", ("orders", "customers")),
        ('topics.exclude = "__.*"', "topics_exclude", ("__.*",)),
        ("topics.blacklist = x", "topics_exclude", ("x",)),
        ("topics.whitelist = x", "topics", ("x",)),
        ("groups.blacklist = x", "groups_exclude", ("x",)),
        ("emit.checkpoints.interval = 1m", "emit_checkpoints_seconds", 60),
        ("emit.heartbeats.interval = 30s", "emit_heartbeats_seconds", 30),
        ("A->B.emit.heartbeats = false", "emit_heartbeats", False),
        ("sync.topic.configs.interval = 5m", "sync_topic_configs_seconds", 300),
        ("sync.topic.acls.interval = 1h", "sync_topic_acls_seconds", 3600),
        ("A->B.refresh.topics.interval = 500ms", "refresh_topics_seconds", 0.5),
        ("sync.acls.enabled = false", "sync_topic_acls", False),
        (
            "sync.topic.configs.strategy = INTERSECTION",
            "config_strategy",
            "intersection",
        ),
        ("target.topic.creation.replication.factor = 3", "replication_factor", 3),
        ("target.topic.creation.default.partitions = 6", "least_partitions", 6),
        ("target.topic.creation.min.insync.replicas = 2", "min_insync_replicas", 2),
        ("target.topic.creation.enable = true", "enabled", True),
        ("offsets.topic.replication.factor = 3", "offset_syncs_replication_factor", 3),
        (
            "checkpoints.topic.replication.factor = 3",
            "checkpoints_replication_factor",
            3,
        ),
        ("heartbeats.topic.replication.factor = 3", "heartbeats_replication_factor", 3),
        ("producer.acks = all", "enabled", True),
        ("producer.compression.type = zstd", "compression", "zstd"),
        ("compression.type = ZSTD", "compression", "zstd"),
        ("producer.override.compression.type = lz4", "compression", "lz4"),
        ("tasks.max = 8 # one per core", "tasks", 8),
    ],
)
def test_a_published_key_does_what_the_guide_means(
    tmp_path: Path, line: str, setting: str, value: object
) -> None:
    """Aliases, quotes, units and trailing comments are understood."""
    config, _ = read_java(tmp_path, MM2 + line + "\n")
    assert getattr(config.flows["A->B"], setting) == value


@pytest.mark.parametrize(
    "key",
    [
        "producer.batch.size",
        "metrics.reporters",
        "metrics.reporter.bootstrap.servers",
        "num.stream.threads",
    ],
)
def test_client_tuning_is_answered_by_name(tmp_path: Path, key: str) -> None:
    """One warning names the key and says why it is not needed, whatever its value; keys
    that Kafka has not are answered as well as those of `test_mm2_keys`.
    """
    _, warnings = read_java(tmp_path, f"{MM2}{key} = Integer.MAX_VALUE\n")
    assert len(warnings) == 1
    assert warnings[0].startswith(f"{key}: not needed, ignored: ")


@pytest.mark.parametrize("key", ["producer.acks", "B.producer.acks", "acks"])
def test_acks_that_lose_records_are_answered(tmp_path: Path, key: str) -> None:
    """A user who wrote acks = 1 must not believe that it applies; the flow runs."""
    config, warnings = read_java(tmp_path, f"{MM2}{key} = 1\n")
    assert warnings == (
        (
            f"{key}: not needed, ignored: mirror always waits until all replicas in "
            "sync have a record, as acks = all says; with fewer it could lose records "
            "that it counts as copied"
        ),
    )
    assert config.flows["A->B"].enabled


@pytest.mark.parametrize("alias", ["A", "source"])
def test_connect_style_credentials_are_answered(tmp_path: Path, alias: str) -> None:
    """Guides mix in the names of Connect's own configuration, also where a cluster is
    called source; the message says how this file has them.
    """
    text = MM2.replace("A", alias)
    _, (said,) = read_java(tmp_path, f"{text}source.cluster.sasl.mechanism = PLAIN\n")
    assert said == (
        "source.cluster.sasl.mechanism: has no effect here; write it with a cluster's "
        "alias, as in A.sasl.mechanism"
    )


def test_request_timeouts_are_a_clusters(tmp_path: Path) -> None:
    """Without an alias for all clusters, with one for its own, in any order."""
    for lines in (
        ("A.request.timeout.ms = 5000", "request.timeout.ms = 40000"),
        ("request.timeout.ms = 40000", "A.request.timeout.ms = 5000"),
    ):
        config, _ = read_java(tmp_path, MM2 + "\n".join(lines))
        assert config.clusters["A"].request_timeout_seconds == 5
        assert config.clusters["B"].request_timeout_seconds == 40


def test_published_renaming_becomes_rules(tmp_path: Path) -> None:
    """`${clusters.A}` is the alias, `$1` the group; a flow's own rules win."""
    config, _ = read_java(
        tmp_path,
        MM2 + "topics.rename.regex = (.*)\n"
        "topics.rename.replacement = ${clusters.A}.$1\n",
    )
    flow = config.flows["A->B"]
    assert flow.policy == "rename"
    assert flow.replication_policy.target_topic("orders") == "A.orders"


def test_a_newer_name_beside_an_older_one_counts(tmp_path: Path) -> None:
    """The order does not matter."""
    for lines in (
        "topics.exclude = new\ntopics.blacklist = old\n",
        "topics.blacklist = old\ntopics.exclude = new\n",
    ):
        config, warnings = read_java(tmp_path, MM2 + lines)
        assert config.flows["A->B"].topics_exclude == ("new",)
        assert warnings == (
            "topics.blacklist: topics.exclude says the same and takes precedence",
        )


@pytest.mark.parametrize(
    ("key", "setting", "newer"),
    [
        ("topics.whitelist", "topics", "topics"),
        ("topics.blacklist", "topics_exclude", "topics.exclude"),
        ("A->B.groups.blacklist", "groups_exclude", "groups.exclude"),
        (
            "config.properties.blacklist",
            "config_properties_exclude",
            "config.properties.exclude",
        ),
    ],
)
def test_a_name_that_was_given_up_is_told(
    tmp_path: Path, key: str, setting: str, newer: str
) -> None:
    """It is taken as it was meant; MirrorMaker 2 4.x would copy something else."""
    config, (warning,) = read_java(tmp_path, f"{MM2}{key} = x\n")
    assert getattr(config.flows["A->B"], setting) == ("x",)
    wanted = f"MirrorMaker 2 ignores this name since 4.0; applied as {newer}"
    assert warning == f"{key}: {wanted}"


def test_references_are_resolved(tmp_path: Path) -> None:
    """Files, variables and directories, as Connect's providers read them."""
    secrets = tmp_path / "secrets.properties"
    secrets.write_text("user=mirror\npassword=p\\u0031 #x\n")
    (tmp_path / "tasks").write_text("7")
    config, warnings = read_java(
        tmp_path,
        f"""{MM2}
config.providers = file, env, directory
config.providers.file.class = org.apache.kafka.common.config.provider.FileConfigProvider
config.providers.env.class = \
org.apache.kafka.common.config.provider.EnvVarConfigProvider
config.providers.directory.class = \
org.apache.kafka.common.config.provider.DirectoryConfigProvider
A.security.protocol = SASL_PLAINTEXT
A.sasl.mechanism = SCRAM-SHA-512
A.sasl.jaas.config = x.ScramLoginModule required \
username="${{file:{secrets}:user}}" password="${{file:{secrets}:password}}";
A->B.topics = ${{env:TOPICS}}
tasks.max = ${{directory:{tmp_path}:tasks}}
""",
        TOPICS="a,b",
    )
    assert warnings == ()
    cluster = config.clusters["A"]
    assert cluster.sasl_username == "mirror"
    assert secret(cluster.sasl_password) == "p1 #x"
    assert config.flows["A->B"].topics == ("a", "b")
    assert config.flows["A->B"].tasks == 7


def test_references_of_guides_need_no_declaration(tmp_path: Path) -> None:
    """Guides leave the declaration out; a warning says what MirrorMaker 2 would do."""
    config, warnings = read_java(
        tmp_path, f"{MM2}tasks.max = ${{env:TASKS}}\n", TASKS="3"
    )
    assert config.flows["A->B"].tasks == 3
    assert warnings == (
        (
            "${env:...}: resolved, although config.providers does not name it: "
            "MirrorMaker 2 would take the text as it is"
        ),
    )


def test_utf_16_is_refused(tmp_path: Path) -> None:
    """It would be read as other characters, and every key would be unknown."""
    (said,) = java_problems(tmp_path, MM2.encode("utf-16"))
    assert "is neither UTF-8 nor Latin-1 text" in said
