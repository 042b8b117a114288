"""Logins in MirrorMaker 2's file: users by cluster, by flow and by client, and what the
login modules of OAUTHBEARER and Kerberos are told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mirror.config.load import load, read
from mirror.config.mm2.convert import convert
from tests.harness.configurations import MM2, java, java_problems, read_java, secret

if TYPE_CHECKING:
    from pathlib import Path

    from mirror.config.schema import MirrorConfig

pytestmark = pytest.mark.unit

BASE = f"{MM2}security.protocol = SASL_SSL\nsasl.mechanism = SCRAM-SHA-512\n"
JAAS = "sasl.jaas.config"
LOGIN = (
    f"{JAAS} = org.apache.kafka.common.security.scram.ScramLoginModule required "
    'username="{0}" password="of-{0}";\n'
)


def login(place: str, user: str) -> str:
    """The line that names a user there; a place ends in a dot."""
    return place + LOGIN.format(user)


BY_FLOW = (
    login("A->B.source.consumer.", "reader")
    + login("A->B.source.admin.", "admin")
    + login("A->B.producer.override.", "writer")
    + login("A->B.target.admin.", "chief")
)


def loaded(folder: Path, *lines: str) -> tuple[MirrorConfig, tuple[str, ...]]:
    return read_java(folder, BASE + "".join(lines))


def users(config: MirrorConfig) -> dict[str, str | None]:
    """Whom each entry logs in as."""
    return {alias: each.sasl_username for alias, each in config.clusters.items()}


def test_a_flow_names_a_user_for_each_purpose(tmp_path: Path) -> None:
    """Tasks log in as the flow's consumer and producer, everything else as its admins;
    the entry that they use reaches the same brokers in the same way. Nothing is left
    to say, and nothing shows a password.
    """
    config, warnings = loaded(tmp_path, BY_FLOW)

    assert warnings == ()
    assert users(config) == {
        "A": "admin", "B": "chief", "A-reader": "reader", "B-writer": "writer"
    }  # fmt: skip
    flow = config.flows["A->B"]
    assert (flow.source_login, flow.target_login) == ("A-reader", "B-writer")
    reader = config.clusters["A-reader"]
    assert reader.bootstrap_servers == config.clusters["A"].bootstrap_servers
    assert reader.security_protocol == "SASL_SSL"
    assert secret(reader.sasl_password) == "of-reader"
    assert "of-reader" not in repr(config)

    text = convert(read(tmp_path / "mm2.properties", {}))
    assert "of-" not in text
    assert "MIRROR_CLUSTERS__A_reader__sasl_password" in text
    (converted := tmp_path / "mirror.yaml").write_text(text)
    given = {
        f"MIRROR_CLUSTERS__{alias}__sasl_password": f"of-{user}"
        for alias, user in users(config).items()
    }
    assert load(converted, environ=given)[0] == config


@pytest.mark.parametrize(
    ("lines", "own", "reader", "writer"),
    [
        ([("A.", "a"), ("B.", "b")], ("a", "b"), None, None),
        ([("", "all")], ("all", "all"), None, None),
        ([("", "all"), ("A.consumer.", "r")], ("all", "all"), "r", None),
        ([("", "all"), ("B.producer.", "w")], ("all", "all"), None, "w"),
        ([("", "all"), ("B.admin.", "b")], ("all", "b"), None, "all"),
        ([("", "all"), ("A->B.admin.", "x")], ("x", "x"), "all", "all"),
        ([("", "all"), ("A->B.consumer.", "r")], ("all", "all"), "r", None),
        ([("", "all"), ("A->B.source.cluster.", "s")], ("s", "all"), None, None),
        # Connect's own producer does not go by what the flow says of other clients.
        ([("", "all"), ("A->B.target.cluster.", "t")], ("all", "t"), None, "all"),
        ([("A.", "a"), ("A->B.target.cluster.", "t")], ("a", "t"), None, None),
        ([("A.", "a"), ("A->B.target.producer.", "t")], ("a", "t"), None, None),
        # What the client's key says of the flow goes before what it says of a cluster.
        (
            [("", "all"), ("A.consumer.", "r"), ("A->B.source.consumer.", "s")],
            ("all", "all"), "s", None,
        ),
        (
            [("", "all"), ("A->B.consumer.", "r"), ("A.consumer.", "s")],
            ("all", "all"), "s", None,
        ),
        # Without a user for administration it is the one who reads, or writes.
        ([("A.consumer.", "r"), ("B.producer.", "w")], ("r", "w"), None, None),
    ],
)  # fmt: skip
def test_what_goes_before_what(
    tmp_path: Path,
    lines: list[tuple[str, str]],
    own: tuple[str, str],
    reader: str | None,
    writer: str | None,
) -> None:
    """As in MirrorMaker 2, a client's key goes before its cluster's, a flow's before
    both, and the producer of records is the one of the target's worker.
    """
    config, _ = loaded(tmp_path, *(login(place, user) for place, user in lines))

    named = users(config)
    assert (named["A"], named["B"]) == own
    assert named.get("A-reader") == reader
    assert named.get("B-writer") == writer


def test_one_cluster_has_one_user_for_administration(tmp_path: Path) -> None:
    """Flows with other admins on one cluster are refused, and A.admin, which they
    share, is the way out; flows with other readers are not. A flow that is off does not
    count.
    """
    more = "C.bootstrap.servers = c1:9092\nA->C.enabled = true\n"
    base = BASE.replace("A, B", "A, B, C") + more + login("", "all")
    of_flow = login("A->B.source.admin.", "other")

    (said,) = java_problems(tmp_path, base + of_flow)
    assert said == (
        f"A->B.source.admin.{JAAS} and {JAAS}: mirror administers A in one way for all "
        f"flows, and flows differ here; write A.admin.{JAAS} alone"
    )
    off = base.replace("A->C.enabled = true", "A->C.enabled = false")
    for text in (off + of_flow, base + login("A.admin.", "other")):
        assert users(read_java(tmp_path, text)[0])["A"] == "other"

    readers = ("A->B.source.consumer.", "to-b"), ("A->C.source.consumer.", "to-c")
    config, _ = read_java(tmp_path, base + "".join(login(*each) for each in readers))
    assert users(config) == {
        "A": "all", "B": "all", "C": "all", "A-reader": "to-b", "A-reader-2": "to-c"
    }  # fmt: skip
    assert config.flows["A->C"].source_login == "A-reader-2"


@pytest.mark.parametrize(
    "place",
    [
        *("A.producer.", "B.consumer.", "A->B.source.producer."),
        *("A->B.target.consumer.", "A->B.target.producer.", "A->B.producer."),
    ],
)
def test_what_other_clients_log_in_as_is_answered(tmp_path: Path, place: str) -> None:
    """MirrorMaker 2's other clients have no counterpart: one message names the key that
    counts, none where it says the same.
    """
    _, (said,) = loaded(tmp_path, login("", "all"), login(place, "other"))
    assert said == (
        f"{place}{JAAS}: not needed, ignored: mirror does the work of this client as "
        f"{JAAS} says"
    )
    assert loaded(tmp_path, login("", "all"), login(place, "all"))[1] == ()


def test_the_key_that_counts_is_named(tmp_path: Path) -> None:
    """A key that another one goes before is answered with that one."""
    lines = (("A.consumer.", "one"), ("A->B.source.consumer.", "two"))
    _, (said,) = loaded(tmp_path, *(login(*each) for each in (("", "all"), *lines)))
    assert said == (
        f"A.consumer.{JAAS}: not needed, ignored: mirror does the work of this client "
        f"as A->B.source.consumer.{JAAS} says"
    )


_SECRET = "sasl_oauthbearer_client_credentials_client_secret"

TOKENS = f"{MM2}A.security.protocol = SASL_SSL\nA.sasl.mechanism = OAUTHBEARER\n"
OAUTH = "A.sasl.jaas.config = org.apache.kafka.common.security.oauthbearer"
URL = "A.sasl.oauthbearer.token.endpoint.url = https://id/t\n"
KERBEROS = f"{MM2}A.security.protocol = SASL_PLAINTEXT\n"
KRB5 = "A.sasl.jaas.config = com.sun.security.auth.module.Krb5LoginModule required"


def test_what_kafkas_own_handler_is_told(tmp_path: Path) -> None:
    """Options of the login module, and the newer keys, which take precedence."""
    ca = tmp_path / "ca.pem"
    ca.touch()
    login = (
        f'{OAUTH}.OAuthBearerLoginModule required clientId="me" clientSecret="a#b" '
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
        TOKENS + f'{OAUTH}.OAuthBearerLoginModule required oauth.client.id="me" '
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
        TOKENS + f"{OAUTH}.OAuthBearerLoginModule required "
        'oauth.access.token.location="/run/token";\n',
    )
    assert found.sasl_oauthbearer_token_endpoint_url == "file:///run/token"


def test_variables_name_the_secret_or_its_file(tmp_path: Path) -> None:
    """A variable for one replaces the file's setting for the other."""
    login = f'{OAUTH}.OAuthBearerLoginModule required clientId="a" clientSecret="b";\n'
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
