"""How the client proves who it is, against a real registry that asks for it.

Secrets are in files, which change while the client goes on: the next request has the
new one.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
import pytest

from mirror.errors import AuthenticationError, RegistryError
from mirror.playground.certificates import CertificateAuthority
from mirror.schemas.registry.values import Mode, Subject
from tests.harness.identity_provider import AUDIENCE, CLIENT, SECRET, IdentityProvider
from tests.harness.registries import Witness, axonops_here, registry
from tests.harness.stores import STORE_PASSWORD, Stores

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.integration, pytest.mark.needs("registry")]

USER, PASSWORD = "mirror", "Registry-secret-1: with \u00fc"
GLOBAL = Subject("", "")


@pytest.fixture
def password(tmp_path: Path) -> Path:
    file = tmp_path / "password"
    file.write_text(f"{PASSWORD}\n")
    return file


@pytest.fixture
def basic(tmp_path: Path) -> Iterator[str]:
    """A registry with one user."""
    first = {"enabled": True, "username": USER, "password": PASSWORD}
    auth = {"enabled": True, "methods": ["basic"], "bootstrap": first}
    with axonops_here(tmp_path / "registry", auth=auth) as one:
        yield one.url


def test_a_password_is_read_for_each_request(basic: str, password: Path) -> None:
    """A wrong password is refused by name, and the right one in the same file serves
    the same client; without a login the error says what to set. No message shows it.
    """
    pair = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    witness = Witness(basic, {"Authorization": f"Basic {pair}"})
    assert witness.get("/mode") == {"mode": "READWRITE"}
    with registry(basic, username=USER, password_file=password) as client:
        client.set_mode(Subject("", "orders"), Mode.IMPORT)
        assert witness.get("/mode/orders") == {"mode": "IMPORT"}
        password.write_text("Wrong-secret-2")
        with pytest.raises(RegistryError, match=r"schema_registry\.username") as error:
            client.mode(GLOBAL)
        assert error.value.status == 401
        assert not error.value.retriable
        assert "secret" not in str(error.value)
        password.write_text(PASSWORD)
        assert client.mode(GLOBAL) is Mode.READWRITE
        password.unlink()
        with pytest.raises(AuthenticationError, match="password_file cannot be read"):
            client.mode(GLOBAL)
    with (
        registry(basic) as client,
        pytest.raises(RegistryError, match="it asks for a login"),
    ):
        client.mode(GLOBAL)


def test_tokens_from_a_file_and_from_an_endpoint(tmp_path: Path) -> None:
    """A bearer token is read for each request; with client credentials mirror fetches
    tokens itself, and another one when the registry no longer takes the last.
    """
    with IdentityProvider() as provider:
        key = tmp_path / "key.pem"
        public = provider.key._private.public_key()
        key.write_bytes(
            public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        )
        jwt = {
            "issuer": "test", "audience": AUDIENCE, "public_key_file": str(key),
            "algorithm": "RS256",
        }  # fmt: skip
        auth = {"enabled": True, "methods": ["jwt"], "jwt": jwt}
        file, secret = tmp_path / "token", tmp_path / "secret"
        secret.write_text(SECRET)
        with axonops_here(tmp_path / "registry", auth=auth) as one:
            file.write_text(provider.token(lives=-60))
            with registry(one.url, token_file=file) as client:
                with pytest.raises(RegistryError, match="token_file must hold"):
                    client.mode(GLOBAL)
                file.write_text(provider.token())
                assert client.mode(GLOBAL) is Mode.READWRITE
            oauth: dict[str, Any] = {
                "oauth_token_endpoint_url": provider.url,
                "oauth_client_id": CLIENT,
                "oauth_client_secret_file": secret,
                "oauth_scope": "registry",
            }
            with registry(one.url, **oauth) as client:
                provider.audience = "elsewhere"
                with pytest.raises(RegistryError, match="check its scope and audience"):
                    client.mode(GLOBAL)
                provider.audience = AUDIENCE
                assert client.mode(GLOBAL) is Mode.READWRITE
                asked = len(provider.asked)
                assert client.mode(GLOBAL) is Mode.READWRITE
                assert len(provider.asked) == asked, "a good token is kept"
            assert provider.asked[-1]["scope"] == "registry"
            secret.write_text("wrong")
            oauth["oauth_scope"] = "another"
            with (
                registry(one.url, **oauth) as client,
                pytest.raises(
                    AuthenticationError, match=r"schema_registry\.oauth_client_id"
                ),
            ):
                client.mode(GLOBAL)


def test_certificates_in_pem(tmp_path: Path) -> None:
    """Mutual TLS with PEM files; a registry that is not trusted is named, and a
    certificate that replaces the old one in its file serves the same client.
    """
    ours, theirs = CertificateAuthority("ours"), CertificateAuthority("theirs")
    server, client_side = ours.issue("registry"), ours.issue("mirror")
    files = {
        "ca.pem": ours.pem,
        "other-ca.pem": theirs.pem,
        "server.pem": server.chain_pem,
        "server.key": server.key_pem,
        "client.pem": theirs.issue("mirror").bundle_pem,
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    tls = _tls(tmp_path, key="server.key")
    with axonops_here(tmp_path / "registry", tls=tls) as one:
        trusted = {"ssl_ca_file": tmp_path / "ca.pem"}
        own = tmp_path / "client.pem"
        with registry(one.url, **trusted, ssl_certificate_file=own) as client:
            with pytest.raises(RegistryError, match="does not answer"):
                client.mode(GLOBAL)
            own.write_text(client_side.bundle_pem)
            assert client.mode(GLOBAL) is Mode.READWRITE
        with (
            registry(one.url, ssl_ca_file=tmp_path / "other-ca.pem") as client,
            pytest.raises(RegistryError, match="ssl_ca_file must contain") as error,
        ):
            client.mode(GLOBAL)
        assert not error.value.retriable


@pytest.mark.parametrize("kind", ["JKS", "PKCS12"])
def test_certificates_in_stores(tmp_path: Path, kind: str) -> None:
    """Mutual TLS with a trust store and a key store that keytool made; a wrong password
    of either is refused, and a trust store of another authority names the setting.
    """
    stores = Stores(tmp_path)
    trust, keys = stores.make(kind)
    good = {
        "ssl_ca_file": trust,
        "ssl_ca_password": STORE_PASSWORD,
        "ssl_certificate_file": keys,
        "ssl_certificate_password": STORE_PASSWORD,
    }
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    other, _ = Stores(elsewhere).make(kind)
    tls = _tls(tmp_path, key="server.pem")
    with axonops_here(tmp_path / "registry", tls=tls) as one:
        with registry(one.url, **good) as client:
            assert client.mode(GLOBAL) is Mode.READWRITE
        for wrong in ("ssl_ca_password", "ssl_certificate_password"):
            with (
                registry(one.url, **{**good, wrong: "wr0ng"}) as client,
                pytest.raises(AuthenticationError, match="does not open") as caught,
            ):
                client.mode(GLOBAL)
            assert "wr0ng" not in str(caught.value)
        with (
            registry(one.url, **{**good, "ssl_ca_file": other}) as client,
            pytest.raises(RegistryError, match="ssl_ca_file must contain"),
        ):
            client.mode(GLOBAL)


def _tls(folder: Path, *, key: str) -> dict[str, Any]:
    """A registry that shows `server.pem` and asks for a certificate by `ca.pem`."""
    return {
        "enabled": True, "cert_file": str(folder / "server.pem"),
        "key_file": str(folder / key), "ca_file": str(folder / "ca.pem"),
        "client_auth": "verify",
    }  # fmt: skip
