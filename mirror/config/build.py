"""From a document's plain mappings to the model's types, all problems at once.

Main function: `build`. Sections are checked one by one, so one bad setting hides no
other: valid sections are built and passed on to `rules`.
"""

from __future__ import annotations

from collections.abc import Mapping
import re
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from mirror.config.cluster_settings import ClusterConfig
from mirror.config.document import Document, Path, dotted
from mirror.config.pair_settings import PairConfig
from mirror.config.schema import SECTIONS, FlowConfig, MirrorConfig
from mirror.config.section import is_secret, may_hide_secrets, section_of, settings
from mirror.config.section_names import flow_ends, pair_parts
from mirror.config.service_settings import ServiceConfig
from mirror.config.values import near

_Section = TypeVar("_Section", bound=BaseModel)


def build(document: Document) -> tuple[MirrorConfig, list[str]]:
    """Check every section against the schema: the valid part of the configuration, and
    the problems; it is all of it if there are none.
    """
    builder = _Builder(document)
    clusters = builder.clusters()
    flows = builder.flows(builder.defaults())
    pairs = builder.pairs()
    service = builder.section(ServiceConfig, ("service",), builder.mapping("service"))
    builder.unknown_sections()
    config = MirrorConfig(
        clusters=clusters,
        flows=_with_homes(flows, pairs),
        recovery=pairs,
        service=service or ServiceConfig(),
    )
    return config, [*document.problems, *document.by_hand, *builder.problems]


def _with_homes(
    flows: Mapping[str, FlowConfig], pairs: Mapping[str, PairConfig]
) -> dict[str, FlowConfig]:
    """Tell the flows of pairs that leave records out by key which keys those are."""
    found = dict(flows)
    for pair in pairs.values():
        for name, flow in flows.items():
            if pair.leave_out_away and {flow.source, flow.target} == set(pair.members):
                homes = pair.homes_seen_from(flow.source)
                found[name] = flow.model_copy(update={"homes": homes})
    return found


class _Builder:
    """Goes through one document's sections and collects what is wrong."""

    def __init__(self, document: Document) -> None:
        self._raw = document.raw
        self._spelled = document.spelled
        self.problems: list[str] = []

    def mapping(self, section: str) -> Mapping[str, Any]:
        """A section; an empty one if it is missing or not a mapping."""
        entries = self._raw.get(section)
        return entries if isinstance(entries, Mapping) else {}

    def unknown_sections(self) -> None:
        for name, entries in self._raw.items():
            if name not in SECTIONS:
                self._problem((name,), f"unknown setting{near(name, SECTIONS)}")
            elif not isinstance(entries, Mapping) and entries is not None:
                self._problem((name,), "is not a mapping")
        for name in ("clusters", "flows"):
            if not self._raw.get(name):
                self._problem((name,), "is missing; at least one is needed")

    def clusters(self) -> dict[str, ClusterConfig]:
        built = {}
        for alias, entry in self.mapping("clusters").items():
            given = {"alias": str(alias)}
            cluster = self.section(
                ClusterConfig, ("clusters", str(alias)), entry, filled_in=given
            )
            if cluster:
                built[str(alias)] = cluster
        return built

    def defaults(self) -> dict[str, Any]:
        """The settings that each flow starts from; bad ones are reported here, once."""
        entries = dict(self.mapping("defaults"))
        ends = {"source": "A", "target": "B"}
        while entries:
            try:
                FlowConfig.model_validate({**entries, **ends})
            except ValidationError as error:
                self._report(error, FlowConfig, ("defaults",))
                bad = {
                    str(detail["loc"][0]) for detail in error.errors() if detail["loc"]
                }
                if not bad:
                    return {}
                entries = {key: entries[key] for key in entries if str(key) not in bad}
            else:
                break
        return {key: entries[key] for key in entries if key not in ends}

    def flows(self, defaults: Mapping[str, Any]) -> dict[str, FlowConfig]:
        built: dict[str, FlowConfig] = {}
        first: dict[str, str] = {}
        for key, entry in self.mapping("flows").items():
            path = ("flows", str(key))
            ends = flow_ends(str(key))
            if ends is None:
                self._problem(path, 'not a flow\'s name; use "A->B"')
                continue
            name = "->".join(ends)
            if name in first:
                self._problem(path, f'the same flow as "{first[name]}"; keep one')
                continue
            first[name] = str(key)
            self._known_clusters(path, ends)
            if "homes" in defaults or (isinstance(entry, Mapping) and "homes" in entry):
                self._problem((*path, "homes"), "belongs to a pair, under recovery")
            given = {"source": ends[0], "target": ends[1]}
            flow = self.section(
                FlowConfig, path, entry, under=defaults, filled_in=given
            )
            if flow:
                built[name] = flow
        return built

    def pairs(self) -> dict[str, PairConfig]:
        built: dict[str, PairConfig] = {}
        for key, entry in self.mapping("recovery").items():
            path = ("recovery", str(key))
            if (parts := pair_parts(str(key))) is None:
                what = 'not the name of a pair; use "A<->B", or "A<->B/orders"'
                self._problem(path, what)
                continue
            one, other, scope = parts
            self._known_clusters(path, (one, other))
            given = {"one": one, "other": other, "scope": scope}
            pair = self.section(PairConfig, path, entry, filled_in=given)
            if pair is not None and pair.name in built:
                self._problem(path, f"the pair {pair.name} is given twice; keep one")
            elif pair is not None:
                built[pair.name] = pair
        return built

    def section(
        self,
        model: type[_Section],
        path: Path,
        entry: Any,
        *,
        under: Mapping[str, Any] | None = None,
        filled_in: Mapping[str, str | None] | None = None,
    ) -> _Section | None:
        """One section as its type, or None after reporting why not."""
        given = {} if entry is None else entry
        if not isinstance(given, Mapping):
            self._problem(path, "is not a mapping")
            return None
        sound = True
        for name in filled_in or {}:
            if name in given:
                self._problem(
                    (*path, name), "is already given by the key above; remove it"
                )
                sound = False
        try:
            made = model.model_validate({**(under or {}), **given, **(filled_in or {})})
        except ValidationError as error:
            self._report(error, model, path)
            return None
        return made if sound else None

    def _known_clusters(self, path: Path, ends: tuple[str, str]) -> None:
        aliases = [str(alias) for alias in self.mapping("clusters")]
        for alias in dict.fromkeys(ends):
            if alias not in aliases:
                self._problem(
                    path, f'there is no cluster "{alias}"{near(alias, aliases)}'
                )

    def _report(
        self, error: ValidationError, model: type[BaseModel], path: Path
    ) -> None:
        self.problems += sentences(error, model, path, self._spelled)

    def _problem(self, path: Path, text: str) -> None:
        self.problems.append(f"{self._spelled.get(path, dotted(path))}: {text}")


# ---- Pydantic's findings as sentences: setting, value, and what would be right ----
#
# Main function: `sentences`. Values that may hold secrets are never repeated, nor
# those of unknown settings, since a secret may have a mistyped name.


_CALLED = {
    "clusters": "a cluster",
    "flows": "a flow",
    "recovery": "a pair",
    "service": "service",
}
_EXAMPLE = '; use "broker-1.example.com:9092"'
_IN_LIST = re.compile(r"\[\d+\]: ")
_KINDS = {
    "int": "is not a whole number",
    "float": "is not a number",
    "finite": "is not a number",
    "bool": "is neither true nor false",
    "string": "is not text: write it in quotes",
    "path": "is not a path: write it in quotes",
    "dict": "is not a mapping",
    "mapping": "is not a mapping",
    "model": "is not a mapping",
}
_BOUNDS = {
    "greater_than": ("too small; it must be above", "gt"),
    "greater_than_equal": ("too small; at least", "ge"),
    "less_than": ("too large; it must be below", "lt"),
    "less_than_equal": ("too large; at most", "le"),
}


def sentences(
    error: ValidationError,
    model: type[BaseModel],
    path: Path,
    spelled: Mapping[Path, str],
) -> list[str]:
    """At least one sentence for each finding about the section at `path`."""
    found = []
    for detail in error.errors(include_url=False):
        context: Mapping[str, Any] = detail.get("ctx", {})
        place, section = _place([str(part) for part in detail["loc"]], model, path)
        if detail["type"] == "mirror_section":
            place = (*place, context["field"])
        texts = context.get("each") or [
            _sentence(detail["type"], detail["input"], context, place, section)
        ]
        for text in texts:
            joint = "" if _IN_LIST.match(text) else ": "
            found.append(f"{spelled.get(place, dotted(place))}{joint}{text}")
    return found


def _place(
    parts: list[str], model: type[BaseModel], path: Path
) -> tuple[Path, type[BaseModel]]:
    """A finding's place, and the section that it is in. Below a section's settings,
    parts are pydantic's: tags of unions, positions in a list.
    """
    while len(parts) > 1 and parts[0] in model.model_fields:
        inner = section_of(model.model_fields[parts[0]])
        if inner is None:
            break
        path, model, parts = (*path, parts[0]), inner, parts[1:]
    return (*path, *parts[:1]), model


def _sentence(
    kind: str,
    value: Any,
    context: Mapping[str, Any],
    place: Path,
    model: type[BaseModel],
) -> str:
    if kind == "mirror_section":
        return str(context["what"])
    if kind in {"extra_forbidden", "invalid_key"}:  # a name that is no text, too
        return f"unknown setting{_meant(place[-1], model)}"
    if kind == "missing":
        servers = place[-1] == "bootstrap_servers"
        return f"is missing{_EXAMPLE if servers else ''}"
    info = model.model_fields[place[-1]]
    if is_secret(info):
        return "must be text: write it in quotes"
    if may_hide_secrets(info):
        return _what_is_wrong(kind)
    if kind == "literal_error":
        choices = _choices(info.annotation)
        meant = near(value, choices) if isinstance(value, str) else ""
        return f"{_shown(value)} is not one of {', '.join(choices)}{meant}"
    if kind in _BOUNDS:
        words, bound = _BOUNDS[kind]
        return f"{value} is {words} {context[bound]:g}"
    text = f"{_shown(value)} {_what_is_wrong(kind)}"
    if kind == "float_parsing" and place[-1].endswith("_seconds"):
        text += "; write seconds, without a unit"
    if isinstance(value, str) and "#" in value:
        text += "; a comment cannot follow a value on the same line"
    return text


def _meant(name: str, model: type[BaseModel]) -> str:
    """The setting that was probably meant, or the section that has it."""
    homes = [
        called
        for section, called in _CALLED.items()
        if SECTIONS[section] is not model and name in settings(SECTIONS[section])
    ]
    return f"; it belongs to {homes[0]}" if homes else near(name, settings(model))


def _what_is_wrong(kind: str) -> str:
    if kind == "string_too_short":
        return "is empty; remove it or give it a value"
    return _KINDS.get(kind.partition("_")[0], "cannot be used")


def _choices(annotation: Any) -> tuple[str, ...]:
    """The words of a Literal, also within unions and annotations."""
    parts = getattr(annotation, "__args__", ())
    words = tuple(part for part in parts if isinstance(part, str))
    for part in parts:
        words += _choices(part)
    return words


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)
