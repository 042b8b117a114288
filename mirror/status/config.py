"""What a service knows of its own configuration: the part `config` of `/status`.

Main type: `ConfigStatus`. Instances whose `version` is the same go by the same
settings; what a setting is, is not shown here.
"""

from __future__ import annotations

from dataclasses import dataclass

CONFIG_METRICS = {
    "mirror_config_last_reload_successful": "1 if the configuration could be used when "
    "it was last read, 0 if it was refused and the one before still counts.",
    "mirror_config_last_reload_success_timestamp_seconds": "When the configuration "
    "that counts was read.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigStatus:
    """The configuration that counts, and what became of the last one read."""

    file: str = ""
    version: str = ""
    """Twelve digits of all settings that count, secrets aside."""
    loaded_at: float = 0.0
    """When it was read, epoch seconds."""
    reloads: int = 0
    """How often another one took its place since the service started."""
    refused_at: float = 0.0
    """When a newer one was read and refused, epoch seconds; 0: none was."""
    refused: tuple[str, ...] = ()
    """What is wrong with that one."""
