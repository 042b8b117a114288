"""Environment variables laid over a file: MIRROR_<SECTION>__<NAME>__<setting>.

    MIRROR_CLUSTERS__us_east__sasl_password    clusters.us-east.sasl_password
    MIRROR_FLOWS__us_east__TO__eu__tasks       flows."us-east->eu".tasks
    MIRROR_CLUSTERS__eu__schema_registry__password
    MIRROR_DEFAULTS__tasks, MIRROR_SERVICE__http_port

Main function: `lay_over`. Names are not case-sensitive, and `_` stands for any
character that a variable's name cannot have; a name that matches two clusters or flows
is refused, as is one that matches none. A value stays text until the model reads it;
lists are written with commas or as JSON. An empty variable counts as not set.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from mirror.config.document import Document, Path
from mirror.config.schema import SECTIONS
from mirror.config.section import (
    is_list,
    is_list_of_texts,
    is_mapping,
    may_hide_secrets,
    section_of,
    settings,
    traits,
    with_inner,
)
from mirror.config.section_names import flow_ends
from mirror.config.values import near

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pydantic import BaseModel
    from pydantic.fields import FieldInfo

_PREFIX = "MIRROR_"
_NOT_SETTINGS = (
    *("TEST_", "CACHE", "CLASS_DATA", "IVY_SETTINGS", "SLOT", "CONFIG"),
    *("TOKEN_FILE", "CA_FILE"),
)
# Kubernetes sets these for a Service that is called "mirror".
_SERVICE_LINK = re.compile(r"(.*_)?(SERVICE_HOST|SERVICE_PORT(_.*)?|PORT(_\d+_.*)?)")
# A hook gets these, and may run mirror itself (`recovery.hooks`).
_OF_HOOKS = frozenset({"HOOK", "RUN", "STEP", "CALL", "FROM", "TO", "PLANNED"})
_NAMED = ("clusters", "flows")
_SETTINGS = {
    name: info
    for section in SECTIONS.values()
    for model in with_inner(section)
    for name, info in settings(model).items()
}
_SECRETS = {
    name.lower()
    for name, info in _SETTINGS.items()
    if may_hide_secrets(info) or is_mapping(info)
}


def _instead_of() -> dict[str, str]:
    """Settings of which a variable sets one instead of the other, not beside it."""
    pairs = [
        (name, other)
        for name, info in _SETTINGS.items()
        for other in (traits(info).instead_of, f"{name}_file")
        if other in _SETTINGS
    ]
    return {one: other for pair in pairs for one, other in (pair, pair[::-1])}


_INSTEAD_OF = _instead_of()


def lay_over(document: Document, environ: Mapping[str, str]) -> Document:
    """The document with every MIRROR_ variable's value in place of the file's."""
    raw = {
        section: _copied(entries, nested=section in _NAMED)
        for section, entries in document.raw.items()
    }
    spelled = dict(document.spelled)
    warnings, problems = list(document.warnings), list(document.problems)

    for variable, value in sorted(environ.items()):
        name = variable.removeprefix(_PREFIX)
        if name == variable or not value or name.startswith(_NOT_SETTINGS):
            continue
        if "__" not in name:
            if not _SERVICE_LINK.fullmatch(name) and name not in _OF_HOOKS:
                warnings.append(
                    f"{variable}: not a setting, ignored; settings have two "
                    "underscores, as in MIRROR_SERVICE__http_port"
                )
            continue
        found = _path(name, raw)
        if isinstance(found, str):
            problems.append(f"{variable}: {found}")
            continue
        path, info = found
        place: Any = raw
        for part in path[:-1]:
            place = _inside(place, part) if isinstance(place, dict) else None
        if not isinstance(place, dict):
            continue  # the file has something else there, which is a problem of its own
        place[path[-1]] = _parsed(info, value)
        place.pop(_INSTEAD_OF.get(path[-1], ""), None)
        spelled[path] = variable

    return Document(
        raw=raw,
        spelled=spelled,
        warnings=tuple(warnings),
        problems=tuple(problems),
        by_hand=document.by_hand,
    )


def secrets(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The variables that may hold secrets, to be kept from other processes."""
    return tuple(
        variable
        for variable in environ
        if variable.startswith(_PREFIX)
        and variable.rpartition("__")[2].lower() in _SECRETS
    )


def without_secrets(environ: Mapping[str, str]) -> dict[str, str]:
    """What another process may get of them."""
    hidden = frozenset(secrets(environ))
    return {name: value for name, value in environ.items() if name not in hidden}


def _inside(place: dict[str, Any], part: str) -> Any:
    """What is at this key, which may be empty so far."""
    if place.get(part) is None:
        place[part] = {}
    return place[part]


def _path(name: str, raw: Mapping[str, Any]) -> tuple[Path, FieldInfo] | str:
    """Which setting a variable means, or why it means none."""
    section, _, rest = name.partition("__")
    section = section.lower()
    if section not in SECTIONS:
        return f'there is no section "{section}"{near(section, SECTIONS)}'
    path: Path = (section,)
    if section == "recovery":
        return "pairs are set in the file only"
    if section in _NAMED:
        known = raw.get(section)
        found = _named(section, rest, known if isinstance(known, dict) else {})
        if isinstance(found, str):
            return found
        entry, rest = found
        path = (section, entry)
    return _setting(SECTIONS[section], path, rest)


def _setting(
    model: type[BaseModel], path: Path, rest: str
) -> tuple[Path, FieldInfo] | str:
    """A setting of a section, or of a section in it."""
    known = settings(model)
    by_lower = {each.lower(): each for each in known}
    first, _, deeper = rest.partition("__")
    if (name := by_lower.get(first.lower())) is not None:
        inner = section_of(known[name])
        if inner is None and not deeper:
            return (*path, name), known[name]
        if inner is not None and not deeper:
            some = next(iter(settings(inner)))
            return f"{name} is a mapping; name a setting in it, as in {name}__{some}"
        if inner is not None:
            return _setting(inner, (*path, name), deeper)
    return f'unknown setting "{rest}"{near(rest, known)}'


def _named(section: str, rest: str, known: Iterable[str]) -> tuple[str, str] | str:
    """The cluster or flow that a variable names, and what follows the name."""
    what = section.removesuffix("s")
    hits = []
    for entry in known:
        written = _as_variable(str(entry))
        if _flat(rest).startswith(f"{_flat(written)}__"):
            hits.append((entry, rest[: len(written)], rest[len(written) + 2 :]))
    # us-east may exist beside us_east: an exact name wins.
    exact = [hit for hit in hits if hit[1] == _as_variable(hit[0], keep=True)]
    hits = exact or hits
    if len(hits) == 1:
        return hits[0][0], hits[0][2]
    if hits:
        could_be = " or ".join(f'"{entry}"' for entry, _, _ in hits)
        return f"could mean the {what} {could_be}; rename one of them"
    given, found, _ = rest.rpartition("__")
    if not found:
        return f"names no setting; use {_PREFIX}{section.upper()}__<{what}>__<setting>"
    suggested = near(given, [_as_variable(str(entry)) for entry in known])
    return f'there is no {what} "{given}"{suggested}'


def _as_variable(entry: str, *, keep: bool = False) -> str:
    """How an alias, or the name of a flow, is written within a variable."""
    written = "__TO__".join(flow_ends(entry) or (entry,))
    return written if keep else re.sub(r"[^A-Za-z0-9_]", "_", written)


def _flat(name: str) -> str:
    return re.sub(r"[^a-z0-9_]", "_", name.lower())


def _parsed(info: FieldInfo, value: str) -> Any:
    """JSON where a list or a mapping is meant; everything else stays text."""
    if not (is_list(info) or is_mapping(info)):
        return value
    try:
        found = json.loads(value)
    except ValueError:
        return value
    if is_mapping(info):
        return found if isinstance(found, dict) else value
    # A regular expression may look like a list: [0-9] is none in JSON, but [0] is.
    listed = isinstance(found, list) and (
        not is_list_of_texts(info) or all(isinstance(each, str) for each in found)
    )
    return found if listed else value


def _copied(entries: Any, *, nested: bool) -> Any:
    if not isinstance(entries, dict):
        return {} if entries is None else entries
    return {
        key: _copied(entry, nested=False) if nested else _inner(entry)
        for key, entry in entries.items()
    }


def _inner(entry: Any) -> Any:
    """A section within a section; null stays what it is, a setting without a value."""
    return dict(entry) if isinstance(entry, dict) else entry
