"""TLS on the service's HTTP port, with certificates that may be rotated.

Main type: `Certificates`, a TLS context that looks at the files in every handshake and
shows the new ones when they change. Of new files that cannot be used a warning is
logged, and the old ones stay.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

import structlog

from mirror.errors import MirrorError
from mirror.log import LogThrottle

if TYPE_CHECKING:
    from pathlib import Path

    from mirror.config.service_settings import HttpSettings

log = structlog.get_logger()

_Seen = tuple[tuple[int, int, int], ...]


class Certificates:
    """The port's own certificate and key. Not thread-safe: one thread accepts.

    `context` is what to listen with.
    """

    def __init__(self, certificate: Path, key: Path | None) -> None:
        """Read the files.

        Raises:
            MirrorError: they cannot be used.
        """
        self._certificate, self._key = certificate, key
        self._throttle = LogThrottle()
        try:
            self._seen = self._look()
            self.context = self._newest = self._load()
        except (OSError, ValueError) as error:
            raise MirrorError(
                "service.http_certificate_file: the certificate cannot be used: "
                f"{_short(error)}; it takes PEM files of a certificate and its key, "
                "without a password"
            ) from error

        # Called in each handshake before the certificate is shown, with a name or not.
        self.context.sni_callback = self._choose

    def _choose(self, connection: ssl.SSLObject, *_: object) -> None:
        self._refresh()
        connection.context = self._newest

    def _refresh(self) -> None:
        try:
            if (now := self._look()) == self._seen:
                return
            # Certificate and key are replaced one after the other: until they fit, the
            # old pair is shown.
            self._newest, self._seen = self._load(), now
        except (OSError, ValueError) as error:
            if self._throttle.due(_short(error)):
                log.warning("the HTTP port keeps its old certificate",
                            error=_short(error))  # fmt: skip
        else:
            self._throttle.clear()
            log.info("the HTTP port has a new certificate",
                     file=str(self._certificate))  # fmt: skip

    def _load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        # Without an answer to the question for a password, OpenSSL asks the terminal.
        context.load_cert_chain(self._certificate, self._key, password="")
        return context

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
