"""A small identity provider for tests: real tokens, signed with its own key.

`IdentityProvider` is a token endpoint for client credentials (RFC 6749), over TLS if it
is given a certificate; its tokens are JWTs signed with RS256, and brokers check them
with `jwks`. Tests change its fields to make it refuse, fail, or give bad tokens.
"""

from __future__ import annotations

import base64
import hashlib
import http.server
import json
import ssl
import threading
import time
from typing import TYPE_CHECKING, Any, Self
import urllib.parse
import urllib.request

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

if TYPE_CHECKING:
    from pathlib import Path

CLIENT, SECRET = "mirror", "id secret:+%"
AUDIENCE = "kafka"


def _b64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _integer(number: int) -> str:
    return _b64(number.to_bytes((number.bit_length() + 7) // 8, "big"))


def fetch(url: str) -> tuple[str, float]:
    """A token provider, as users write them: a token, and its lifetime."""
    pair = base64.b64encode(
        f"{CLIENT}:{urllib.parse.quote_plus(SECRET)}".encode()
    ).decode()
    request = urllib.request.Request(
        url,
        data=b"grant_type=client_credentials",
        headers={"Authorization": f"Basic {pair}"},
    )
    with urllib.request.urlopen(request, timeout=5) as answer:
        said = json.load(answer)
    return said["access_token"], said["expires_in"]


class Key:
    """Signs tokens."""

    def __init__(self) -> None:
        self._private = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        numbers = self._private.public_key().public_numbers()
        self.name = hashlib.sha256(_integer(numbers.n).encode()).hexdigest()[:8]
        self.jwk = {
            "kty": "RSA", "alg": "RS256", "use": "sig", "kid": self.name,
            "n": _integer(numbers.n), "e": _integer(numbers.e),
        }  # fmt: skip

    def sign(self, claims: dict[str, Any]) -> str:
        head = {"alg": "RS256", "typ": "JWT", "kid": self.name}
        text = ".".join(_b64(json.dumps(part).encode()) for part in (head, claims))
        signature = self._private.sign(
            text.encode(), padding.PKCS1v15(), hashes.SHA256()
        )
        return f"{text}.{_b64(signature)}"


class IdentityProvider:
    """A context manager; `url` is its token endpoint."""

    def __init__(self, *, bundle: Path | None = None, lives: float = 300) -> None:
        """`bundle`: a PEM file with key and certificate, for TLS."""
        self.key = Key()
        self.lives = lives
        self.secret = SECRET
        self.failing = 0
        """The status to answer with, if not 0."""
        self.tells_lifetime = True
        self.audience = AUDIENCE
        self.subject = CLIENT
        self.slow = 0.0
        self.asked: list[dict[str, str]] = []
        """The forms that came, those refused as well."""
        provider = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"])
                form = dict(urllib.parse.parse_qsl(self.rfile.read(length).decode()))
                status, said = provider.answer(self.headers["Authorization"], form)
                raw = json.dumps(said).encode()
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", provider.url)
                self.send_header("Content-Length", str(len(raw)))
                self.end_headers()
                self.wfile.write(raw)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        scheme = "http"
        if bundle is not None:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(bundle)
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True
            )
            self._server.handle_error = lambda *_: None
            scheme = "https"
        self.url = f"{scheme}://localhost:{self._server.server_address[1]}/token"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    @property
    def jwks(self) -> str:
        return json.dumps({"keys": [self.key.jwk]})

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def token(self, *, lives: float | None = None, key: Key | None = None) -> str:
        now = time.time()
        ends = now + (self.lives if lives is None else lives)
        return (key or self.key).sign(
            {
                "iss": "test", "sub": self.subject, "aud": self.audience,
                "iat": int(now), "exp": int(ends), "scope": "kafka",
            }
        )  # fmt: skip

    def answer(self, given: str, form: dict[str, str]) -> tuple[int, dict[str, Any]]:
        self.asked.append(form)
        time.sleep(self.slow)
        if self.failing:
            return self.failing, {"error": "temporarily_unavailable"}
        pair = base64.b64decode(given.removeprefix("Basic ")).decode()
        client, _, secret = pair.partition(":")
        if (client, urllib.parse.unquote_plus(secret)) != (CLIENT, self.secret):
            return 401, {"error": "invalid_client", "error_description": "who?"}
        said: dict[str, Any] = {"access_token": self.token(), "token_type": "Bearer"}
        if self.tells_lifetime:
            said["expires_in"] = int(self.lives)
        return 200, said
