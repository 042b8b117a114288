"""Asks the services of other sites for their flows, every ten seconds.

Main type: `Peers`, with a thread for each, so one that hangs delays no other. What a
peer answers is not trusted: it is bounded in time and size, no redirect is followed,
and `status.sites` checks every value. A peer is asked for its own part only, so peers
that name each other make no loop. Tokens go nowhere but to their peer.
"""

from __future__ import annotations

from dataclasses import replace
from http import HTTPStatus
import re
import ssl
import threading
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx

from mirror.clusters.bounded import UNPACKED, Bounds, body, parsed
from mirror.errors import BoundsError, MirrorError, system_error
from mirror.status.events import Event, EventKind
from mirror.status.sites import Site, read_site
from mirror.web.access import read_secret

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirror.config.peer_settings import PeerConfig
    from mirror.status.store import StatusStore

EVERY_SECONDS = 10.0
_WAIT_SECONDS = 5.0
"""For a connection, and for each part of an answer."""
_MOST_SECONDS = 10.0
_BOUNDS = Bounds(size=1 << 20, values=100_000)
"""A thousand flows."""
_REMEMBERED_SECONDS = 60.0
"""How long what a leader said counts while its standby answers."""
PATH = "/site"
_IN_A_HEADER = re.compile(r"[\t -~\x80-\xff]+")


class Peers:
    """Asks until closed."""

    def __init__(self, store: StatusStore, peers: Sequence[PeerConfig]) -> None:
        self._store = store
        self._peers = tuple(peers)
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._found: dict[str, Site] = {}
        self._instances: dict[str, dict[str, Site]] = {}
        """The latest answers of a peer by instance: several may share an address."""

    def start(self) -> None:
        for peer in self._peers:
            threading.Thread(
                target=self._follow, args=(peer,), name="peers", daemon=True
            ).start()

    def close(self) -> None:
        """Ask no more. It does not wait for a peer that hangs."""
        self._closing.set()

    def _follow(self, peer: PeerConfig) -> None:
        name = name_of(peer)
        while not self._closing.is_set():
            try:
                site = read_site(_asked(peer), name, now=time.time())
            except MirrorError as error:
                self._note(name, None, str(error))
            else:
                self._note(name, site, "")
            self._closing.wait(EVERY_SECONDS)

    def _note(self, name: str, site: Site | None, reason: str) -> None:
        """What a peer answered, or why it did not; its last answer stays."""
        with self._lock:
            before = self._found.get(name)
            changed = before is None or before.answers == (site is None)
            since = time.time() if before is None or changed else before.since
            if site is not None:
                found = self._led(site)
            else:
                known = before or Site(name=name)
                found = replace(known, answers=False, reason=reason)
            self._found[name] = replace(found, since=since)
            self._store.peers = tuple(
                self._found[each]
                for each in map(name_of, self._peers)
                if each in self._found
            )
        if changed and (reason or before is not None):
            self._store.trail.add(
                Event(
                    kind=EventKind.PROBLEM if reason else EventKind.PROBLEM_GONE,
                    subject=f"peer {name}",
                    text=f"the peer {name} does not answer: {reason}"
                    if reason
                    else f"the peer {name} answers again",
                )
            )

    def _led(self, site: Site) -> Site:
        """Behind a load balancer, every question may reach another instance."""
        known = self._instances.setdefault(site.name, {})
        known.pop(site.instance, None)
        others = [
            each
            for each in reversed(known.values())
            if site.heard_at - each.heard_at <= _REMEMBERED_SECONDS
        ]
        found = {each.instance: each for each in (*reversed(others), site)}
        self._instances[site.name] = found
        return site.with_leaders(others)


def name_of(peer: PeerConfig) -> str:
    """How a peer is shown: its address without the scheme."""
    parts = urlsplit(peer.url)
    return f"{parts.netloc}{parts.path}"


def _asked(peer: PeerConfig) -> Any:
    """What a peer answers, from JSON.

    Raises:
        MirrorError: it does not, or not as it should.
    """
    headers = [
        (name.encode(), value.encode())
        for name, value in {"Accept": "application/json", **UNPACKED}.items()
    ]
    if peer.token_file is not None:
        token = read_secret(peer.token_file, None)
        if not _IN_A_HEADER.fullmatch(token):
            raise MirrorError(
                f"{peer.token_file} has a line break or another character that an "
                "HTTP header cannot carry"
            )
        headers.append((b"Authorization", f"Bearer {token}".encode("latin-1")))
    end = time.monotonic() + _MOST_SECONDS
    try:
        # Proxies of the environment are not meant for a service's own port.
        with (
            httpx.Client(
                verify=_trusted(peer),
                timeout=_WAIT_SECONDS,
                follow_redirects=False,
                trust_env=False,
            ) as client,
            client.stream("GET", f"{peer.url}{PATH}", headers=headers) as answer,
        ):
            if answer.status_code != HTTPStatus.OK:
                raise MirrorError(_refused(answer.status_code))
            return parsed(body(answer, _BOUNDS, until=end), _BOUNDS)
    except BoundsError as error:
        raise MirrorError(f"its answer {error}") from error
    except TimeoutError as error:
        raise MirrorError(
            f"its answer takes longer than {_MOST_SECONDS:.0f} s"
        ) from error
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        reason = system_error(error)
        raise MirrorError(
            getattr(reason, "verify_message", None)
            or getattr(reason, "strerror", None)
            or str(reason)
            or type(reason).__name__
        ) from error
    except ValueError as error:
        raise MirrorError("it does not answer in JSON") from error


def _trusted(peer: PeerConfig) -> ssl.SSLContext:
    if peer.url.startswith("http:"):
        # Loading the system's certificates takes longer than all the rest.
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context = ssl.create_default_context()
    if peer.ca_file is not None:
        try:
            context.load_verify_locations(peer.ca_file)
        except OSError as error:
            reason = error.strerror or "it contains no certificate"
            raise MirrorError(f"{peer.ca_file} cannot be used: {reason}") from error
        # The port's own certificate may be trusted without its CA.
        context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
    return context


def _refused(status: int) -> str:
    if status == HTTPStatus.UNAUTHORIZED:
        return "it refuses the token: set token_file of this peer"
    if status == HTTPStatus.MISDIRECTED_REQUEST:
        return "it does not accept this host name: add it to its service.http_hosts"
    if status == HTTPStatus.NOT_FOUND:
        return f"it has no {PATH}: is it a mirror service, of this version or later?"
    return f"it answers with status {status}"
