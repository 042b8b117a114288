"""Strimzi's manifests mean what its operator runs, or a message says what to write."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner
import yaml

from mirror.cli.main import app
from mirror.config.load import read
from mirror.config.mm2.convert import convert
from tests.harness import configurations
from tests.harness.configurations import java_problems

if TYPE_CHECKING:
    from pathlib import Path

    from mirror.config.document import Document
    from mirror.config.schema import MirrorConfig

pytestmark = pytest.mark.unit


def manifest(**mirror: Any) -> dict[str, Any]:
    """One flow from A to B; `mirror`: more of it."""
    return {
        "apiVersion": "kafka.strimzi.io/v1beta2",
        "kind": "KafkaMirrorMaker2",
        "metadata": {"name": "mm2"},
        "spec": {
            "connectCluster": "B",
            "clusters": [
                {"alias": "A", "bootstrapServers": "a:1"},
                {"alias": "B", "bootstrapServers": "b:1"},
            ],
            "mirrors": [
                {"sourceCluster": "A", "targetCluster": "B", "sourceConnector": {}}
                | mirror
            ],
        },
    }


def cluster(**more: Any) -> dict[str, Any]:
    """The manifest with this in its first cluster."""
    made = manifest()
    made["spec"]["clusters"][0] |= more
    return made


def loaded(tmp_path: Path, text: str, name: str = "mm2.yaml") -> MirrorConfig:
    return configurations.read(tmp_path, text, name=name)[0]


def raw(tmp_path: Path, made: dict[str, Any]) -> Document:
    (tmp_path / "mm2.yaml").write_text(yaml.safe_dump(made))
    return read(tmp_path / "mm2.yaml", {})


def refusal(tmp_path: Path, text: str) -> str:
    return "\n".join(configurations.problems(tmp_path, text, name="mm2.yaml"))


def test_a_manifest_is_read_as_tools_write_it(tmp_path: Path) -> None:
    """In JSON, in YAML with quoted keys, in a List, after other documents."""
    made = manifest(topicsPattern="orders")
    listed = {"kind": "List", "items": [{"kind": "Secret"}, made]}
    quoted = json.dumps(made, indent=1)
    other = yaml.safe_dump({"kind": "Kafka", "spec": {}})
    for name, text in (
        ("mm2.json", json.dumps(made)),
        ("mm2.yaml", quoted),
        ("list.yaml", yaml.safe_dump(listed)),
        ("many.yaml", f"{other}---\n{yaml.safe_dump(made)}"),
    ):
        assert loaded(tmp_path, text, name).flows["A->B"].topics == ("orders",), name


def test_several_manifests_are_several_flows(tmp_path: Path) -> None:
    """One for each direction, as people write them; a cluster may not differ."""
    back = manifest()
    back["spec"]["mirrors"][0] |= {"sourceCluster": "B", "targetCluster": "A"}
    both = yaml.safe_dump_all([manifest(), back])
    assert loaded(tmp_path, both).flows.keys() == {"A->B", "B->A"}
    back["spec"]["clusters"][0]["bootstrapServers"] = "other:1"
    other = yaml.safe_dump_all([manifest(), back])
    assert "A has other bootstrapServers above" in refusal(tmp_path, other)
    twice = yaml.safe_dump_all([manifest(), manifest()])
    assert "the flow A->B is given above" in refusal(tmp_path, twice)


def test_blank_fields_are_no_values(tmp_path: Path) -> None:
    """As Kubernetes takes null: the default, and no connector."""
    made = manifest(
        topicsPattern=None, checkpointConnector=None, heartbeatConnector={},
        sourceConnector={"tasksMax": None, "config": {"topics": None}},
    )  # fmt: skip
    flow = loaded(tmp_path, yaml.safe_dump(made)).flows["A->B"]
    assert (flow.topics, flow.tasks) == ((".*",), None)
    assert (flow.emit_checkpoints, flow.emit_heartbeats) == (False, True)


def test_each_connector_decides_its_own_keys(tmp_path: Path) -> None:
    """The source connector what is copied, the checkpoint connector which groups are
    translated; a key in another one is named, and changes nothing.
    """
    document = raw(
        tmp_path,
        manifest(
            sourceConnector={
                "config": {"topics.exclude": "secret.*", "groups": "none"}
            },
            checkpointConnector={
                "config": {
                    "topics.exclude": "orders.*", "groups": "app",
                    "consumer.auto.offset.reset": "latest",
                }
            },
        ),
    )  # fmt: skip
    flow = document.raw["flows"]["A->B"]
    assert flow["topics_exclude"] == ["secret.*"]
    assert flow["groups"] == ["app"]
    assert "start" not in flow
    told = [each for each in document.warnings if "not taken" in each]
    keys = {each.partition(": ")[0].rpartition(".config.")[2] for each in told}
    assert keys == {"groups", "topics.exclude", "consumer.auto.offset.reset"}


@pytest.mark.parametrize(
    ("made", "problem"),
    [
        (
            manifest(topicPattern="x"),
            'spec.mirrors[0].topicPattern: unknown; did you mean "topicsPattern"?',
        ),
        (
            manifest(sourceConnector=None),
            "has no sourceConnector, so that Strimzi copies nothing; write source",
        ),
        (manifest(targetCluster=None), "spec.mirrors[0]: has no target"),
        (cluster(alias=None), "spec.clusters[0]: has no alias"),
        (
            cluster(authentication={"type": "oauth", "refreshToken": {"key": "x"}}),
            "cluster A: authentication.refreshToken is not supported; use clientSecret",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused(
    tmp_path: Path, made: dict[str, Any], problem: str
) -> None:
    """The message says where it stands, and what to write."""
    assert problem in refusal(tmp_path, yaml.safe_dump(made))


def test_no_field_is_dropped_without_a_word(tmp_path: Path) -> None:
    """Those that Strimzi does not know either, those of pods, and the rack."""
    made = manifest(config={"topics": "x"})
    made["spec"] |= {"rack": {"topologyKey": "zone"}, "replicas": 2, "colour": 1}
    told = "\n".join(raw(tmp_path, made).warnings)
    assert "spec.mirrors[0].config: unknown, ignored, as Strimzi does" in told
    assert "spec.colour: unknown, ignored" in told
    assert "spec.replicas: about pods" in told
    assert "spec.rack: a pod's zone is not known here; set the flow's rack" in told


def test_logins_that_manifests_have(tmp_path: Path) -> None:
    """A token from a secret, a client's secret as a mounted file, one certificate, all
    of a secret, and several ones.
    """
    secret = {"secretName": "s", "key": "token"}
    found = raw(
        tmp_path, cluster(authentication={"type": "oauth", "accessToken": secret})
    ).raw["clusters"]["A"]
    url = "sasl_oauthbearer_token_endpoint_url"
    assert found[url] == "file:///etc/mirror/secrets/s/token"
    assert found["security_protocol"] == "SASL_PLAINTEXT"

    login = {
        "type": "oauth",
        "tokenEndpointUri": "https://id/t",
        "clientId": "me",
        "clientSecret": {"secretName": "id", "key": "secret"},
        "scope": "s",
        "audience": "kafka",
        "tlsTrustedCertificates": [{"secretName": "ca", "certificate": "ca.crt"}],
    }
    text = convert(raw(tmp_path, cluster(authentication=login)))
    assert yaml.safe_load(text)["clusters"]["A"] == {
        "bootstrap_servers": ["a:1"],
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauthbearer_client_credentials_client_id": "me",
        "sasl_oauthbearer_client_credentials_client_secret_file": (
            "/etc/mirror/secrets/id/secret"
        ),
        url: "https://id/t",
        "sasl_oauthbearer_scope": "s",
        "sasl_oauthbearer_parameters": {"audience": "kafka"},
        "sasl_oauthbearer_ca_file": "/etc/mirror/secrets/ca/ca.crt",
    }

    one = {"secretName": "one", "certificate": "ca.crt"}
    for certificates, file in (
        ([one], "one/ca.crt"),
        ([{"secretName": "all", "pattern": "*.crt"}], "all"),
        ([one, {"secretName": "two", "certificate": "ca.crt"}], "A-ca"),
    ):
        document = raw(tmp_path, cluster(tls={"trustedCertificates": certificates}))
        trusted = document.raw["clusters"]["A"]["ssl_ca_file"]
        assert trusted == f"/etc/mirror/secrets/{file}"
    assert any("mount the secrets one/ca.crt, two" in w for w in document.warnings)


def test_what_only_people_can_write_is_listed_and_the_rest_converted(
    tmp_path: Path,
) -> None:
    """A vendor's login handler, and secrets that are elsewhere: the conversion has all
    else, and a run refuses the file.
    """
    file = tmp_path / "mm2.properties"
    text = """clusters = A, B
A.bootstrap.servers = a:1
B.bootstrap.servers = b-1.x.c2.kafka.eu-west-1.amazonaws.com:9098
A->B.enabled = true
A->B.topics = orders
A.security.protocol = SASL_SSL
A.sasl.mechanism = OAUTHBEARER
A.sasl.login.callback.handler.class = com.google.cloud.kafka.GcpLoginCallbackHandler
A.sasl.jaas.config = x.OAuthBearerLoginModule required;
B.security.protocol = SASL_SSL
B.sasl.mechanism = AWS_MSK_IAM
B.sasl.jaas.config = software.amazon.msk.auth.iam.IAMLoginModule required;
B.ssl.truststore.location = /nope/trust.jks
B.ssl.truststore.password = ${file:/nope:password}
"""
    file.write_text(text)
    done = CliRunner().invoke(app, ["config", "convert", str(file)])
    assert done.exit_code == 0, done.output
    found = yaml.safe_load(done.stdout)
    assert found["flows"]["A->B"]["topics"] == ["orders"]
    assert found["clusters"]["A"] == {"bootstrap_servers": ["a:1"]}
    amazon = found["clusters"]["B"]
    assert amazon["sasl_token_provider"] == "aws-msk-iam"
    assert amazon["sasl_token_options"] == {"region": "eu-west-1"}
    by_hand = done.stdout.partition("# To be written by hand before it can run:")[2]
    assert "GcpLoginCallbackHandler" in by_hand
    assert "B.ssl.truststore.password: there is no file /nope" in by_hand
    assert "GcpLoginCallbackHandler" in str(java_problems(tmp_path, text))
