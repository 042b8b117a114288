"""What a service reports about its configuration: the part `config` of `/status`.

Main type: `ConfigStatus`. Instances with the same `version` use the same settings; the
settings themselves are not shown.
"""

from __future__ import annotations

from dataclasses import dataclass

CONFIG_METRICS = {
    "mirror_config_last_reload_successful": "1 if the last configuration read was "
    "accepted, 0 if it was refused and the previous one stays in use.",
    "mirror_config_last_reload_success_timestamp_seconds": "When the configuration "
    "in use was read.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigStatus:
    """The configuration in use, and whether the last one read was accepted."""

    file: str = ""
    """The file that it comes from."""
    version: str = ""
    """Twelve digits of a hash of all settings in use, without secrets."""
    loaded_at: float = 0.0
    """When it was read, epoch seconds."""
    reloads: int = 0
    """How often it was replaced since the service started."""
    refused_at: float = 0.0
    """When a newer one was refused, epoch seconds; 0: none was."""
    refused: tuple[str, ...] = ()
    """What is wrong with the refused one."""
