"""Axonops' schema registry: modes, contexts and soft deletes, kept in memory.

Main function: `axonops`. It takes texts that differ in documentation or in the order of
keys for one schema. The program is built from its Go module, whose version `MODULE`
pins: `python -m tests.tools` does that.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from mirror.playground.ports import LOOPBACK, free_ports
from mirror.playground.registry.process import RegistryPlan, RegistryProcess

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

MODULE = "github.com/axonops/axonops-schema-registry@v0.2.1"
PACKAGE = "cmd/schema-registry"
PROGRAM = "schema-registry"


def axonops(
    program: str, folder: Path, *, security: Mapping[str, Any] | None = None
) -> RegistryProcess:
    """Set up a registry. `security` is that part of its own configuration: TLS and
    logins; without it, every client may do everything.
    """
    folder.mkdir(parents=True, exist_ok=True)
    [port] = free_ports(1)
    settings = {
        "server": {"host": LOOPBACK, "port": port},
        "storage": {"type": "memory"},
        "compatibility": {"default_level": "NONE"},
        "logging": {"level": "warn"},
        "security": dict(security or {}),
    }
    file = folder / "registry.yaml"
    file.write_text(json.dumps(settings))  # JSON is YAML
    return RegistryProcess(
        RegistryPlan(
            name="axonops",
            command=(program, "-config", str(file)),
            folder=folder,
            port=port,
            tls=bool((security or {}).get("tls", {}).get("enabled")),
        )
    )
