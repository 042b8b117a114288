"""Kerberos (SASL GSSAPI, RFC 4752), with tickets from a keytab.

Main functions: `exchange`, which begins one connection's exchange, and `forget`, for
tickets that a broker refused. libkrb5 gets the tickets, keeps them in this process's
memory and replaces them from the keytab at half of their life; the file is read again
each time. The package `gssapi` is an extra, imported here alone. Messages name the
setting to check.
"""

from __future__ import annotations

import importlib
import itertools
import threading
import time
from typing import TYPE_CHECKING, Any

from mirror.errors import AuthenticationError

if TYPE_CHECKING:
    from collections.abc import Hashable

    from mirror.config.cluster_settings import ClusterConfig

SERVICE = "kafka"
"""The first part of the brokers' principals, where no setting says another."""
_NO_LAYER = b"\x01\x00\x00\x00"
"""After it bytes go as they are: Kafka has no other layer. No size counts then."""
_KEPT_SECONDS = 300.0
"""Tickets younger than this are not dropped when a broker refuses them: the reason is
another, and libkrb5 does not free what it keeps in memory."""
_numbers = itertools.count(1)


class Exchange:
    """One exchange, with the interface of kafka-python's mechanisms."""

    def __init__(self, context: Any, principal: str) -> None:
        self._context = context
        self._principal = principal.encode()
        self._next: bytes = context.step(None) or b""
        self._answered = self._done = False

    def auth_bytes(self) -> bytes:
        return self._next

    def receive(self, answer: bytes) -> None:
        """Take the broker's answer.

        Raises:
            ValueError: it does not prove that it is the broker, or is malformed.
        """
        try:
            if self._answered:
                self._done = True
            elif not self._context.complete:
                self._next = self._context.step(answer) or b""
            else:
                offered = self._context.unwrap(answer).message
                if len(offered) != len(_NO_LAYER) or not offered[0] & _NO_LAYER[0]:
                    raise ValueError("it asks for a layer that Kafka does not have")
                chosen = _NO_LAYER + self._principal
                self._next = self._context.wrap(chosen, False).message
                self._answered = True
        except _errors() as error:
            raise ValueError(_words(error)) from error

    def is_done(self) -> bool:
        return self._done


class _Tickets:
    """The tickets of one principal in this process. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._begin()
        self._failed_at = float("-inf")
        self._failure = ""

    def exchange(self, config: ClusterConfig, host: str, where: str) -> Exchange:
        """Begin an exchange with the broker on `host`."""
        asked = time.monotonic()
        # One thread at a time, since libkrb5 empties its memory to renew. Those that
        # waited for a KDC that does not answer do not each wait for it again.
        with self._lock:
            if self._failed_at > asked:
                raise AuthenticationError(self._failure)
            try:
                credentials = self._credentials(config)
            except AuthenticationError as error:
                self._failure, self._failed_at = str(error), time.monotonic()
                raise
            return _begun(config, host, where, credentials)

    def forget(self) -> None:
        with self._lock:
            if time.monotonic() > self._since + _KEPT_SECONDS:
                self._begin()

    def _begin(self) -> None:
        """Use an empty place in memory from now on."""
        self._place = f"MEMORY:mirror-{next(_numbers)}"
        self._since = time.monotonic()

    def _credentials(self, config: ClusterConfig) -> Any:
        gssapi = _library(config)
        keytab = config.sasl_kerberos_keytab_file
        assert keytab is not None
        try:
            # libkrb5 does not say why it cannot read a keytab.
            keytab.open("rb").close()
        except OSError as error:
            raise AuthenticationError(
                f"cluster {config.alias}: sasl_kerberos_keytab_file cannot be read: "
                f"{error}"
            ) from error
        try:
            if (made := self._acquired(gssapi, config)) is None:
                # A renewal failed; without the old ticket libkrb5 says why.
                self._begin()
                made = self._acquired(gssapi, config)
        except _errors() as error:
            raise AuthenticationError(
                f"cluster {config.alias}: no Kerberos ticket for "
                f"sasl_kerberos_principal {config.sasl_kerberos_principal}: "
                f"{_words(error)}; sasl_kerberos_keytab_file {keytab} must have the "
                "key that this principal has now, and krb5.conf must name the realm's "
                "KDC"
            ) from error
        if made is None:  # without credentials libkrb5 would use someone else's
            raise AuthenticationError(
                f"cluster {config.alias}: the Kerberos ticket for "
                f"sasl_kerberos_principal {config.sasl_kerberos_principal} has expired "
                "already; the clocks of this machine and of the KDC must agree"
            )
        return made

    def _acquired(self, gssapi: Any, config: ClusterConfig) -> Any:
        """The credentials; None if what is in memory has expired."""
        found = gssapi.Credentials(
            name=gssapi.Name(
                config.sasl_kerberos_principal, gssapi.NameType.kerberos_principal
            ),
            usage="initiate",
            mechs=[gssapi.MechType.kerberos],
            store={
                "client_keytab": f"FILE:{config.sasl_kerberos_keytab_file}",
                "ccache": self._place,
            },
        )
        try:
            # Only a question makes libkrb5 get the ticket.
            return None if found.lifetime == 0 else found
        except gssapi.exceptions.ExpiredCredentialsError:
            return None


_kept: dict[Hashable, _Tickets] = {}
_kept_lock = threading.Lock()


def exchange(config: ClusterConfig, host: str, where: str) -> Exchange:
    """Begin an exchange with the broker on `host`; `where` names it in messages.

    Raises:
        AuthenticationError: there is no ticket, with the reason.
    """
    return _of(config).exchange(config, host, where)


def forget(config: ClusterConfig) -> None:
    """A broker refused this cluster's tickets: its key may have changed."""
    _of(config).forget()


def _of(config: ClusterConfig) -> _Tickets:
    mark = (config.sasl_kerberos_principal, config.sasl_kerberos_keytab_file)
    with _kept_lock:
        return _kept.setdefault(mark, _Tickets())


def _begun(config: ClusterConfig, host: str, where: str, credentials: Any) -> Exchange:
    gssapi = _library(config)
    service = config.sasl_kerberos_service_name or SERVICE
    try:
        name = gssapi.Name(f"{service}@{host}", gssapi.NameType.hostbased_service)
        context = gssapi.SecurityContext(
            name=name,
            creds=credentials,
            mech=gssapi.MechType.kerberos,
            usage="initiate",
        )
        return Exchange(context, config.sasl_kerberos_principal or "")
    except _errors() as error:
        raise AuthenticationError(
            f"{where}: no Kerberos ticket for the broker: {_words(error)}; "
            f"sasl_kerberos_service_name {service} and the host {host} must make the "
            "name that the brokers have in their realm, whose KDC must answer"
        ) from error


def _library(config: ClusterConfig) -> Any:
    try:
        return importlib.import_module("gssapi")
    except (ImportError, OSError) as error:
        raise AuthenticationError(
            f"cluster {config.alias}: sasl_mechanism GSSAPI needs the package gssapi: "
            "pip install 'mirror[kerberos]', in the service and in Spark's workers "
            f"({error})"
        ) from error


def _errors() -> type[Exception]:
    """What the library raises."""
    found: type[Exception] = importlib.import_module("gssapi.exceptions").GSSError
    return found


def _words(error: Any) -> str:
    """What libkrb5 says, without GSSAPI's own words around it."""
    said = error.get_all_statuses(error.min_code, False) if error.min_code else ()
    words = [str(each) for each in said] or [str(error)]
    return " ".join("; ".join(words).split())[:_MOST_WORDS]


_MOST_WORDS = 300
