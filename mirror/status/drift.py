"""How a copy differs from its topic, in words.

Main function: `differences`, over the JSON form of a topic's drift, which the status
and `mirror topic list` share. `topics` finds the differences.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mirror.status.wording import NOTHING

if TYPE_CHECKING:
    from collections.abc import Mapping

NOT_SET = "not set"


def differences(topic: Mapping[str, Any]) -> str:
    """All differences in one line."""
    here, there = topic["partitions"], topic["target_partitions"]
    said = []
    if not there and not topic["problem"]:
        said.append("no copy yet")
    elif 0 < there < here:
        said.append("too few partitions")
    elif there > here and not topic["merged"]:
        said.append("more partitions than its topic")
    for config in topic["configs"]:
        wanted = config["wanted"]
        should = "not be set" if wanted is None else f"be {value(wanted)}"
        said.append(f"{config['name']} is {value(config['found'])}, should {should}")
    said += [f"sources differ on {conflict}" for conflict in topic["conflicts"]]
    if topic["problem"]:
        said.append(topic["problem"])
    return "; ".join(said) or NOTHING


def value(text: str | None) -> str:
    """A config's value, which may be missing or empty."""
    return NOT_SET if text is None else text or '""'
