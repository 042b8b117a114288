"""A Kerberos realm of its own: Debian's KDC as a process, its files in one folder.

Main type: `Realm`, a context manager, which makes principals and keytabs and can stop
its KDC. Nothing outside the folder changes: clients find the realm by KRB5_CONFIG,
brokers by a Java option. `broker_options` opens a door of secured clusters to it.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
from typing import TYPE_CHECKING, Any, Self

from mirror.playground.ports import LOOPBACK, free_ports
from mirror.playground.process import Leash
from mirror.playground.secured import USER
from tests import tools
from tests.harness.waiting import wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from mirror.playground.cluster import PlaygroundCluster

REALM = "MIRROR.TEST"
MIRROR = f"{USER}@{REALM}"
BROKER = f"kafka/{LOOPBACK}@{REALM}"
_MODULE = "com.sun.security.auth.module.Krb5LoginModule"
_SKEW_SECONDS = 1
"""Else every ticket is good for five minutes longer."""


class Realm:
    """One realm, with the brokers' principal and mirror's."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._port = free_ports(1)[0]
        self._log = folder / "kdc.log"
        self._kdc: subprocess.Popen[bytes] | None = None
        self._leash: Leash | None = None
        self.config = folder / "krb5.conf"
        self.config.write_text(
            f"[libdefaults]\n default_realm = {REALM}\n dns_lookup_kdc = false\n"
            " dns_lookup_realm = false\n dns_canonicalize_hostname = false\n"
            " rdns = false\n udp_preference_limit = 1\n"
            f" clockskew = {_SKEW_SECONDS}\n"
            f"[realms]\n {REALM} = {{\n  kdc = {LOOPBACK}:{self._port}\n }}\n"
        )
        (folder / "kdc.conf").write_text(
            f"[realms]\n {REALM} = {{\n  database_name = {folder}/principal\n"
            f"  key_stash_file = {folder}/stash\n  acl_file = {folder}/acl\n"
            f"  kdc_listen = {LOOPBACK}:{self._port}\n"
            f"  kdc_tcp_listen = {LOOPBACK}:{self._port}\n"
            "  supported_enctypes = aes256-cts:normal\n }\n"
            f"[logging]\n kdc = FILE:{self._log}\n"
        )
        self._run("kdb5_util", "create", "-r", REALM, "-s", "-P", "master")

    def __enter__(self) -> Self:
        self.add(BROKER)
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start the KDC, and wait until it answers."""
        self._kdc = subprocess.Popen(
            [tools.path("krb5kdc"), "-n", "-r", REALM, "-P", f"{self._folder}/pid"],
            env=self._environ,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._leash = Leash(self._kdc.pid)
        wait_for(self._answers)

    def stop(self) -> None:
        """End the KDC: there are no new tickets."""
        if self._kdc is None or self._leash is None:
            return
        self._kdc.kill()
        self._kdc.wait()
        self._leash.release()
        self._kdc = self._leash = None

    def add(self, principal: str, *, lives: int = 0) -> None:
        """A principal with a random key. `lives`: its tickets, in seconds; 0: a day."""
        most = f"-maxlife {lives}s " if lives else ""
        self._admin(f"addprinc {most}-randkey {principal}")

    def drop(self, principal: str) -> None:
        """The realm no longer knows this principal."""
        self._admin(f"delprinc -force {principal}")

    def keytab(self, name: str, *principals: str) -> Path:
        """A file with these principals' keys, which become new ones."""
        file = self._folder / name
        file.unlink(missing_ok=True)
        for principal in principals:
            self._admin(f"ktadd -k {file} {principal}")
        return file

    def tickets_of(self, principal: str) -> int:
        """How often the KDC has given this principal a ticket for its key."""
        issued = re.compile(rf"AS_REQ .*ISSUE: .* {re.escape(principal)} for krbtgt/")
        return len(issued.findall(self._log.read_text()))

    @property
    def _environ(self) -> dict[str, str]:
        return {
            **os.environ,
            "KRB5_CONFIG": str(self.config),
            "KRB5_KDC_PROFILE": str(self._folder / "kdc.conf"),
        }

    def _answers(self) -> bool:
        assert self._kdc is not None
        assert self._kdc.poll() is None, self._log.read_text()
        with socket.socket() as probe:
            return probe.connect_ex((LOOPBACK, self._port)) == 0

    def _admin(self, query: str) -> None:
        self._run("kadmin.local", "-r", REALM, "-q", query)

    def _run(self, program: str, *arguments: str) -> None:
        """These programs end with 0 even if a query failed; then they say so."""
        ended = subprocess.run(
            [tools.path(program), *arguments],
            env=self._environ,
            capture_output=True,
            text=True,
            check=True,
        )
        assert f"{program}: " not in ended.stderr, ended.stderr


def broker_options(realm: Realm, *, session_seconds: float = 0) -> dict[str, Any]:
    """Arguments for `make_clusters`: the SASL_PLAINTEXT listener takes tickets too.
    `session_seconds`: how long a session lasts; 0: for as long as it is used.
    """
    at = "listener.name.sasl"
    keytab = realm.keytab("broker.keytab", BROKER)
    return {
        "secured": True,
        "settings": {
            f"{at}.sasl.enabled.mechanisms": "SCRAM-SHA-512,SCRAM-SHA-256,PLAIN,GSSAPI",
            f"{at}.gssapi.sasl.jaas.config": (
                f"{_MODULE} required useKeyTab=true storeKey=true "
                f'keyTab="{keytab}" principal="{BROKER}";'
            ),
            f"{at}.gssapi.connections.max.reauth.ms": str(int(session_seconds * 1000)),
            "sasl.kerberos.service.name": "kafka",
        },
        "jvm": (f"-Djava.security.krb5.conf={realm.config}",),
    }


def section(
    cluster: PlaygroundCluster, keytab: Path, principal: str = MIRROR
) -> dict[str, Any]:
    """A cluster's section of a configuration, for this way in."""
    assert cluster.sasl is not None
    return {
        "bootstrap_servers": cluster.sasl.bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "GSSAPI",
        "sasl_kerberos_principal": principal,
        "sasl_kerberos_keytab_file": str(keytab),
    }
