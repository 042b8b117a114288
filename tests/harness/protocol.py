"""Kafka's requests and answers by name, as kafka-python's classes.

Brokers that tests make themselves decode the ones and encode the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafka.protocol import admin, consumer, metadata, producer

if TYPE_CHECKING:
    from collections.abc import Iterable

_MODULES = (metadata, consumer, producer, admin)


def tables(
    names: Iterable[str],
) -> tuple[dict[int, tuple[str, Any]], dict[str, Any]]:
    """Names and classes of these requests by API key; classes of answers by name."""
    names = list(names)
    requests = {name: class_of(f"{name}Request") for name in names}
    return (
        {kind.API_KEY: (name, kind) for name, kind in requests.items()},
        {name: class_of(f"{name}Response") for name in names},
    )


def class_of(name: str) -> Any:
    return next(getattr(m, name) for m in _MODULES if hasattr(m, name))
