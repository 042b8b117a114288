"""Files that others have published, and the names of hosts that stand in them.

A file runs as it is: `named` gives each host of it an address on this machine, known to
the service's processes alone (libnss_wrapper), behind which a real broker answers. The
files are not ours, so they are not part of this repository: each test names where its
file is from, and `published` takes it from the folder MIRROR_TEST_PUBLISHED, or from
`published` in the cache folder. Without it the test is skipped.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from hashlib import sha256
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mirror.playground.jars import cache_folder
from tests.harness.cut_off import Gate

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """A file at a commit of a public repository."""

    name: str
    """In the folder of published files."""
    repository: str
    commit: str
    path: str
    digest: str
    """SHA-256 of its bytes."""

    @property
    def place(self) -> str:
        return f"{self.repository}, {self.path} at {self.commit[:12]}"


def published(wanted: Published) -> Path:
    """The file, byte for byte; a skip where it is missing."""
    folder = Path(os.environ.get("MIRROR_TEST_PUBLISHED", cache_folder() / "published"))
    file = folder / wanted.name
    if not file.exists():
        pytest.skip(f"no {file.name} in MIRROR_TEST_PUBLISHED: {wanted.place}")
    found = sha256(file.read_bytes()).hexdigest()
    assert found == wanted.digest, f"{file} is not {wanted.place}"
    return file


@contextmanager
def named(hosts: Mapping[str, str], folder: Path) -> Iterator[dict[str, str]]:
    """Variables with which processes find brokers behind names.

    `hosts` says which broker answers at each `host:port` of the file.
    """
    [wrapper] = sorted(Path("/usr/lib").glob("*/libnss_wrapper.so"))[:1] or [None]
    if wrapper is None:
        pytest.skip("no libnss_wrapper.so: apt-get install libnss-wrapper")
    names = sorted({address.rpartition(":")[0] for address in hosts})
    # Addresses of this process alone, so that two runs do not meet.
    net = f"127.{1 + os.getpid() % 250}.{os.getpid() // 250 % 250}"
    addresses = {name: f"{net}.{n}" for n, name in enumerate(names, start=1)}
    file = folder / "hosts"
    lines = [f"{address} {name}" for name, address in addresses.items()]
    file.write_text("\n".join([*lines, "127.0.0.1 localhost", ""]))
    with ExitStack() as gates:
        for address, broker in hosts.items():
            name, _, port = address.rpartition(":")
            gate = Gate(broker, at=(addresses[name], int(port)))
            gates.callback(gate.discard)
        yield {"LD_PRELOAD": str(wrapper), "NSS_WRAPPER_HOSTS": str(file)}
