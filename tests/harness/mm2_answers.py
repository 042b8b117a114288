"""What MirrorMaker 2's own classes make of a configuration, beside what mirror does.

Main functions: `theirs`, which asks the classes of Kafka's jars, and `ours`. Both give
for each flow that copies the names of copies, and whether groups are translated.
Strimzi's operator is no class of Kafka's: `connectors` makes the connectors' configs
that it makes of a manifest (KafkaMirrorMaker2Connectors in its repository).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
import subprocess
from typing import TYPE_CHECKING, Any

import yaml

from mirror.config import own_topics
from mirror.config.build import build
from mirror.config.load import read
from mirror.errors import ConfigError
from mirror.host import require_java
from mirror.playground.jars import kafka_jars
from mirror.policy.selection import GroupFilter, select_topics

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_JAVA = Path(__file__).parents[1] / "java" / "AskMirrorMaker.java"


@dataclass(slots=True)
class Answers:
    """What a configuration means, by flow."""

    copies: dict[str, dict[str, str]] = field(default_factory=dict)
    """By topic the name of its copy, of those that are copied."""
    groups: dict[str, set[str]] = field(default_factory=dict)
    checkpoints: dict[str, str] = field(default_factory=dict)
    """The topic's name."""
    offset_syncs: dict[str, str] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    """All that its connectors and their clients go by, as text."""
    refused: str = ""
    """Why it is refused as a whole."""
    warnings: tuple[str, ...] = ()


def theirs(
    files: Sequence[Path], topics: Sequence[str], groups: Sequence[str]
) -> list[Answers]:
    """Of properties files for its own process, and of manifests (.yaml)."""
    asked: list[str] = []
    numbers: list[tuple[int, str]] = []
    for number, file in enumerate(files):
        if file.suffix == ".properties":
            numbers.append((number, ""))
            asked += ["dedicated", str(file), str(file)]
        else:
            for flow, configs in connectors(file.read_text()).items():
                numbers.append((number, flow))
                asked.append("connector")
                for name in ("sourceConnector", "checkpointConnector"):
                    made = file.with_name(f"{file.stem}-{len(numbers)}-{name}")
                    _write(made, configs[name])
                    asked.append(str(made))
    answer = subprocess.run(
        [require_java(), "-XX:TieredStopAtLevel=1",
         "-Dorg.slf4j.simpleLogger.defaultLogLevel=off", "-cp", kafka_jars("mm2"),
         str(_JAVA), ",".join(topics), ",".join(groups), *asked],
        capture_output=True, text=True, check=False, timeout=180,
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr[-3000:]
    found = [Answers() for _ in files]
    for line in answer.stdout.splitlines():
        at, flow, what, told = line.split("\t")
        number, given = numbers[int(at)]
        _take(found[number], given or flow, what, told)
    return found


def _take(answers: Answers, flow: str, what: str, told: str) -> None:
    kind, _, name = what.partition(" ")
    match kind:
        case "refused":
            answers.refused = told
        case "topic":
            answers.copies.setdefault(flow, {}).update({name: told} if told else {})
        case "group":
            answers.groups.setdefault(flow, set()).update(
                {name} if told == "true" else ()
            )
        case "settings":
            answers.settings[flow] = told
        case "checkpoints":
            answers.checkpoints[flow] = told
        case "syncs":
            answers.offset_syncs[flow] = told


def ours(
    file: Path, topics: Sequence[str], groups: Sequence[str], environ: Mapping[str, str]
) -> Answers:
    """What mirror does with the file."""
    try:
        document = read(file, environ)
        config, problems = build(document)
    except ConfigError as error:
        return Answers(refused="; ".join(error.problems))
    if problems:
        return Answers(refused="; ".join(problems))
    found = Answers(warnings=document.warnings)
    for flow in config.enabled_flows:
        selected = select_topics(
            topics, flow.topic_filter, flow.replication_policy, flow.target
        )
        found.copies[flow.name] = {
            each.topic: each.target_topic for each in selected.mappings
        }
        wanted = GroupFilter(include=flow.groups, exclude=flow.groups_exclude)
        found.groups[flow.name] = {group for group in groups if wanted.matches(group)}
        found.checkpoints[flow.name] = own_topics.checkpoints(flow).name
        found.offset_syncs[flow.name] = own_topics.offset_syncs(flow).name
    return found


def connectors(manifest: str) -> dict[str, dict[str, dict[str, str]]]:
    """By flow and connector, the config that Strimzi's operator gives it."""
    found: dict[str, dict[str, dict[str, str]]] = {}
    for document in yaml.safe_load_all(manifest):
        spec = document["spec"]
        for mirror in spec["mirrors"]:
            if mirror.get("sourceConnector") is None:
                continue  # it copies nothing
            source = mirror.get("sourceCluster") or mirror["source"]["alias"]
            target = mirror.get("targetCluster") or spec["target"]["alias"]
            found[f"{source}->{target}"] = {
                name: _config(mirror, name, source, target)
                for name in ("sourceConnector", "checkpointConnector")
            }
    return found


def _config(
    mirror: Mapping[str, Any], name: str, source: str, target: str
) -> dict[str, str]:
    config = (mirror.get(name) or {}).get("config") or {}
    made = {key: _text(value) for key, value in config.items() if value is not None}
    for field_name, key in (
        ("topicsPattern", "topics"),
        ("topicsExcludePattern", "topics.exclude"),
        ("topicsBlacklistPattern", "topics.exclude"),
        ("groupsPattern", "groups"),
        ("groupsExcludePattern", "groups.exclude"),
        ("groupsBlacklistPattern", "groups.exclude"),
    ):
        if mirror.get(field_name) is not None:
            made[key] = _text(mirror[field_name])
    return made | {
        "name": name,
        "connector.class": "Strimzi's",
        "source.cluster.alias": source,
        "target.cluster.alias": target,
        "source.cluster.bootstrap.servers": "a:1",
        "target.cluster.bootstrap.servers": "b:1",
    }


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _write(file: Path, config: Mapping[str, str]) -> None:
    lines = (
        f"{key}={value}".replace("\\", "\\\\").replace("\n", "\\n")
        for key, value in config.items()
    )
    file.write_text("\n".join(lines) + "\n")
