"""MirrorMaker 2's file: it means the same here, or a message says so.

Odd texts mean what Java's own reader makes of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mirror.config.schema import FlowConfig
from tests.harness.configurations import MM2, java, java_problems, read_java, secret

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.unit

OLDER_POLICY = "io.strimzi.kafka.connect.mirror.IdentityReplicationPolicy"
POLICY = "org.apache.kafka.connect.mirror"


def flow(tmp_path: Path, more: str, **environ: str) -> FlowConfig:
    config, warnings = read_java(tmp_path, MM2 + more, **environ)
    assert warnings == ()
    return config.flows["A->B"]


def test_the_smallest_file_runs(tmp_path: Path) -> None:
    """Clusters, brokers and one enabled flow are enough; exactly once stays on."""
    text = MM2.replace("a:9092", "a1:9092, a2:9092")
    config, warnings = read_java(tmp_path, text)
    assert warnings == ()
    assert config.clusters["A"].bootstrap_servers == ("a1:9092", "a2:9092")
    beating = FlowConfig(source="A", target="B", heartbeats_on_source=True)
    assert config.flows == {"A->B": beating.among(config.clusters)}
    assert config.flows["A->B"].exactly_once


def test_a_flow_is_off_unless_enabled(tmp_path: Path) -> None:
    """Other settings of a flow do not turn it on."""
    config, _ = read_java(tmp_path, MM2 + "B->A.topics = x\n")
    assert config.flows["A->B"].enabled
    assert not config.flows["B->A"].enabled


@pytest.mark.parametrize(
    ("lines", "on_target", "on_source"),
    [
        ("", True, True),
        ("B->A.enabled = false", True, True),
        ("emit.heartbeats.enabled = false", False, False),
        ("A->B.emit.heartbeats.enabled = false", False, True),
        ("B->A.emit.heartbeats.enabled = false", True, False),
        (
            "emit.heartbeats.enabled = false\nB->A.emit.heartbeats.enabled = true",
            False,
            True,
        ),
        ("B->A.enabled = true", True, False),
    ],
)
def test_heartbeats_are_where_mirrormaker_writes_them(
    tmp_path: Path, lines: str, on_target: bool, on_source: bool
) -> None:
    """Its own process writes them to each cluster, and for a flow's source the key of
    the other direction counts; a flow that runs in that direction does it itself.
    """
    found = flow(tmp_path, lines)
    assert (found.emit_heartbeats, found.heartbeats_on_source) == (on_target, on_source)


def test_a_bad_value_for_heartbeats_is_named_once(tmp_path: Path) -> None:
    """A key that sets two settings gives one message."""
    assert java_problems(tmp_path, MM2 + "emit.heartbeats.enabled = yess\n") == [
        'emit.heartbeats.enabled: "yess" is neither true nor false'
    ]


@pytest.mark.parametrize(
    ("line", "setting", "value"),
    [
        ("topics = a, b.*", "topics", ("a", "b.*")),
        ("A->B.topics = a", "topics", ("a",)),
        ("topics.exclude = x", "topics_exclude", ("x",)),
        ("topics.exclude =", "topics_exclude", ()),
        ("tasks.max = 8", "tasks", 8),
        ("A->B.tasks.max = 8", "tasks", 8),
        ("replication.factor = 3", "replication_factor", 3),
        ("A->B.replication.factor = 2", "replication_factor", 2),
        ("refresh.topics.interval.seconds = 30", "refresh_topics_seconds", 30),
        ("sync.topic.configs.enabled = false", "sync_topic_configs", False),
        ("A->B.sync.topic.configs.enabled = false", "sync_topic_configs", False),
        ("sync.topic.configs.interval.seconds = 30", "sync_topic_configs_seconds", 30),
        (
            "config.properties.exclude = retention.ms, seg.*",
            "config_properties_exclude",
            ("retention.ms", "seg.*"),
        ),
        ("A->B.use.defaults.from = source", "use_defaults_from", "source"),
        ("sync.topic.acls.enabled = false", "sync_topic_acls", False),
        ("sync.topic.acls.interval.seconds = 30", "sync_topic_acls_seconds", 30),
        ("replication.policy.separator = _", "separator", "_"),
        (
            f"replication.policy.class = {POLICY}.IdentityReplicationPolicy",
            "policy",
            "identity",
        ),
        (f"replication.policy.class = {OLDER_POLICY}", "policy", "identity"),
        (
            f"replication.policy.class = {POLICY}.DefaultReplicationPolicy",
            "policy",
            "default",
        ),
        ("exactly.once.source.support = disabled", "exactly_once", False),
        ("exactly.once.source.support = preparing", "exactly_once", True),
        ("B.exactly.once.source.support = disabled", "exactly_once", False),
        ("A.exactly.once.source.support = disabled", "exactly_once", True),
        ("exactly.once.support = disabled", "exactly_once", False),
        (
            "A.consumer.isolation.level = read_uncommitted",
            "isolation_level",
            "read_uncommitted",
        ),
        ("A.consumer.auto.offset.reset = latest", "start", "latest"),
        ("A->B.source.consumer.auto.offset.reset = latest", "start", "latest"),
        ("A.consumer.client.rack = zone-1", "rack", "zone-1"),
        ("A->B.source.consumer.client.rack = zone-1", "rack", "zone-1"),
        ("A.client.rack = zone-1", "rack", "zone-1"),
        ("B.consumer.client.rack = zone-1", "rack", None),
        ("B.producer.compression.type = zstd", "compression", "zstd"),
        ("A->B.producer.override.compression.type = lz4", "compression", "lz4"),
    ],
)
def test_a_key_has_its_meaning(
    tmp_path: Path, line: str, setting: str, value: object
) -> None:
    """Each key that mirror serves sets what it sets in MirrorMaker 2."""
    assert getattr(flow(tmp_path, line + "\n"), setting) == value


@pytest.mark.parametrize(
    ("first", "second", "setting", "value"),
    [
        ("A->B.tasks.max = 1", "tasks.max = 2", "tasks", 1),
        (
            "B.exactly.once.source.support = disabled",
            "exactly.once.source.support = enabled",
            "exactly_once",
            False,
        ),
        # What a cluster says wins over the flow's plain client settings ...
        (
            "A.consumer.auto.offset.reset = latest",
            "A->B.consumer.auto.offset.reset = earliest",
            "start",
            "latest",
        ),
        # ... but not over those that name the role.
        (
            "A->B.source.consumer.auto.offset.reset = earliest",
            "A.consumer.auto.offset.reset = latest",
            "start",
            "earliest",
        ),
        (
            "A->B.producer.override.compression.type = lz4",
            "B.producer.compression.type = zstd",
            "compression",
            "lz4",
        ),
    ],
)
def test_precedence_is_that_of_mirrormaker(
    tmp_path: Path, first: str, second: str, setting: str, value: object
) -> None:
    """The same setting wins, whatever the order in the file."""
    for lines in (f"{first}\n{second}", f"{second}\n{first}"):
        assert getattr(flow(tmp_path, lines), setting) == value


@pytest.mark.parametrize(
    ("value", "host", "port"),
    [
        ("http://127.0.0.1:0", "127.0.0.1", 0),
        ("http://:8084", "0.0.0.0", 8084),
        ("https://x:8443, HTTP://mirror.example.com:9000/", "mirror.example.com", 9000),
        ("http://[::1]:8083", "::1", 8083),
    ],
)
def test_listeners_set_the_address(
    tmp_path: Path, value: str, host: str, port: int
) -> None:
    """So that several processes run on one machine, as guides have it."""
    config, warnings = read_java(tmp_path, MM2 + f"listeners = {value}\n")
    assert warnings == ()
    assert (config.service.http_host, config.service.http_port) == (host, port)


@pytest.mark.parametrize("value", ["https://x:8443", "http://x", "8083", "http://x:y"])
def test_listeners_that_cannot_be_served_are_refused(
    tmp_path: Path, value: str
) -> None:
    """One message, though the key sets two settings; TLS has settings of its own."""
    assert java_problems(tmp_path, MM2 + f"listeners = {value}\n") == [
        (
            f'listeners: "{value}" has no address such as http://127.0.0.1:8083; for '
            "TLS write one, and set MIRROR_SERVICE__http_certificate_file"
        )
    ]


def test_variables_win_over_this_file_too(tmp_path: Path) -> None:
    """The layers are the same for both formats."""
    found = flow(tmp_path, "A->B.tasks.max = 1", MIRROR_FLOWS__A__TO__B__tasks="3")
    assert found.tasks == 3


@pytest.mark.parametrize(
    ("module", "mechanism"),
    [("plain.PlainLoginModule", "PLAIN"), ("scram.ScramLoginModule", "SCRAM-SHA-512")],
)
def test_credentials_are_read(tmp_path: Path, module: str, mechanism: str) -> None:
    """A login module's options become user and password, unquoted and unescaped."""
    config, warnings = read_java(
        tmp_path,
        f"""{MM2}
security.protocol = sasl_ssl
sasl.mechanism = {mechanism}
sasl.jaas.config = org.apache.kafka.common.security.{module} required \\
    username="u,1" password="p\\\\"=;#\\u00e9";
B.security.protocol = PLAINTEXT
""",
    )
    cluster = config.clusters["A"]
    assert cluster.security_protocol == "SASL_SSL"
    assert cluster.sasl_mechanism == mechanism
    assert cluster.sasl_username == "u,1"
    assert secret(cluster.sasl_password) == 'p"=;#é'
    assert config.clusters["B"].sasl_username is None
    assert warnings == (
        "sasl.mechanism: not used by PLAINTEXT, ignored",
        "sasl.jaas.config: not used by PLAINTEXT, ignored",
    )


def test_pem_stores_are_read(tmp_path: Path) -> None:
    """PEM trust and key stores are files that mirror uses as they are."""
    for name in ("ca.pem", "me.pem"):
        (tmp_path / name).write_text("")
    cluster, warnings = java(
        tmp_path,
        f"""{MM2}
A.security.protocol = SSL
A.ssl.truststore.type = PEM
A.ssl.truststore.location = {tmp_path}/ca.pem
A.ssl.keystore.type = PEM
A.ssl.keystore.location = {tmp_path}/me.pem
A.ssl.key.password = 123
A.ssl.endpoint.identification.algorithm =
""",
    )
    assert cluster.ssl_ca_file == tmp_path / "ca.pem"
    assert cluster.ssl_certificate_file == tmp_path / "me.pem"
    assert secret(cluster.ssl_key_password) == "123"
    assert not cluster.ssl_check_hostname
    assert warnings == ()


@pytest.mark.parametrize(
    ("line", "warning"),
    {
        "offset.lag.max = 1": (
            "offset.lag.max: not needed, ignored: offsets are translated exactly, "
            "for any lag"
        ),
        "A->B.refresh.groups.interval.seconds = 5": (
            "A->B.refresh.groups.interval.seconds: not needed, ignored: groups are "
            "looked for with every round of checkpoints; "
            "emit.checkpoints.interval.seconds says how often"
        ),
        "A.consumer.fetch.max.bytes = 5": (
            "A.consumer.fetch.max.bytes: not needed, ignored: mirror sizes its "
            "requests itself, and asks ahead while it works"
        ),
        "topics.exlude = x": (
            'topics.exlude: unknown, ignored; did you mean "topics.exclude"?'
        ),
        "A->B.enable = true": 'A->B.enable: unknown, ignored; did you mean "enabled"?',
        "consumer.auto.offset.reset = latest": (
            "consumer.auto.offset.reset: has no effect here, nor in MirrorMaker 2; "
            "write it with a cluster's alias, as in A.consumer.auto.offset.reset"
        ),
        "use.defaults.from = source": (
            "use.defaults.from: has no effect here, nor in MirrorMaker 2; write it "
            "with a flow, as in A->B.use.defaults.from"
        ),
        "A.tasks.max = 4": (
            "A.tasks.max: has no effect with a cluster's alias, nor in MirrorMaker 2; "
            "write tasks.max, or A->B.tasks.max"
        ),
        "C.bootstrap.servers = c:1": (
            'C.bootstrap.servers: "C" is not among the clusters, ignored'
        ),
        'tasks.max = "2"': "tasks.max: quotes are not part of the value, removed",
        "topics = \"orders\", 'customers'": (
            "topics: quotes are not part of the value, removed"
        ),
        "topics =": "A->B.topics: is empty, so no topic is copied",
    }.items(),
)
def test_what_has_no_effect_is_answered_by_name(
    tmp_path: Path, line: str, warning: str
) -> None:
    """One warning, and the flow runs, no other one."""
    config, warnings = read_java(tmp_path, MM2 + line + "\n")
    assert warnings == (warning,)
    assert [(each.name, each.enabled) for each in config.flows.values()] == [
        ("A->B", True)
    ]


def test_aliases_may_hold_dots_and_hyphens(tmp_path: Path) -> None:
    """The longest alias that fits owns a key."""
    config, warnings = read_java(
        tmp_path,
        """
clusters = us, us.east, eu-1
us.bootstrap.servers = a:1
us.east.bootstrap.servers = b:1
eu-1.bootstrap.servers = SASL_SSL://c:1
us.east->eu-1.enabled = true
us.east->eu-1.topics = x
""",
    )
    assert warnings == ()
    assert list(config.flows) == ["us.east->eu-1"]
    assert config.flows["us.east->eu-1"].topics == ("x",)
    assert config.clusters["eu-1"].bootstrap_servers == ("c:1",)


LOGIN = """\
A.security.protocol = SASL_PLAINTEXT
A.sasl.mechanism = PLAIN
A.sasl.jaas.config = x.PlainLoginModule required username="u" password="%b";
"""


@pytest.mark.parametrize(
    ("line", "topics"),
    [
        ("A->B.topics = a,b", ("a", "b")),
        ("A->B.topics=a,b", ("a", "b")),
        ("A->B.topics:a,b", ("a", "b")),
        ("A->B.topics a,b", ("a", "b")),
        ("\t A->B.topics\t=\t a,b \t", ("a", "b")),
        ("A->B.topics = a, \\\n    b", ("a", "b")),
        ("A->B.topics = a, \\\r\n    b\r", ("a", "b")),
        ("A->B.topics = a\\\\.b", (r"a\.b",)),
        ("A->B.topics = a\\u002eb", ("a.b",)),
        ("A->B.topics = \\u0061", ("a",)),
        ("A-\\u003eB.topics = a", ("a",)),
        ("A->B.\\\n  topics = a", ("a",)),
        ("A->B.topics = a\n! A->B.topics = b", ("a",)),
        ("A->B.topics = a\n  # A->B.topics = b", ("a",)),
        ("# comments are not continued \\\nA->B.topics = a", ("a",)),
        ("A->B.topics = a=b", ("a=b",)),
        ("A->B.topics = a\\=b", ("a=b",)),
        ("A->B.topics = a\\:b", ("a:b",)),
        ("A->B.topics = a\\,b", ("a", "b")),
        ("A->B.topics = a\\zb", ("azb",)),
        ("A->B.topics = a\f", ("a",)),
        ("\\\n# A->B.topics = b\n\\\n  A->B.topics = a", ("a",)),
    ],
)
@pytest.mark.parametrize("ending", ["\n", ""], ids=["newline", "no newline"])
def test_a_line_means_what_it_means_in_java(
    tmp_path: Path, line: str, topics: tuple[str, ...], ending: str
) -> None:
    """Separators, blanks, escapes, joined lines and comments; without a final newline,
    too.
    """
    config, warnings = read_java(tmp_path, f"{MM2}{line}{ending}")
    assert config.flows["A->B"].topics == topics
    assert warnings == ()


@pytest.mark.parametrize("newline", ["\r\n", "\r"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"], ids=["plain", "BOM"])
def test_files_of_other_systems(tmp_path: Path, newline: str, mark: bytes) -> None:
    """Windows' and old line ends, and the mark that its editors put first."""
    text = f"{MM2}A->B.topics = a, \\\n   b\n".replace("\n", newline)
    config, warnings = read_java(tmp_path, mark + text.encode())
    assert config.flows["A->B"].topics == ("a", "b")
    assert list(config.clusters) == ["A", "B"]
    assert warnings == ()


@pytest.mark.parametrize(
    ("raw", "password"),
    [
        ("pä€sword".encode(), "pä€sword"),
        ("päßword".encode("latin-1"), "päßword"),
        (b"p\\u00e4\\u20acsword", "pä€sword"),
        (b"\\ud83d\\udd11", "\U0001f511"),
        (b"a\\:b\\=c\\#d\\!e", "a:b=c#d!e"),
        (b"a#b!c = d", "a#b!c = d"),
        (b"back\\\\\\\\slash", "back\\slash"),
        (b"one\\\n      two", "onetwo"),
    ],
)
def test_a_password_of_any_characters(
    tmp_path: Path, raw: bytes, password: str
) -> None:
    """Java's escapes first, then those of a login module's quoted text."""
    config, warnings = read_java(tmp_path, (MM2 + LOGIN).encode() % raw)
    assert warnings == ()
    assert secret(config.clusters["A"].sasl_password) == password


def test_of_keys_given_twice_the_last_counts(tmp_path: Path) -> None:
    """As in Java, but with a warning that names each such key once."""
    config, warnings = read_java(
        tmp_path,
        f"{MM2}tasks.max = 1\ntopics = a\ntasks.max = 2\ntopics = b\ntasks\\.max = 3\n",
    )
    assert config.flows["A->B"].tasks == 3
    assert config.flows["A->B"].topics == ("b",)
    assert warnings == (
        "tasks.max: set twice; the last one counts",
        "topics: set twice; the last one counts",
        "tasks.max: set twice; the last one counts",
    )


def test_a_key_without_a_value_is_empty(tmp_path: Path) -> None:
    """That is not the same as not set; where it is hardly meant, a warning says so."""
    config, warnings = read_java(tmp_path, f"{MM2}A->B.topics\n")
    assert config.flows["A->B"].topics == ()
    assert warnings == ("A->B.topics: is empty, so no topic is copied",)
