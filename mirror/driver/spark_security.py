"""What keeps leases secret between the processes of a Spark cluster.

Main function: `protection`. A lease carries the clusters' credentials, so off local
mode Spark authenticates its processes and encrypts what they send and store. The
cluster's master and workers need the same settings; Spark on YARN and Kubernetes makes
a secret itself, elsewhere the user gives one.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

import structlog

from mirror.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

log = structlog.get_logger()

_SECRET = "spark.authenticate.secret"  # noqa: S105  the setting's name
_FILES = (
    f"{_SECRET}.file",
    f"{_SECRET}.driver.file",
    f"{_SECRET}.executor.file",
)
_VARIABLE = "_SPARK_AUTH_SECRET"
"""Spark's own name for it, in the environment."""
PROTECTION = {
    "spark.authenticate": "true",
    "spark.network.crypto.enabled": "true",
    # The default, CTR, encrypts but does not notice changed bytes; version 1 derives
    # keys in a weaker way; SASL would be a way around both.
    "spark.network.crypto.cipher": "AES/GCM/NoPadding",
    "spark.network.crypto.authEngineVersion": "2",
    "spark.network.crypto.saslFallback": "false",
    "spark.io.encryption.enabled": "true",
}
_SWITCHES = tuple(key for key, value in PROTECTION.items() if value == "true")
_LOCAL = re.compile(r"local(\[.*\])?")


def protection(master: str, given: Mapping[str, str]) -> dict[str, str]:
    """The settings that are missing in `given`. Those that turn protection off stay,
    with a warning.

    Raises:
        ConfigError: Spark needs a secret, and there is none.
    """
    if _LOCAL.fullmatch(master):
        return {}
    off = [key for key in _SWITCHES if given.get(key, "true").lower() != "true"]
    if off:
        log.warning(
            "leases carry the clusters' passwords, and Spark's protection of them is "
            "off: remove these settings",
            settings=", ".join(off),
        )
    if "spark.authenticate" in off:
        return {}
    makes_its_own = master == "yarn" or master.startswith("k8s://")
    if not makes_its_own and _SECRET not in given:
        problem = (
            f"{_SECRET}: Spark on {master} needs a secret, since leases carry the "
            "clusters' passwords: give the same one to mirror (spark-submit "
            "--properties-file, or service.spark) and to Spark's master and workers; "
            "see docs/howto/spark-submit.md"
        )
        raise ConfigError([problem])
    if master.startswith("k8s://") and not (
        any(key in given for key in (_SECRET, *_FILES)) or _VARIABLE in os.environ
    ):
        log.warning(
            "Spark writes its secret into the executors' pod specs: put one into a "
            "Secret, mount it in all pods, and name its file",
            setting=_FILES[0],
        )
    return {key: value for key, value in PROTECTION.items() if key not in given}
