"""A class-data archive, with which a broker starts in a third of the time.

Main function: `class_data_options`, the Java options that use the archive. The first
call creates it with a throw-away broker; it is valid for one Java and one class path,
and Java ignores it otherwise. Brokers also run without it: if it cannot be created,
they only start more slowly.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import subprocess
from typing import TYPE_CHECKING

from mirror.errors import PlaygroundError
from mirror.host import require_java
from mirror.playground.cache import cache_folder, cache_lock
from mirror.playground.jars import kafka_jars
from mirror.playground.node import JarNode, NodePlan, random_uuid
from mirror.playground.ports import LOOPBACK, free_ports
from mirror.playground.settings import broker_settings, plain_listeners

if TYPE_CHECKING:
    from pathlib import Path

_LOG = logging.getLogger(__name__)
_START_SECONDS = 120.0
# Writing the archive is part of the JVM's exit, and slow on a busy machine.
_DUMP_SECONDS = 180.0


def class_data_options() -> tuple[str, ...]:
    """Java options for the archive, made on first use; empty without one.

    MIRROR_CLASS_DATA=off does without.
    """
    if os.environ.get("MIRROR_CLASS_DATA") == "off":
        return ()
    archive = cache_folder() / f"kafka-{_fingerprint()}.jsa"
    if not archive.exists():
        with cache_lock("class-data"):
            if not archive.exists():
                _try_to_make(archive)
    return (f"-XX:SharedArchiveFile={archive}",) if archive.stat().st_size else ()


def _fingerprint() -> str:
    java = require_java()
    version = subprocess.run(
        [java, "-version"], capture_output=True, text=True, check=False
    ).stderr
    return hashlib.sha256((version + kafka_jars("broker")).encode()).hexdigest()[:12]


def _try_to_make(archive: Path) -> None:
    made = archive.with_suffix(f".{os.getpid()}")
    folder = cache_folder() / f"class-data-{os.getpid()}"
    try:
        _run_throwaway_broker(folder, made)
        made.rename(archive)
    except (PlaygroundError, OSError) as error:
        _LOG.warning("no class-data archive, brokers start slower: %s", error)
        # An empty file records the failure, so that not every start tries again.
        archive.touch()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        made.unlink(missing_ok=True)


def _run_throwaway_broker(folder: Path, archive: Path) -> None:
    plain, control = (f"{LOOPBACK}:{port}" for port in free_ports(2))
    node = JarNode(
        NodePlan(
            number=1,
            folder=folder,
            cluster_id=random_uuid(),
            plain_address=plain,
            settings=broker_settings(
                node=1,
                voters={1: control},
                listeners=plain_listeners(plain=plain, control=control),
                extra={},
            ),
            jvm=(f"-XX:ArchiveClassesAtExit={archive}",),
        )
    )
    try:
        node.spawn()
        node.wait(brokers=1, seconds=_START_SECONDS)
        node.stop(seconds=_DUMP_SECONDS)
    except PlaygroundError:
        node.kill()
        raise
