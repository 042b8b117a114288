"""OAUTHBEARER and Kerberos in MirrorMaker 2's file: what login modules are told."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mirror.config.load import load, read
from mirror.config.mm2.convert import convert
from tests.harness.configurations import MM2, java, read_java, secret

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.unit

_SECRET = "sasl_oauthbearer_client_credentials_client_secret"

TOKENS = f"{MM2}A.security.protocol = SASL_SSL\nA.sasl.mechanism = OAUTHBEARER\n"
LOGIN = "A.sasl.jaas.config = org.apache.kafka.common.security.oauthbearer"
URL = "A.sasl.oauthbearer.token.endpoint.url = https://id/t\n"
KERBEROS = f"{MM2}A.security.protocol = SASL_PLAINTEXT\n"
KRB5 = "A.sasl.jaas.config = com.sun.security.auth.module.Krb5LoginModule required"


def test_what_kafkas_own_handler_is_told(tmp_path: Path) -> None:
    """Options of the login module, and the newer keys, which take precedence."""
    ca = tmp_path / "ca.pem"
    ca.touch()
    login = (
        f'{LOGIN}.OAuthBearerLoginModule required clientId="me" clientSecret="a#b" '
        f'scope="s" ssl.truststore.location="{ca}" extension_logicalCluster="lkc";\n'
    )
    found, warnings = java(tmp_path, TOKENS + URL + login)
    assert warnings == ()
    assert found.sasl_oauthbearer_token_endpoint_url == "https://id/t"
    assert found.sasl_oauthbearer_client_credentials_client_id == "me"
    assert secret(getattr(found, _SECRET)) == "a#b"
    assert found.sasl_oauthbearer_scope == "s"
    assert str(found.sasl_oauthbearer_ca_file) == str(ca)
    assert found.sasl_oauthbearer_extensions == {"logicalCluster": "lkc"}
    found, warnings = java(
        tmp_path,
        TOKENS
        + URL
        + login
        + "A.sasl.oauthbearer.client.credentials.client.id = newer\n"
        "A.sasl.oauthbearer.client.credentials.client.secret = s3#cret\n"
        "A.sasl.oauthbearer.scope = other\n",
    )
    assert warnings == ()
    assert found.sasl_oauthbearer_client_credentials_client_id == "newer"
    assert secret(getattr(found, _SECRET)) == "s3#cret"
    assert found.sasl_oauthbearer_scope == "other"


def test_what_strimzis_handler_is_told(tmp_path: Path) -> None:
    """Its options have their own names; its class needs no warning."""
    found, warnings = java(
        tmp_path,
        TOKENS + f'{LOGIN}.OAuthBearerLoginModule required oauth.client.id="me" '
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
        TOKENS + f"{LOGIN}.OAuthBearerLoginModule required "
        'oauth.access.token.location="/run/token";\n',
    )
    assert found.sasl_oauthbearer_token_endpoint_url == "file:///run/token"


def test_variables_name_the_secret_or_its_file(tmp_path: Path) -> None:
    """A variable for one replaces the file's setting for the other."""
    login = f'{LOGIN}.OAuthBearerLoginModule required clientId="a" clientSecret="b";\n'
    kept = tmp_path / "secret"
    kept.touch()
    variables = {
        f"MIRROR_CLUSTERS__A__{_SECRET}_file": str(kept),
        "MIRROR_CLUSTERS__A__sasl_oauthbearer_parameters": '{"audience": "x"}',
    }
    config, _ = read_java(tmp_path, TOKENS + URL + login, **variables)
    found = config.clusters["A"]
    assert secret(getattr(found, _SECRET)) is None
    assert found.sasl_oauthbearer_parameters == {"audience": "x"}


@pytest.mark.parametrize("scheme", ["", "file:", "FILE:", "file://"])
def test_what_javas_login_module_is_told(tmp_path: Path, scheme: str) -> None:
    """Keytab, principal and service come from the login as guides write it; GSSAPI is
    Java's mechanism where a file names none. `convert` writes the same.
    """
    text = (
        f"{KRB5} useKeyTab=true storeKey=true useTicketCache=false \\\n"
        f'  keyTab="{scheme}{__file__}" principal="mirror/site@EXAMPLE.COM" \\\n'
        '  serviceName="broker";\n'
    )
    found, warnings = java(tmp_path, KERBEROS + text)

    assert warnings == ()
    assert found.sasl_mechanism == "GSSAPI"
    assert found.sasl_kerberos_principal == "mirror/site@EXAMPLE.COM"
    assert str(found.sasl_kerberos_keytab_file) == __file__
    assert found.sasl_kerberos_service_name == "broker"
    written = tmp_path / "mirror.yaml"
    written.write_text(convert(read(tmp_path / "mm2.properties", environ={})))
    again, _ = load(written, environ={})
    assert again.clusters["A"] == found


def test_the_service_has_a_key_of_its_own(tmp_path: Path) -> None:
    """`sasl.kerberos.service.name` may name it instead; the other keys about tickets
    are answered.
    """
    found, warnings = java(
        tmp_path,
        KERBEROS + f'{KRB5} useKeyTab=true keyTab="{__file__}" principal="m@R";\n'
        "A.sasl.mechanism = GSSAPI\nA.sasl.kerberos.service.name = broker\n"
        "A.sasl.kerberos.ticket.renew.jitter = 0.1\n",
    )
    assert found.sasl_kerberos_service_name == "broker"
    assert warnings == (
        (
            "A.sasl.kerberos.ticket.renew.jitter: not needed, ignored: libkrb5 renews "
            "tickets from the keytab, at half of their life"
        ),
    )


@pytest.mark.parametrize(
    "key", ["sasl.kerberos.service.name", "sasl.oauthbearer.token.endpoint.url"]
)
def test_keys_that_another_mechanism_does_not_use(tmp_path: Path, key: str) -> None:
    """They are ignored with a warning; Java's clients ignore them without one."""
    login = 'x.PlainLoginModule required username="u" password="p";'
    lines = f"A.sasl.mechanism = PLAIN\nA.sasl.jaas.config = {login}\nA.{key} = x\n"
    _, warnings = java(tmp_path, KERBEROS + lines)
    assert warnings == (f"A.{key}: not used by PLAIN, ignored",)
