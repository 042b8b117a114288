"""What a run needs on this machine: Java, libraries, cores, a folder, a port.

Main function: `findings`. It does not check executors on other machines; they run the
same image, or the user equips them.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, requires
from importlib.metadata import version as installed
import os
import re
import socket
from typing import TYPE_CHECKING

from mirror.checks.finding import fail, ok, warn
from mirror.errors import ConfigError, JavaMissingError
from mirror.host import OLDEST_JAVA, java_version, require_java, usable_cores
from mirror.service.query import state_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirror.checks.finding import Finding
    from mirror.config.schema import MirrorConfig

HERE = "here"
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_OF_EXTRA = re.compile(r";.*\bextra\s*==")


def findings(config: MirrorConfig) -> list[Finding]:
    """One finding for each thing that a run needs at its start."""
    return [
        *(_java(), _libraries(), _cores(config), _state_dir(config), _port(config)),
        *_open_port(config),
        *_hooks(config),
    ]


def _java() -> Finding:
    try:
        java = require_java()
    except JavaMissingError as error:
        text, _, advice = str(error).rpartition(": ")
        return fail(HERE, "Java", text or str(error), advice)
    return ok(HERE, "Java", f"{java_version(java)} at {java}, minimum {OLDEST_JAVA}")


def _libraries() -> Finding:
    try:
        named = requires("mirror") or []
    except PackageNotFoundError:
        named = ["pyspark", "kafka-python"]  # running from its folder, without pip
    needed = [each for each in named if not _OF_EXTRA.search(each)]
    names = [match[0] for each in needed if (match := _NAME.match(each))]
    missing = [name for name in names if not _version(name)]
    if missing:
        return fail(
            HERE, "libraries", f"not installed: {', '.join(missing)}",
            f"pip install {' '.join(missing)}",
        )  # fmt: skip
    shown = ", ".join(
        f"{name} {_version(name)}" for name in ("pyspark", "kafka-python")
    )
    return ok(HERE, "libraries", f"{shown}, and all others are installed")


def _version(name: str) -> str:
    try:
        return installed(name)
    except PackageNotFoundError:
        return ""


def _cores(config: MirrorConfig) -> Finding:
    slots = sum(flow.tasks or 1 for flow in config.enabled_flows)
    cores = usable_cores()
    master = config.service.spark_master
    if master is not None and not master.startswith("local"):
        return ok(HERE, "cores", f"at least {slots} tasks, on {master}")
    if cores < slots:
        return warn(
            HERE, "cores", f"{cores} cores for {slots} tasks: some wait for others",
            "lower or remove the setting tasks, or add cores",
        )  # fmt: skip
    return ok(HERE, "cores", f"{cores}, for at least {slots} tasks")


def _state_dir(config: MirrorConfig) -> Finding:
    try:
        folder = wanted = state_folder(config.service.state_dir)
    except ConfigError as error:
        detail, _, advice = str(error).rpartition("; ")
        return fail(HERE, "state_dir", detail, advice)
    while not folder.exists():
        folder = folder.parent
    if not folder.is_dir():
        return fail(
            HERE, "state_dir", f"service.state_dir: {folder} is not a folder",
            "set it to another folder",
        )  # fmt: skip
    if not os.access(folder, os.W_OK | os.X_OK):
        return fail(
            HERE, "state_dir", f"service.state_dir: {folder} is not writable",
            "make it writable for this user, or set it to another folder",
        )  # fmt: skip
    return ok(HERE, "state_dir", str(wanted))


def _hooks(config: MirrorConfig) -> Iterator[Finding]:
    """Step 1 of a switch refuses such a hook, so it is found out before."""
    for pair in config.recovery.values():
        for name, hook in pair.hooks.given() if pair.hooks is not None else ():
            if why := hook.why_unusable:
                yield fail(
                    HERE, "hooks", f"recovery.{pair.name}.hooks.{name}: {why}",
                    "put it where `mirror switch` is run",
                )  # fmt: skip


def _port(config: MirrorConfig) -> Finding:
    host, port = config.service.http_host, config.service.http_port
    where = f"{host}:{port}"
    if port == 0:
        return ok(HERE, "HTTP port", "any free port")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM
        )[0]
        with socket.socket(family, kind, protocol) as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            tried.bind(address)
    except OSError as error:
        return warn(
            HERE, "HTTP port",
            f"service.http_host and service.http_port: {where}: {error.strerror}",
            "fine if that is the running service; otherwise choose another port",
        )  # fmt: skip
    return ok(HERE, "HTTP port", where)


def _open_port(config: MirrorConfig) -> Iterator[Finding]:
    if config.service.open_to_others:
        yield warn(
            HERE, "HTTP port",
            f"service.http_host: {config.service.http_host} lets other machines read "
            "status and metrics without a token",
            "set service.http_token_file, or service.http_host to 127.0.0.1",
        )  # fmt: skip
