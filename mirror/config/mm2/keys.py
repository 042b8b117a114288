"""The keys of MirrorMaker 2 that mirror serves, looked up from the settings' traits.

Each table maps a key to its setting and to a function from the text to what the model
reads. There is one for each place that may hold a key; `properties` knows which
overrides which. `answer` is the warning about all other keys.
"""

from __future__ import annotations

from collections.abc import Callable
import re
from typing import TYPE_CHECKING, Any

from mirror.config.cluster_settings import ClusterConfig
from mirror.config.mm2 import answers as mm2_answers
from mirror.config.mm2 import naming as mm2_naming
from mirror.config.mm2 import readers
from mirror.config.schema import FlowConfig
from mirror.config.service_settings import ServiceConfig
from mirror.config.traits import Where, is_list, settings, traits
from mirror.config.values import near

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydantic.fields import FieldInfo

    from mirror.config.traits import Key

Meaning = tuple[str, Callable[[str], Any]]


def table(where: Where) -> dict[str, Meaning]:
    """The keys that this place may hold, each with how to read its text."""
    return {
        key.name: (
            name,
            key.read or (readers.listed if is_list(info) else readers.text),
        )
        for name, info, key in _declared(where)
    }


def spelled(where: Where) -> dict[str, str]:
    """By setting, today's name of the key that this place may hold for it."""
    found: dict[str, str] = {}
    for name, _, key in _declared(where):
        found.setdefault(name, key.name)
    return found


def _declared(where: Where) -> Iterator[tuple[str, FieldInfo, Key]]:
    for model in (ClusterConfig, FlowConfig, ServiceConfig):
        for name, info in settings(model).items():
            for key in traits(info).mm2:
                if where in key.where:
                    yield name, info, key


CLUSTER = table(Where.CLUSTER)
FLOW = table(Where.FLOW)
FLOW_BELOW_CLUSTER = FROM_SOURCE = table(Where.SOURCE)
FLOW_ONLY = table(Where.ONE_FLOW) | {
    f"source.{key}": meaning for key, meaning in FROM_SOURCE.items()
}
FROM_TARGET = table(Where.TARGET)
TAKEN_AS_MEANT = table(Where.TOP_AS_MEANT)
SERVICE = [
    (key.name, (name, key.read or readers.text))
    for name, _, key in _declared(Where.SERVICE)
]
"""Here one key may set several settings."""
_TOP_ONLY = {"clusters", *(key for key, _ in SERVICE)}
_SERVED = {*CLUSTER, *FLOW, *FLOW_ONLY, *FROM_SOURCE, *FROM_TARGET}
_STORE_TYPES = ("ssl.keystore.type", "ssl.truststore.type")
_CREDENTIALS = {*table(Where.CREDENTIAL), *_STORE_TYPES}
_OF_CLUSTER = {*CLUSTER, *_CREDENTIALS, *FROM_SOURCE, *FROM_TARGET}
_CLUSTER_PREFIX = re.compile(r"((source|target)\.)?cluster\.")

# Right in another format or another place: no misspellings of served ones.
_LOOKALIKES = {"ssl.enabled.protocols", "replication.policy"}


def answer(key: str, rest: str) -> str:
    """The one warning about a key that has no effect here."""
    if place := _place(rest):
        return f"{key}: has no effect here, nor in MirrorMaker 2; write it {place}"
    if rest in FLOW or rest in mm2_naming.ALIASES:
        return (
            f"{key}: has no effect with a cluster's alias, nor in MirrorMaker 2; "
            f"write {rest}, or A->B.{rest}"
        )
    if reason := mm2_answers.reason(rest):
        return f"{key}: not needed, ignored: {reason}"
    bare = _CLUSTER_PREFIX.sub("", mm2_answers.without_role(rest))
    for name in (bare, f"consumer.{bare}", f"producer.{bare}"):
        if name in _OF_CLUSTER:
            return f"{key}: has no effect here; write it {_with_alias(name)}"
    return f"{key}: unknown, ignored{_near_key(rest)}"


def _place(rest: str) -> str:
    """Where a key has an effect that is served elsewhere; empty for other keys."""
    if rest in FROM_SOURCE or rest in FROM_TARGET:
        return _with_alias(rest)
    if rest in ("use.defaults.from", "enabled"):
        return f"with a flow, as in A->B.{rest}"
    return "without a prefix" if rest in _TOP_ONLY else ""


def _with_alias(name: str) -> str:
    example = "B" if name in FROM_TARGET else "A"
    return f"with a cluster's alias, as in {example}.{name}"


def newest_name(key: str) -> str:
    """The first of the keys that set the same in the same place; itself if none."""
    for known in (FLOW, TAKEN_AS_MEANT):
        if key in known:
            setting, _ = known[key]
            return next(each for each, (name, _) in known.items() if name == setting)
    return key


def _near_key(rest: str) -> str:
    """A misspelling differs by a letter or two; other keys differ by a word."""
    if (bare := rest.strip("\"'")) != rest:
        return f"; without quotes it is {bare}"
    if rest in _LOOKALIKES or "${" in rest:
        return ""
    same_shape = [
        known
        for known in (*_SERVED, *mm2_answers.REASONS)
        if known.count(".") == rest.count(".") and abs(len(known) - len(rest)) < 3
    ]
    return near(rest, same_shape, cutoff=0.85)
