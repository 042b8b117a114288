"""The keys of MirrorMaker 2 that mirror serves, looked up from the settings' traits.

Each table maps a key to its setting and to a function from the text to what the model
reads. There is one for each place that may hold a key; `properties` knows which
overrides which. `answer` is the warning about all other keys.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mirror.config.cluster_settings import ClusterConfig
from mirror.config.mm2 import answers as mm2_answers
from mirror.config.mm2 import readers
from mirror.config.schema import FlowConfig
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
    for model in (ClusterConfig, FlowConfig):
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
_SERVED = {*CLUSTER, *FLOW, *FLOW_ONLY, *FROM_SOURCE, *FROM_TARGET}

# Right in another format or another place: no misspellings of served ones.
_LOOKALIKES = {"ssl.enabled.protocols", "replication.policy"}


def answer(key: str, rest: str) -> str:
    """The one warning about a key that has no effect here."""
    if rest in FROM_SOURCE or rest in FROM_TARGET:
        return (
            f"{key}: has no effect here, nor in MirrorMaker 2; write it with a "
            f"cluster's alias, as in A.{rest}"
        )
    if rest == "use.defaults.from":
        return (
            f"{key}: has no effect here, nor in MirrorMaker 2; write it with a flow, "
            f"as in A->B.{rest}"
        )
    if rest in FLOW:
        return (
            f"{key}: has no effect with a cluster's alias, nor in MirrorMaker 2; "
            f"write {rest}, or A->B.{rest}"
        )
    if reason := mm2_answers.reason(rest):
        return f"{key}: not needed, ignored: {reason}"
    meant = "" if rest in _LOOKALIKES or "${" in key else _near_key(rest)
    return f"{key}: unknown, ignored{meant}"


def newest_name(key: str) -> str:
    """The first of the keys that set the same in the same place; itself if none."""
    for known in (FLOW, TAKEN_AS_MEANT):
        if key in known:
            setting, _ = known[key]
            return next(each for each, (name, _) in known.items() if name == setting)
    return key


def _near_key(rest: str) -> str:
    """A misspelling differs by a letter or two; other keys differ by a word."""
    same_shape = [
        known
        for known in _SERVED
        if known.count(".") == rest.count(".") and abs(len(known) - len(rest)) < 3
    ]
    return near(rest, same_shape, cutoff=0.85)
