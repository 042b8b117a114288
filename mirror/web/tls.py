"""TLS on the service's HTTP port, with certificates that may be rotated.

Main type: `Certificates`, which makes a TLS context from the files and reloads them
when they change; it checks before each connection. If new files are unusable it logs
that and keeps the old ones. The answering threads do the handshakes, so a silent client
does not hold up the others.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

import structlog

from mirror.errors import MirrorError
from mirror.log import LogThrottle

if TYPE_CHECKING:
    from pathlib import Path
    import socket

    from mirror.config.http_settings import HttpSettings

log = structlog.get_logger()

_Seen = tuple[tuple[int, int, int], ...]


class Certificates:
    """The port's own certificate and key. Not thread-safe: one thread accepts."""

    def __init__(self, certificate: Path, key: Path | None) -> None:
        """Read the files.

        Raises:
            MirrorError: they cannot be used.
        """
        self._certificate, self._key = certificate, key
        self._throttle = LogThrottle()
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            self._seen = self._look()
            self._load(self._context)
        except (OSError, ValueError) as error:
            raise MirrorError(
                "service.http_certificate_file: the certificate cannot be used: "
                f"{_short(error)}; it takes PEM files of a certificate and its key, "
                "without a password"
            ) from error

    def wrap(self, accepted: socket.socket) -> ssl.SSLSocket:
        """A connection that does the TLS handshake on its first read."""
        self._refresh()
        return self._context.wrap_socket(
            accepted, server_side=True, do_handshake_on_connect=False
        )

    def _refresh(self) -> None:
        try:
            if (now := self._look()) == self._seen:
                return
            # Certificate and key are replaced one after the other: only a matching pair
            # is loaded into the context that connections use.
            self._load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
            self._load(self._context)
            self._seen = now
        except (OSError, ValueError) as error:
            if self._throttle.due(_short(error)):
                log.warning("the HTTP port keeps its old certificate",
                            error=_short(error))  # fmt: skip
        else:
            self._throttle.clear()
            log.info("the HTTP port has a new certificate",
                     file=str(self._certificate))  # fmt: skip

    def _load(self, context: ssl.SSLContext) -> None:
        # Without this callback OpenSSL asks for a password on the terminal.
        context.load_cert_chain(self._certificate, self._key, password="")

    def _look(self) -> _Seen:
        files = [file for file in (self._certificate, self._key) if file is not None]
        found = [file.stat() for file in files]
        return tuple((s.st_mtime_ns, s.st_ino, s.st_size) for s in found)


def certificates(settings: HttpSettings) -> Certificates | None:
    """What the settings say; None for HTTP without TLS."""
    if settings.http_certificate_file is None:
        return None
    return Certificates(settings.http_certificate_file, settings.http_key_file)


def _short(error: OSError | ValueError) -> str:
    if isinstance(error, ssl.SSLError):
        return error.reason or "not PEM, or key and certificate do not match"
    if isinstance(error, OSError):
        name = f"{error.filename}: " if error.filename else ""
        return f"{name}{error.strerror}"
    return str(error)
