"""Tokens: fetched once, kept, replaced in time, and refused with one clear message."""

from __future__ import annotations

import base64
from concurrent.futures import ThreadPoolExecutor
import json
import time
from typing import TYPE_CHECKING, Any
import uuid

from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    pkcs12,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import SecretStr
import pytest

from mirror.clusters.auth import tokens
from mirror.clusters.auth.tokens import Token, ends_of
from mirror.clusters.wire.handshake import Bearer
from mirror.config.cluster_settings import ClusterConfig
from mirror.errors import AuthenticationError
from mirror.playground.certificates import LOCAL_HOSTS, CertificateAuthority
from tests.harness.identity_provider import CLIENT, SECRET, IdentityProvider

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.unit

_CREDENTIALS = "sasl_oauthbearer_client_credentials_client"


def cluster(**settings: Any) -> ClusterConfig:
    """A cluster that shares no token with other tests."""
    return ClusterConfig(
        alias=f"c{uuid.uuid4().hex[:8]}",
        bootstrap_servers="127.0.0.1:1",
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        **settings,
    )


def client(provider: IdentityProvider, **settings: Any) -> ClusterConfig:
    return cluster(
        **{
            "sasl_oauthbearer_token_endpoint_url": provider.url,
            f"{_CREDENTIALS}_id": CLIENT,
            f"{_CREDENTIALS}_secret": SECRET,
            **settings,
        }
    )


@pytest.fixture
def provider() -> Iterator[IdentityProvider]:
    with IdentityProvider() as made:
        yield made


def refused(config: ClusterConfig) -> str:
    with pytest.raises(AuthenticationError) as caught:
        tokens.token_of(config)
    text = str(caught.value)
    assert SECRET not in text
    assert text.startswith(f"cluster {config.alias}: ")
    return text


def test_what_an_endpoint_refuses_is_said_with_its_setting(
    provider: IdentityProvider,
) -> None:
    """For a wrong secret, a wrong address, or an endpoint that fails, is slow or gone,
    the message names the setting to check and quotes the endpoint.
    """
    wrong = refused(client(provider, **{f"{_CREDENTIALS}_secret": "wrong"}))
    assert "answered 401: invalid_client: who?" in wrong
    assert f"{_CREDENTIALS}_id 'mirror', its secret" in wrong
    for status, words in {
        503: "answered 503: temporarily_unavailable",
        302: "must be the address of the token endpoint",
        404: "must be the address of the token endpoint",
    }.items():
        provider.failing = status
        assert words in refused(client(provider))
    provider.failing, provider.slow = 0, 0.5
    slow = client(provider, sasl_oauthbearer_timeout_seconds=0.1)
    assert "does not answer: no answer in time" in refused(slow)
    gone = "http://127.0.0.1:1/token"
    assert f"{gone} does not answer: " in refused(
        client(provider, sasl_oauthbearer_token_endpoint_url=gone)
    )


@pytest.fixture
def over_tls(tmp_path: Path) -> Iterator[tuple[IdentityProvider, str]]:
    """With a certificate of the authority beside it, in PEM."""
    authority, bundle = CertificateAuthority(), tmp_path / "id.pem"
    bundle.write_text(authority.issue("id", hosts=LOCAL_HOSTS).bundle_pem)
    with IdentityProvider(bundle=bundle) as made:
        yield made, authority.pem


def test_an_endpoint_must_show_a_certificate_of_the_right_authority(
    over_tls: tuple[IdentityProvider, str], tmp_path: Path
) -> None:
    """Over TLS a token comes with the endpoint's CA, and with no other."""
    provider, authority = over_tls
    (tmp_path / "ca.pem").write_text(authority)
    (tmp_path / "other.pem").write_text(CertificateAuthority("other").pem)
    wrong = client(provider, sasl_oauthbearer_ca_file=tmp_path / "other.pem")
    assert "sasl_oauthbearer_ca_file must contain the CA" in refused(wrong)
    lost = client(provider, sasl_oauthbearer_ca_file=tmp_path / "none.pem")
    assert "sasl_oauthbearer_ca_file cannot be used" in refused(lost)
    right = client(provider, sasl_oauthbearer_ca_file=tmp_path / "ca.pem")
    assert tokens.token_of(right).count(".") == 2


@pytest.mark.parametrize("proxy", ["socks5://127.0.0.1:1", "gopher://127.0.0.1:1"])
def test_a_proxy_that_cannot_be_used_is_said(
    provider: IdentityProvider, monkeypatch: pytest.MonkeyPatch, proxy: str
) -> None:
    """It comes from the environment; the message has the endpoint and the reason."""
    monkeypatch.setenv("ALL_PROXY", proxy)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    assert "proxy" in refused(client(provider)).lower()


def test_a_corrected_password_of_the_trust_store_counts(
    over_tls: tuple[IdentityProvider, str], tmp_path: Path
) -> None:
    """After a reload the new password is used, not the first one."""
    (provider, authority), store = over_tls, tmp_path / "ca.p12"
    trusted = x509.load_pem_x509_certificate(authority.encode())
    store.write_bytes(
        pkcs12.serialize_key_and_certificates(
            b"ca", None, None, [trusted], BestAvailableEncryption(b"right")
        )
    )
    first = client(
        provider, sasl_oauthbearer_ca_file=store, sasl_oauthbearer_ca_password="wrong"
    )
    assert "this password does not open" in refused(first)
    right = {"sasl_oauthbearer_ca_password": SecretStr("right")}
    assert tokens.token_of(first.model_copy(update=right))


def test_a_token_that_has_ended_is_not_shown_to_brokers(
    provider: IdentityProvider, tmp_path: Path
) -> None:
    """From an endpoint, a file or a function, it is refused here, with its age."""
    provider.lives = -30
    assert "expired 3" in refused(client(provider))
    (tmp_path / "token").write_text(provider.token())
    text = refused(
        cluster(sasl_oauthbearer_token_endpoint_url=f"file://{tmp_path}/token")
    )
    assert "contains a token that expired" in text
    ended = cluster(
        sasl_token_provider="tests-gives",
        sasl_token_options={"what": ["t", time.time() - 60]},
    )
    assert "returned a token that expired 60 s ago" in refused(ended)


def test_one_request_serves_all_who_wait(provider: IdentityProvider) -> None:
    """Many connections at once cost one request, with all that was set."""
    provider.slow = 0.1
    config = client(
        provider,
        sasl_oauthbearer_scope="kafka read",
        sasl_oauthbearer_parameters={"audience": "kafka"},
    )
    with ThreadPoolExecutor(8) as pool:
        got = set(pool.map(tokens.token_of, [config] * 8))
    assert len(got) == 1
    assert provider.asked == [
        {
            "grant_type": "client_credentials",
            "scope": "kafka read",
            "audience": "kafka",
        }
    ]


def test_the_old_token_serves_while_no_new_one_can_be_had() -> None:
    """A token is replaced at four fifths of its lifetime; if that fails, it serves
    until it expires.
    """
    made: list[Token] = []
    failing = False

    def fetch() -> Token:
        if failing:
            raise AuthenticationError("no endpoint")
        now = time.time()
        begins, ends = now - 8.5, now + 1.5  # young at first, due for another now
        made.append(Token(text=f"t{len(made)}", made_at=begins, ends_at=ends))
        return made[-1]

    kept = tokens.KeptToken(fetch, alias="A")
    assert kept.get() == "t0"
    assert kept.get() == "t1"
    failing = True
    assert kept.get() == "t1"
    time.sleep(1.6)
    with pytest.raises(AuthenticationError, match="no endpoint"):
        kept.get()
    failing = False
    with pytest.raises(AuthenticationError, match="no endpoint"):
        kept.get()  # no second request right away
    time.sleep(1.1)
    assert kept.get() == "t2"


def test_a_refused_token_is_not_shown_again(provider: IdentityProvider) -> None:
    """Once brokers refused it, a new one is requested."""
    config = client(provider)
    first = tokens.token_of(config)
    assert tokens.token_of(config) == first
    provider.subject = "other"
    tokens.forget(config)
    assert tokens.token_of(config) != first
    assert len(provider.asked) == 2


def test_a_rotated_secret_is_read_with_the_next_token(
    provider: IdentityProvider, tmp_path: Path
) -> None:
    """A secret in a file may change while the service runs."""
    secret = tmp_path / "secret"
    secret.write_text(f"{SECRET}\n")
    config = client(
        provider,
        **{f"{_CREDENTIALS}_secret": None, f"{_CREDENTIALS}_secret_file": secret},
    )
    tokens.token_of(config)
    provider.secret = "next"
    tokens.forget(config)
    assert "invalid_client" in refused(config)
    secret.write_text("next")
    tokens.forget(config)
    assert tokens.token_of(config)
    secret.write_text("")
    tokens.forget(config)
    assert "is empty" in refused(config)


def test_how_long_a_token_lives(provider: IdentityProvider) -> None:
    """The endpoint's lifetime or the token's own, whichever is shorter."""
    endpoint, now = tokens.endpoint_of(client(provider)), time.time()
    assert tokens.request_token(endpoint).ends_at == pytest.approx(now + 300, abs=5)
    provider.tells_lifetime, provider.lives = False, 1000
    assert tokens.request_token(endpoint).ends_at == pytest.approx(now + 1000, abs=5)


def gives(what: Any) -> Any:
    """A user's provider."""
    if what == "fails":
        raise RuntimeError("no credentials\nand more")
    return what


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("nobodys", {}, "is not registered here; there is aws-msk-iam, tests-fetch"),
        ("aws-msk-iam", {"region": "r"}, "pip install aws-msk-iam-sasl-signer-python"),
        ("aws-msk-iam", {"region": "r", "role_arn": "a", "profile": "p"}, "keep one"),
        ("tests-nowhere", {}, "cannot be imported: ModuleNotFoundError"),
        ("tests-lacks", {}, "cannot be imported: AttributeError"),
        ("tests-gives", {}, "failed: TypeError"),
        ("tests-gives", {"what": "fails"}, "RuntimeError: no cred"),
        ("tests-gives", {"what": "token"}, "returned str instead of a pair"),
        ("tests-gives", {"what": ["", 5]}, "returned list instead of a pair"),
        ("tests-gives", {"what": ["t", "5"]}, "instead of a pair"),
    ],
)
def test_a_provider_that_does_not_work_says_why(
    name: str, options: dict[str, Any], words: str
) -> None:
    """One line each, with the setting and the provider's name."""
    config = cluster(sasl_token_provider=name, sasl_token_options=options)
    assert words in refused(config)


@pytest.mark.parametrize("way", ["seconds", "epoch seconds", "epoch milliseconds"])
def test_a_provider_says_the_end_in_one_of_three_ways(way: str) -> None:
    """A lifetime, or an expiry time; Amazon's signer returns milliseconds."""
    now = time.time()
    end = {
        "seconds": 900,
        "epoch seconds": now + 900,
        "epoch milliseconds": int((now + 900) * 1000),
    }[way]
    config = cluster(
        sasl_token_provider="tests-gives",
        sasl_token_options={"what": ("t", end)},
    )
    token = tokens.ask_provider(config)
    assert token.text == "t"
    assert token.ends_at == pytest.approx(now + 900, abs=30)


def test_a_token_in_a_file_is_read_again_each_time(
    provider: IdentityProvider, tmp_path: Path
) -> None:
    """Kubernetes renews the tokens of service accounts in such files."""
    file = tmp_path / "a token"
    url = f"file://{tmp_path}/a%20token"
    config = cluster(sasl_oauthbearer_token_endpoint_url=url)
    assert "cannot be read" in refused(config)
    for text in (provider.token(), "opaque"):
        file.write_text(f"{text}\n")
        assert tokens.token_of(config) == text


@settings(max_examples=50)
@given(st.text() | st.binary().map(lambda raw: raw.decode("latin-1")))
def test_no_text_breaks_the_look_into_a_token(text: str) -> None:
    """Tokens are opaque: any text has either no expiry time or a number."""
    raw = base64.urlsafe_b64encode(text.encode("utf-8", "replace")).decode()
    for each in (text, f"a.{text}.b", f"a.{raw}.b"):
        assert ends_of(each) is None or isinstance(ends_of(each), float)


def test_the_end_is_read_without_padding() -> None:
    """From a JWT, with fractions or without, whatever its length."""
    for end in (1, 12.5, 1_800_000_000):
        for filling in ("", "a", "ab", "abc"):
            claims = json.dumps({"exp": end, "x": filling}).encode()
            text = base64.urlsafe_b64encode(claims).decode().rstrip("=")
            assert ends_of(f"e30.{text}.s") == end


def test_the_exchange_of_rfc_7628() -> None:
    """Extensions are sent; a broker's refusal is kept and answered with one byte."""
    exchange = Bearer("abc", {"logicalCluster": "lkc-1"})
    assert exchange.auth_bytes() == (
        b"n,,\x01auth=Bearer abc\x01logicalCluster=lkc-1\x01\x01"
    )
    exchange.receive(b'{"status":"invalid_token","scope":"kafka"}')
    assert not exchange.is_done()
    assert exchange.auth_bytes() == b"\x01"
    assert exchange.said == "invalid_token, kafka"
    with pytest.raises(ValueError, match="invalid_token"):
        exchange.receive(b"")
    happy = Bearer("abc", {})
    assert happy.auth_bytes() == b"n,,\x01auth=Bearer abc\x01\x01"
    happy.receive(b"")
    assert happy.is_done()
