"""Report files of `mirror verify`: writes them, and checks one that somebody hands in.

Keys are files in PEM. A private key that others can read is refused; so is a report
that was changed after it was signed.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, TypeVar

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)
from cryptography.hazmat.primitives.serialization import (
    load_pem_private_key,
    load_pem_public_key,
)
import typer

from mirror import host
from mirror.cli.output import EXIT_FAILED, complain
from mirror.errors import MALFORMED, MirrorError
from mirror.proving import evidence

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

T = TypeVar("T")

_OTHERS = 0o077


def write_report(report: Path, told: dict[str, Any]) -> None:
    """As JSON, and as a page beside it. Only their owner may read them: keys and
    offsets say something about the data.

    Raises:
        MirrorError: they cannot be written.
    """
    _write(report, json.dumps(told, indent=2) + "\n")
    _write(report.with_suffix(".html"), evidence.page(told))


def check_report(report: Path, public_key: Path | None) -> None:
    """Say whether a report is genuine.

    Raises:
        typer.Exit: it is not.
        MirrorError: a file cannot be read.
    """
    if public_key is None:
        raise typer.BadParameter(
            "--check needs the signer's public key", param_hint="--public-key"
        )
    data = _read("--public-key", public_key)
    key = _parsed("--public-key", public_key, lambda: load_pem_public_key(data))
    if not isinstance(key, Ed25519PublicKey):
        raise MirrorError(f"--public-key: {public_key} is no public key of Ed25519")
    try:
        told = json.loads(_read("--check", report))
    except MALFORMED as error:
        raise MirrorError(f"--check: {report} is no JSON: {error}") from error
    if problems := evidence.problems(told, key):
        complain(*(f"{report}: {problem}" for problem in problems))
        raise typer.Exit(EXIT_FAILED)
    complain(f"{report}: signed with this key, and unchanged")


def private_key(path: Path) -> Ed25519PrivateKey:
    """The key to sign with.

    Raises:
        MirrorError: it cannot be read, is no such key, or others can read it.
    """
    data = _read("--sign-key", path)
    if path.stat().st_mode & _OTHERS:
        raise MirrorError(
            f"--sign-key: others than the owner can read {path}: chmod 600 it, and "
            "consider the key known"
        )
    key = _parsed("--sign-key", path, lambda: load_pem_private_key(data, None))
    if not isinstance(key, Ed25519PrivateKey):
        raise MirrorError(f"--sign-key: {path} is no private key of Ed25519")
    return key


def _parsed(option: str, path: Path, load: Callable[[], T]) -> T:
    try:
        return load()
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise MirrorError(f"{option}: {path} is no key in PEM: {error}") from error


def _read(option: str, path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise MirrorError(f"{option}: {path}: {error.strerror}") from error


def _write(path: Path, text: str) -> None:
    try:
        with host.private_file(path) as file:
            file.truncate(0)
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise MirrorError(f"--report: {path}: {error.strerror}") from error
