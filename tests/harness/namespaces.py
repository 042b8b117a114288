"""A separate host for a service: a network namespace, and a cable to it.

`Host` is a namespace joined to this machine by a veth pair; what runs in it reaches
brokers at `Host.here`, and nothing when the cable is cut. `MirrorOnHost` is `mirror
run` in there. `reachable_at` lets a playground's brokers listen there too.
`MirrorWithHosts` resolves names by a file of its own. Linux and root only: see
`why_not`.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Self

from mirror.playground.ports import free_ports
from tests.harness.service import RunningMirror

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from mirror.playground.cluster import PlaygroundCluster

_NUMBERS = itertools.count()
_ASK = (
    "import sys, urllib.request\n"
    "print(urllib.request.urlopen(sys.argv[1], timeout=60).read().decode())"
)


def why_not() -> str:
    """What is missing for a `Host`; empty if nothing is."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return "only root with iproute2's ip can make network namespaces"
    name = f"mirror-try-{os.getpid()}"
    made = _ip("netns", "add", name, check=False)
    if made.returncode != 0:
        return f"no network namespaces here: {made.stderr.strip()}"
    _ip("netns", "del", name)
    return ""


class Host:
    """A namespace with a cable; a context manager that leaves nothing behind."""

    def __init__(self) -> None:
        number = next(_NUMBERS)
        self.name = f"mirror-{os.getpid()}-{number}"
        # Interfaces' names have at most 15 characters.
        self._cable = f"m{os.getpid()}-{number}"
        net = f"10.{77 + number}.{os.getpid() % 250}"
        self.here, self._there = f"{net}.1", f"{net}.2"

    def __enter__(self) -> Self:
        try:
            _ip("netns", "add", self.name)
            _ip("link", "add", self._cable, "type", "veth", "peer", "name", "out",
                "netns", self.name)  # fmt: skip
            _ip("addr", "add", f"{self.here}/30", "dev", self._cable)
            _ip("-n", self.name, "addr", "add", f"{self._there}/30", "dev", "out")
            for device in ("lo", "out"):
                _ip("-n", self.name, "link", "set", device, "up")
            self.join()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        _ip("link", "del", self._cable, check=False)
        _ip("netns", "del", self.name, check=False)

    def cut(self) -> None:
        """Drop all packets silently."""
        _ip("link", "set", self._cable, "down")

    def join(self) -> None:
        _ip("link", "set", self._cable, "up")

    def inside(self, *command: str) -> list[str]:
        """The command line that runs it there."""
        return ["ip", "netns", "exec", self.name, *command]


class MirrorOnHost(RunningMirror):
    """`mirror run` on a host; its status can be asked for when the cable is cut."""

    def __init__(self, config: Mapping[str, Any], folder: Path, host: Host) -> None:
        super().__init__(config, folder)
        # `ip netns exec` is replaced by what it runs: the pid stays.
        self._command = host.inside(*self._command)
        self._host = host

    def status(self) -> dict[str, Any]:
        asked = subprocess.run(
            self._host.inside(sys.executable, "-IS", "-c", _ASK, f"{self.url}/status"),
            capture_output=True,
            text=True,
            check=True,
            timeout=90,
        )
        found: dict[str, Any] = json.loads(asked.stdout)
        return found


class MirrorWithHosts(RunningMirror):
    """`mirror run` with an /etc/hosts of its own, which may change meanwhile."""

    def __init__(self, config: Mapping[str, Any], folder: Path, hosts: Path) -> None:
        super().__init__(config, folder)
        bind = 'mount --bind "$0" /etc/hosts && exec "$@"'
        inside = ("unshare", "--mount", "sh", "-c", bind, str(hosts))
        self._command = [*inside, *self._command]


def reachable_at(cluster: PlaygroundCluster, address: str, name: str = "") -> str:
    """Restart the cluster's only broker with a further listener at this address;
    returns its host and port, which it also advertises to clients of that listener, by
    this name if there is one.
    """
    [port] = free_ports(1)  # Kafka takes no port twice, whatever the address
    seen = f"{name or address}:{port}"
    added = {
        "listeners": f"AWAY://{address}:{port}",
        "advertised.listeners": f"AWAY://{seen}",
        "listener.security.protocol.map": "AWAY:PLAINTEXT",
    }

    def with_listener(line: str) -> str:
        key = line.partition("=")[0]
        return f"{line},{added.pop(key)}" if key in added else line

    _restart(cluster, with_listener)
    assert not added
    return seen


def move(cluster: PlaygroundCluster, address: str, to: str) -> None:
    """Restart the cluster's only broker with the listener of `reachable_at` there."""
    _restart(cluster, lambda line: line.replace(f"AWAY://{address}:", f"AWAY://{to}:"))


def _restart(cluster: PlaygroundCluster, edited: Callable[[str], str]) -> None:
    assert cluster.folder is not None
    file = cluster.folder / "node-1" / "server.properties"
    cluster.stop()
    lines = file.read_text().splitlines()
    file.write_text("".join(f"{edited(line)}\n" for line in lines))
    cluster.start()


def _ip(*arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    ended = subprocess.run(
        ["ip", *arguments], capture_output=True, text=True, check=False, timeout=20
    )
    assert not check or ended.returncode == 0, (arguments, ended.stderr)
    return ended
