"""The Java check: what is found, what is refused, and what the message says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mirror.errors import JavaMissingError
from mirror.host import require_java

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.unit


def fake_java(home: Path, answer: str) -> Path:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho '{answer}' >&2\n")
    java.chmod(0o755)
    return java


@pytest.mark.parametrize(
    "answer",
    ['openjdk version "17.0.15" 2025-04-15', 'java version "21" 2023-09-19 LTS'],
)
def test_new_enough_java_of_java_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    """JAVA_HOME's java is used if it is 17 or newer, whatever is on PATH."""
    java = fake_java(tmp_path, answer)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    assert require_java() == java


def test_java_on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without JAVA_HOME, the java on PATH is used."""
    java = fake_java(tmp_path, 'openjdk version "17.0.1"')
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", f"{java.parent}:/usr/bin:/bin")

    assert require_java() == java


@pytest.mark.parametrize(
    ("answer", "found"),
    [('openjdk version "11.0.2"', "11"), ('java version "1.8.0_292"', "8")],
)
def test_old_java(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, found: str
) -> None:
    """An old Java is refused with its version, its place, and what to install."""
    java = fake_java(tmp_path, answer)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    with pytest.raises(JavaMissingError) as caught:
        require_java()

    assert str(caught.value) == (
        f"Java 17 or newer is needed, found {found} at {java}: install e.g."
        " Debian's openjdk-17-jre-headless and set JAVA_HOME"
    )


def test_no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without Java gets a message that says so."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(JavaMissingError, match="found none on PATH: install"):
        require_java()


def test_java_home_without_java(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A JAVA_HOME without Java is named, and PATH is not searched instead."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    with pytest.raises(JavaMissingError, match="has no bin/java"):
        require_java()


def test_java_without_a_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A binary that prints no version is refused."""
    java = fake_java(tmp_path, "no idea")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    with pytest.raises(JavaMissingError, match=f"{java} did not print its version"):
        require_java()
