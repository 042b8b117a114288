"""OAUTHBEARER in a configuration: one source of tokens, also from Java's files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import yaml

from mirror.config.load import read
from mirror.config.mm2.convert import convert
from tests.harness.configurations import (
    MM2,
    java,
    read_java,
    secret,
)

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.unit

_ID = "sasl_oauthbearer_client_credentials_client"


BASE = f"{MM2}A.security.protocol = SASL_SSL\nA.sasl.mechanism = OAUTHBEARER\n"
LOGIN = "A.sasl.jaas.config = org.apache.kafka.common.security.oauthbearer"
URL = "A.sasl.oauthbearer.token.endpoint.url = https://id/t\n"


def test_what_kafkas_own_handler_is_told(tmp_path: Path) -> None:
    """Options of the login module, and the newer keys, which take precedence."""
    ca = tmp_path / "ca.pem"
    ca.touch()
    login = (
        f'{LOGIN}.OAuthBearerLoginModule required clientId="me" clientSecret="a#b" '
        f'scope="s" ssl.truststore.location="{ca}" extension_logicalCluster="lkc";\n'
    )
    found, warnings = java(tmp_path, BASE + URL + login)
    assert warnings == ()
    assert found.sasl_oauthbearer_token_endpoint_url == "https://id/t"
    assert found.sasl_oauthbearer_client_credentials_client_id == "me"
    assert secret(getattr(found, f"{_ID}_secret")) == "a#b"
    assert found.sasl_oauthbearer_scope == "s"
    assert str(found.sasl_oauthbearer_ca_file) == str(ca)
    assert found.sasl_oauthbearer_extensions == {"logicalCluster": "lkc"}
    found, warnings = java(
        tmp_path,
        BASE + URL + login + "A.sasl.oauthbearer.client.credentials.client.id = newer\n"
        "A.sasl.oauthbearer.client.credentials.client.secret = s3#cret\n"
        "A.sasl.oauthbearer.scope = other\n",
    )
    assert warnings == ()
    assert found.sasl_oauthbearer_client_credentials_client_id == "newer"
    assert secret(getattr(found, f"{_ID}_secret")) == "s3#cret"
    assert found.sasl_oauthbearer_scope == "other"


def test_what_strimzis_handler_is_told(tmp_path: Path) -> None:
    """Its options have their own names; its class needs no warning."""
    found, warnings = java(
        tmp_path,
        BASE + f'{LOGIN}.OAuthBearerLoginModule required oauth.client.id="me" '
        'oauth.client.secret="s" oauth.token.endpoint.uri="https://id/t" '
        'oauth.audience="kafka";\n'
        "A.sasl.login.callback.handler.class = "
        "io.strimzi.kafka.oauth.client.JaasClientOauthLoginCallbackHandler\n",
    )
    assert "mirror logs in by itself" in str(warnings)
    assert found.sasl_oauthbearer_token_endpoint_url == "https://id/t"
    assert found.sasl_oauthbearer_parameters == {"audience": "kafka"}
    found, _ = java(
        tmp_path,
        BASE + f"{LOGIN}.OAuthBearerLoginModule required "
        'oauth.access.token.location="/run/token";\n',
    )
    assert found.sasl_oauthbearer_token_endpoint_url == "file:///run/token"


def test_keys_of_tokens_beside_another_mechanism(tmp_path: Path) -> None:
    """They are ignored with a warning; Java's clients ignore them without one."""
    _, warnings = java(
        tmp_path,
        f"{BASE}A.sasl.mechanism = PLAIN\n"
        'A.sasl.jaas.config = x.PlainLoginModule required username="u" password="p";\n'
        + URL,
    )
    assert "A.sasl.oauthbearer.token.endpoint.url: not used by PLAIN, ignored" in (
        warnings
    )


def test_strimzis_manifest_names_secrets(tmp_path: Path) -> None:
    """Its authentication of type oauth, with the secret as a mounted file."""
    file = tmp_path / "mm2.yaml"
    login = {
        "type": "oauth",
        "tokenEndpointUri": "https://id/t",
        "clientId": "me",
        "clientSecret": {"secretName": "id", "key": "secret"},
        "scope": "s",
        "audience": "kafka",
        "tlsTrustedCertificates": [{"secretName": "ca", "certificate": "ca.crt"}],
    }
    manifest = {
        "kind": "KafkaMirrorMaker2",
        "spec": {
            "clusters": [
                {"alias": "A", "bootstrapServers": "a:1", "authentication": login},
                {"alias": "B", "bootstrapServers": "b:1"},
            ],
            "mirrors": [
                {"sourceCluster": "A", "targetCluster": "B", "sourceConnector": {}}
            ],
        },
    }
    file.write_text(yaml.safe_dump(manifest))
    found = yaml.safe_load(convert(read(file, {})))["clusters"]["A"]
    assert found == {
        "bootstrap_servers": ["a:1"],
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        f"{_ID}_id": "me",
        f"{_ID}_secret_file": "/etc/mirror/secrets/id/secret",
        "sasl_oauthbearer_token_endpoint_url": "https://id/t",
        "sasl_oauthbearer_scope": "s",
        "sasl_oauthbearer_parameters": {"audience": "kafka"},
        "sasl_oauthbearer_ca_file": "/etc/mirror/secrets/ca/ca.crt",
    }


def test_variables_name_the_secret_or_its_file(tmp_path: Path) -> None:
    """A variable for one replaces the file's setting for the other."""
    login = f'{LOGIN}.OAuthBearerLoginModule required clientId="a" clientSecret="b";\n'
    kept = tmp_path / "secret"
    kept.touch()
    variables = {
        f"MIRROR_CLUSTERS__A__{_ID}_secret_file": str(kept),
        "MIRROR_CLUSTERS__A__sasl_oauthbearer_parameters": '{"audience": "x"}',
    }
    config, _ = read_java(tmp_path, BASE + URL + login, **variables)
    found = config.clusters["A"]
    assert secret(getattr(found, f"{_ID}_secret")) is None
    assert found.sasl_oauthbearer_parameters == {"audience": "x"}
