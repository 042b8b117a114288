"""Commands that ask the service: how they authenticate, and what they reveal."""

from __future__ import annotations

from contextlib import contextmanager
import http.server
import threading
from typing import TYPE_CHECKING, Any

import pytest

from mirror.config.service_settings import HttpSettings
from mirror.observing.server import StatusServer
from mirror.playground.certificates import CertificateAuthority
from mirror.status.store import StatusStore
from tests.harness.commands import config_file, mirror

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


pytestmark = pytest.mark.unit

TOKEN = "t0ken"


@contextmanager
def service(folder: Path, **settings: Any) -> Iterator[tuple[str, Path]]:
    """A server, its address, and a configuration that describes it."""
    access = HttpSettings.model_validate(settings)
    with StatusServer(StatusStore(("A->B",)), "127.0.0.1", 0, access=access) as server:
        port = int(server.url.rpartition(":")[2])
        yield server.url, config_file(folder, service={"http_port": port, **settings})


def test_a_token_is_shown(tmp_path: Path):
    """With the token's file, by option or variable, or with the configuration, every
    command that asks gets its answer; without, one sentence says what to do.
    """
    secret = tmp_path / "token"
    secret.write_text(f"{TOKEN}\n")
    with service(tmp_path, http_token_file=str(secret)) as (url, config):
        for command in ("status", "lag", "topology"):
            refused = mirror(command, "-u", url)
            assert refused.exit_code == 1
            assert "--token-file" in refused.stderr
            assert len(refused.stderr.splitlines()) == 1
            for let_in in (
                mirror(command, "-u", url, "--token-file", secret),
                mirror(command, "-u", url, MIRROR_TOKEN_FILE=str(secret)),
                mirror(command, "-c", config),
            ):
                assert let_in.exit_code == 0, let_in.stderr
        missing = mirror("status", "-u", url, "--token-file", tmp_path / "none")
    assert missing.exit_code == 1
    assert "cannot be read" in missing.stderr


def test_a_token_may_have_any_character_of_a_header(tmp_path: Path):
    """A command may have a token with letters outside ASCII."""
    secret = tmp_path / "token"
    secret.write_text("gehe\u00efm", encoding="utf-8")
    with service(tmp_path, http_token_file=str(secret)) as (url, _):
        let_in = mirror("status", "-u", url, "--token-file", secret)
    assert let_in.exit_code == 0, let_in.stderr


@pytest.mark.parametrize("text", [f"{TOKEN}\nmore", f"{TOKEN}\u20ac"])
def test_a_useless_token_is_refused_and_not_printed(tmp_path: Path, text: str):
    """A token file that does not fit into a header is refused without its content."""
    secret = tmp_path / "token"
    secret.write_text(text, encoding="utf-8")
    refused = mirror("status", "-u", "http://127.0.0.1:1", "--token-file", secret)
    assert refused.exit_code == 1
    assert "the token for http://127.0.0.1:1 has a line break" in refused.stderr
    assert TOKEN not in refused.stderr


def test_a_password_is_shown(tmp_path: Path):
    """A configuration with a name and a password is enough too, also with the password
    in a variable.
    """
    with service(tmp_path, http_username="ops", http_password="p:ss") as (_, config):
        assert mirror("status", "-c", config).exit_code == 0
        wrong = mirror("status", "-c", config, MIRROR_SERVICE__http_password="x")
    assert wrong.exit_code == 1
    assert "asks for authentication" in wrong.stderr


def test_a_certificate_is_checked(tmp_path: Path):
    """A certificate of an unknown CA is refused with what to do; --ca-file, its
    variable or the configuration makes it trusted.
    """
    authority = CertificateAuthority()
    made = authority.issue("mirror")
    ca, bundle = tmp_path / "ca.pem", tmp_path / "tls.pem"
    ca.write_text(authority.pem)
    bundle.write_text(made.bundle_pem)
    with service(tmp_path, http_certificate_file=str(bundle)) as (url, config):
        refused = mirror("status", "-u", url)
        assert refused.exit_code == 1
        assert "--ca-file" in refused.stderr
        for trusted in (
            mirror("status", "-u", url, "--ca-file", ca),
            mirror("status", "-u", url, MIRROR_CA_FILE=str(ca)),
            mirror("status", "-c", config),
        ):
            assert trusted.exit_code == 0, trusted.stderr
        useless = mirror("status", "-u", url, "--ca-file", config)
    assert useless.exit_code == 1
    assert str(config) in useless.stderr


def test_a_token_goes_nowhere_else(tmp_path: Path):
    """A command does not follow a redirect with its token."""
    asked = []

    class Elsewhere(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append((self.path, self.headers["Authorization"]))
            self.send_response(302)
            self.send_header("Location", "/caught")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    secret = tmp_path / "token"
    secret.write_text(TOKEN)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}"
        result = mirror("status", "-u", url, "--token-file", secret)
        server.shutdown()
        thread.join()
    assert result.exit_code == 1
    assert asked == [("/status", f"Bearer {TOKEN}")]
