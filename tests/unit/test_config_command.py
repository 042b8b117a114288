"""`mirror config`: what it shows, what it converts, and what it never prints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from mirror.cli import reference as commands
from mirror.config import settings
from mirror.config.cluster_settings import ClusterConfig
from mirror.config.load import load
from mirror.config.schema import FlowConfig
from mirror.config.service_settings import ServiceConfig
from mirror.status import reference as status
from tests.harness.commands import config_file, mirror

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[2]

MM2 = """
clusters = us-east, B
us-east.bootstrap.servers = a1:9092, a2:9092
B.bootstrap.servers = b1:9092
us-east.security.protocol = SASL_PLAINTEXT
us-east.sasl.mechanism = SCRAM-SHA-512
us-east.sasl.jaas.config = x.ScramLoginModule required username="u" password="s3cret";
us-east->B.enabled = true
us-east->B.topics = orders, "pay: .*"
tasks.max = 4
offset.lag.max = 10
listeners = http://127.0.0.1:0
topics.rename.regex = (.*)
topics.rename.replacement = eu.$1
B->us-east.enabled = false
"""

V1BETA2 = """
apiVersion: kafka.strimzi.io/v1beta2
kind: KafkaMirrorMaker2
metadata: {name: mm2}
spec:
  version: 4.1.0
  replicas: 2
  connectCluster: target
  clusters:
    - alias: source
      bootstrapServers: source-kafka-bootstrap:9093
      tls: {trustedCertificates: [{secretName: source-ca, certificate: ca.crt}]}
      authentication:
        type: scram-sha-512
        username: mirror
        passwordSecret: {secretName: source-user, password: password}
    - alias: target
      bootstrapServers: target-kafka-bootstrap:9092
      config: {config.storage.replication.factor: -1}
  mirrors:
    - sourceCluster: source
      targetCluster: target
      sourceConnector:
        tasksMax: 5
        config:
          replication.factor: -1
          sync.topic.acls.enabled: "false"
          refresh.topics.interval.seconds: 60
      checkpointConnector:
        config: {sync.group.offsets.enabled: true}
      topicsPattern: "orders|payments"
      groupsPattern: ".*"
"""

V1 = """
apiVersion: kafka.strimzi.io/v1
kind: KafkaMirrorMaker2
metadata: {name: mm2}
spec:
  target:
    alias: target
    bootstrapServers: target-kafka-bootstrap:9092
    groupId: mm2
    configStorageTopic: mm2-configs
  mirrors:
    - source:
        alias: source
        bootstrapServers: source-kafka-bootstrap:9093
        tls: {trustedCertificates: [{secretName: source-ca, certificate: ca.crt}]}
        authentication:
          type: tls
          certificateAndKey: {secretName: me, certificate: user.crt, key: user.key}
      sourceConnector: {tasksMax: 5, state: paused}
      checkpointConnector: {}
      heartbeatConnector: {}
      topicsPattern: orders
"""


def converted(tmp_path: Path, text: str, name: str) -> str:
    (path := tmp_path / name).write_text(text)
    done = mirror("config", "convert", path)
    assert done.exit_code == 0, done.output
    return str(done.stdout)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("mm2.properties", f"{MM2}transforms = x", "transforms: "),
        (
            "mm2.yaml",
            V1.replace("type: tls", "type: kerb"),
            "authentication of type kerb is not supported",
        ),
        ("mm2.yaml", V1.replace("  target:", "  goal:"), "mirrors[0]: has no target"),
        (
            "mm2.yaml",
            V1.replace("spec:", "specs:"),
            "the manifest must hold a KafkaMirrorMaker2 with",
        ),
    ],
)
def test_a_file_that_is_wrong_is_not_converted(
    tmp_path: Path, name: str, text: str, said: str
) -> None:
    """The problem is on stderr; stdout has nothing that could pass for a result."""
    (path := tmp_path / name).write_text(text)
    done = mirror("config", "convert", path)
    assert (done.exit_code, done.stdout) == (2, "")
    assert said in done.stderr


def test_what_is_converted_means_the_same(tmp_path: Path) -> None:
    """The YAML, with the secret from a variable, loads like the original file."""
    text = converted(tmp_path, MM2.replace("pay: .*", "pay.*"), "mm2.properties")
    path = tmp_path / "mirror.yaml"
    path.write_text(text)
    theirs, _ = load(tmp_path / "mm2.properties", environ={})
    ours, warnings = load(
        path, environ={"MIRROR_CLUSTERS__us_east__sasl_password": "s3cret"}
    )
    assert warnings == ()
    assert ours == theirs


def test_conversion_says_what_differs_and_shows_no_secret(tmp_path: Path) -> None:
    """Ignored keys and other defaults are comments; of the password, only its setting
    is named.
    """
    text = converted(tmp_path, MM2.replace("pay: .*", "pay.*"), "mm2.properties")
    assert "s3cret" not in text
    assert (
        "# sasl_password: left out; give it by sasl_password_file, or the variable "
        "MIRROR_CLUSTERS__us_east__sasl_password"
    ) in text
    assert "#   offset.lag.max: not needed, ignored: offsets are translated" in text
    assert "#   isolation_level: read_uncommitted there; here: leaves out" in text
    assert "#   heartbeats_replication_factor: 3 there; here: as replication" in text
    assert "#   sync_group_offsets_seconds: 60 there; here: with every look" in text
    assert "#   tasks:" not in text


def test_the_shipped_mirrormaker_file_converts(tmp_path: Path) -> None:
    """The example for MirrorMaker 2 can be converted."""
    text = (ROOT / "config" / "mm2.example.properties").read_text()
    found = yaml.safe_load(converted(tmp_path, text, "mm2.properties"))
    assert found["flows"]["primary->backup"]["topics"] == ["orders", r"payments\..*"]
    assert found["flows"]["backup->primary"] == {"enabled": False}


def test_a_manifest_of_v1beta2_converts(tmp_path: Path) -> None:
    """Clusters, credentials as mounted files, connectors and patterns are converted;
    fields about pods are not.
    """
    text = converted(tmp_path, V1BETA2, "mm2.yaml")
    found = yaml.safe_load(text)
    assert found["clusters"]["source"] == {
        "bootstrap_servers": ["source-kafka-bootstrap:9093"],
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_username": "mirror",
        "sasl_password_file": "/etc/mirror/secrets/source-user/password",
        "ssl_ca_file": "/etc/mirror/secrets/source-ca/ca.crt",
    }
    assert found["flows"]["source->target"] == {
        "enabled": True,
        "tasks": 5,
        "replication_factor": -1,
        "sync_topic_acls": False,
        "refresh_topics_seconds": 60,
        "sync_group_offsets": True,
        "topics": ["orders|payments"],
        "groups": [".*"],
        "emit_heartbeats": False,
    }
    assert "#   spec.replicas: about pods, ignored" in text


def test_values_are_made_of_manifests_only(tmp_path: Path) -> None:
    """For the other format, the message names the chart's own field for it."""
    (path := tmp_path / "mm2.properties").write_text(MM2.replace("pay: .*", "pay.*"))
    done = mirror("config", "convert", "--values", path)
    assert (done.exit_code, done.stdout) == (2, "")
    assert "the chart takes MirrorMaker 2's own file as mm2Properties" in done.stderr


def test_a_manifest_of_v1_converts(tmp_path: Path) -> None:
    """The target has its own field, a mirror has its source; paused is not enabled."""
    found = yaml.safe_load(converted(tmp_path, V1, "mm2.yaml"))
    assert found["clusters"]["source"]["security_protocol"] == "SSL"
    assert found["clusters"]["source"]["ssl_key_file"] == (
        "/etc/mirror/secrets/me/user.key"
    )
    flow = found["flows"]["source->target"]
    assert flow == {"enabled": False, "tasks": 5, "topics": ["orders"]}


def test_a_custom_login_of_a_manifest_converts(tmp_path: Path) -> None:
    """It has the keys of Java's clients; its password is left out like any other."""
    start, end = V1.index("type: tls"), V1.index("      sourceConnector")
    custom = """type: custom
          sasl: true
          config:
            sasl.mechanism: SCRAM-SHA-512
            sasl.jaas.config: x.ScramLoginModule required username="u" password="s3cr";
"""
    text = converted(tmp_path, V1[:start] + custom + V1[end:], "mm2.yaml")
    assert "s3cr" not in text
    assert yaml.safe_load(text)["clusters"]["source"] == {
        "bootstrap_servers": ["source-kafka-bootstrap:9093"],
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_username": "u",
        "ssl_ca_file": "/etc/mirror/secrets/source-ca/ca.crt",
    }


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (("type: tls", "type: kerb"), "authentication of type kerb is not supported"),
        (("  target:", "  goal:"), "spec.mirrors[0]: has no target"),
        (("spec:", "specs:"), "the manifest must hold a KafkaMirrorMaker2 with"),
    ],
)
def test_a_manifest_that_cannot_be_is_refused(
    tmp_path: Path, change: tuple[str, str], problem: str
) -> None:
    """One message each, no traceback."""
    path = tmp_path / "mm2.yaml"
    path.write_text(V1.replace(*change))
    done = mirror("config", "convert", path)
    assert done.exit_code == 2
    assert problem in done.stderr


LOGIN = {
    "bootstrap_servers": "a:1",
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "PLAIN",
    "sasl_username": "u",
}


def shown(file: Path, *words: str, **env: str) -> dict[str, dict[str, Any]]:
    """The answer of `mirror config show`, by setting."""
    done = mirror("config", "show", *words, "-c", file, "-o", "json", **env)
    assert done.exit_code == 0, done.output
    assert "s3cret" not in done.output
    return {each["setting"]: each for each in json.loads(done.stdout)["settings"]}


def test_show_tells_where_each_value_comes_from(tmp_path: Path) -> None:
    """Variable over flow over defaults over the schema; secrets are stars."""
    clusters = {
        "A": {**LOGIN, "sasl_password": "s3cret"},
        "B": {"bootstrap_servers": "b:1"},
    }
    path = config_file(
        tmp_path,
        clusters=clusters,
        defaults={"tasks": 2, "topics": ["x"]},
        flows={"A/B": {"topics": ["orders"]}},
    )
    found = shown(path, "--origin", MIRROR_SERVICE__http_port="1")

    def of(setting: str) -> tuple[object, str, str]:
        return tuple(found[setting][key] for key in ("value", "origin", "written"))

    assert of("service.http_port") == (1, "variable", "MIRROR_SERVICE__http_port")
    assert of('flows."A/B".topics') == (["orders"], "file", 'flows."A/B".topics')
    assert of('flows."A/B".tasks') == (2, "file", "defaults.tasks")
    assert of('flows."A/B".policy') == ("default", "default", "")
    assert of("clusters.A.sasl_password")[0] == "***"
    as_table = mirror("config", "show", "--origin", "-c", path)
    assert as_table.exit_code == 0
    assert as_table.stdout.splitlines()[0].split() == [
        *("SETTING", "VALUE", "ORIGIN", "WRITTEN")
    ]


def test_show_hides_an_empty_secret(tmp_path: Path) -> None:
    """An empty password is shown as stars, too, and does not stop the command."""
    clusters = {"A": {**LOGIN, "sasl_password": ""}, "B": {"bootstrap_servers": "b:1"}}
    found = shown(config_file(tmp_path, clusters=clusters))
    assert found["clusters.A.sasl_password"]["value"] == "***"


@pytest.mark.parametrize(
    ("path", "made"),
    [
        ("config/mirror.schema.json", settings.json_schema),
        ("config/mirror.reference.yaml", settings.example),
        ("docs/reference/settings.md", settings.reference),
        ("docs/reference/cli.md", commands.reference),
        ("docs/reference/status.md", status.reference),
        ("deploy/helm/mirror/settings.yaml", settings.for_chart),
    ],
)
def test_what_is_generated_is_current(path: str, made: Any) -> None:
    """After a setting or option is added or reworded, `make settings` must run."""
    assert (ROOT / path).read_text() == made(), "run make settings"


def test_the_annotated_file_loads_also_when_nothing_is_a_comment(
    tmp_path: Path,
) -> None:
    """Each default, written out, means the same as leaving it out."""
    text = (ROOT / "config" / "mirror.reference.yaml").read_text()
    path = tmp_path / "mirror.yaml"
    path.write_text(text)
    plain, _ = load(path, environ={})
    names = {
        name
        for model in (ClusterConfig, FlowConfig, ServiceConfig)
        for name in model.model_fields
    }
    lines = [
        line.replace("#", "", 1)
        if line.strip().startswith("#") and line.strip()[1:].split(":")[0] in names
        else line
        for line in text.splitlines()
    ]
    path.write_text("\n".join(lines))
    spelled_out, _ = load(path, environ={})
    assert spelled_out == plain


def test_the_schema_names_every_setting() -> None:
    """Sections refuse unknown settings; what a key says is not asked for."""
    made = json.loads(settings.json_schema())
    cluster = made["properties"]["clusters"]["additionalProperties"]
    assert cluster["required"] == ["bootstrap_servers"]
    assert cluster["additionalProperties"] is False
    assert set(cluster["properties"]) == set(ClusterConfig.model_fields) - {"alias"}
    flow = made["properties"]["defaults"]["anyOf"][0]
    assert set(flow["properties"]) == set(FlowConfig.model_fields) - {
        *("source", "target", "homes")
    }
    assert "required" not in flow
