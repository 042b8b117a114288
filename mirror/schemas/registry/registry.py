"""One schema registry: what it holds, and changes of that.

Main type: `Registry`. Each call asks. What is not there is None; every other refusal is
a `RegistryError`, or an `AuthenticationError` where our own secrets cannot be used.
Writes are not checked here: a registry may keep another text, id or version than it was
given, which is only seen by reading it back.

`open_registries` opens both of a flow, each below its own rate (`RequestPace`); `Lists`
keeps what contexts had the last time. The last parts read and write the JSON of
Confluent's API, texts byte for byte, and know where things are in it.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
import itertools
import json
import time
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar
from urllib.parse import quote

from mirror.clusters.bounded import Bounds
from mirror.errors import RegistryError
from mirror.schemas.registry.channel import NOT_THERE, Channel
from mirror.schemas.registry.values import (
    Key,
    Mode,
    Reference,
    Schema,
    SchemaVersion,
    Subject,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from mirror.config.cluster_settings import ClusterConfig
    from mirror.config.schema import FlowConfig
    from mirror.schemas.registry.channel import RegistryAnswer

T = TypeVar("T")
_DELETED = {"deleted": "true"}
_NO_OTHERS = frozenset({"", ".", ".__GLOBAL"})
"""The default context, and one that has modes and levels only."""
_NO_SUBJECT = 40401
"""Confluent's code."""


class RequestPace:
    """A limit of requests per second. Not thread-safe."""

    def __init__(self, per_second: float) -> None:
        self._seconds = 1.0 / per_second
        self._next = time.monotonic() - 1.0
        """When the next one would be due without the second's worth."""

    def __call__(self) -> None:
        """Wait until another request may be sent."""
        now = time.monotonic()
        self._next = max(self._next, now - 1.0) + self._seconds
        if self._next > now:
            time.sleep(self._next - now)


def _unpaced() -> None:
    """Requests follow each other at once."""


class Registry:
    """The registry of one cluster. `pace` is called before each request, and may wait.

    Use it as a context manager, or `close` it. Not thread-safe.
    """

    def __init__(
        self, config: ClusterConfig, *, pace: Callable[[], None] = _unpaced
    ) -> None:
        assert config.schema_registry is not None, "checked with the configuration"
        self.alias = config.alias
        self._channel = Channel(config.schema_registry, config.alias, pace)
        self._lists = Lists(self._channel)

    @property
    def asked(self) -> int:
        """How many requests were sent."""
        return self._channel.asked

    @property
    def failed(self) -> int:
        """How many of them got no answer, or a failure of the registry's own."""
        return self._channel.failed

    def contexts(self) -> tuple[str, ...]:
        """All contexts, the default one (empty) first, which is the only one of a
        registry that does not know of contexts.

        Raises:
            RegistryError: as all methods do, if the registry cannot be asked.
        """
        try:
            said = self._channel.ask("GET", "/contexts").document
        except RegistryError as error:
            if error.status not in NOT_THERE:
                raise
            return ("",)
        with self._channel.reading("the list of contexts"):
            said = _list_of(str, said)
        return ("", *sorted({name.strip(":") for name in said} - _NO_OTHERS))

    def versions(self, context: str = "") -> tuple[SchemaVersion, ...]:
        """All versions of all subjects in a context, softly deleted ones too, in few
        requests; the same object as long as nothing changed. Lists may lack metadata
        and rule sets, and what happens meanwhile may look deleted: `schema` is right.
        """
        return self._lists.versions(context)

    def schema(self, subject: Subject, version: int) -> SchemaVersion | None:
        """One version, also a deleted one."""
        path = f"{of_subject(subject)}/versions/{version}"
        alive = self._channel.ask("GET", path).document
        said = alive or self._channel.ask("GET", path, params=_DELETED).document
        if said is None:
            return None
        with self._channel.reading(f"version {version} of {subject}"):
            return read_version(said, subject.context, deleted=alive is None)

    def of_subject(self, subject: Subject) -> tuple[SchemaVersion, ...]:
        """Its versions, softly deleted ones too; none if there is no such subject."""
        return tuple(self._lists.of_subject(subject))

    def ids_of(self, guid: str) -> tuple[tuple[str, int], ...]:
        """The context and the id that a GUID has, in each context that knows it."""
        try:
            said = self._channel.ask("GET", f"/schemas/guids/{guid}/ids").document
        except RegistryError as error:
            if error.status in NOT_THERE:
                return ()  # it issues no GUIDs
            raise
        with self._channel.reading(f"the ids of GUID {guid}"):
            return tuple(
                (str(each["context"]).strip(":").removesuffix("."), int(each["id"]))
                for each in said or ()
            )

    def numbers(self, subject: Subject) -> list[int]:
        """Which versions a subject has, deleted ones too."""
        return self._lists.numbers(subject)

    def by_id(self, context: str, number: int) -> Schema | None:
        """The schema with this id."""
        path = f"{of_context(context)}/schemas/ids/{number}"
        said = self._channel.ask("GET", path).document
        with self._channel.reading(f"the schema with id {number}"):
            return None if said is None else Schema(**_content(said))

    def uses(self, context: str, number: int) -> tuple[Key, ...]:
        """Which versions have this id, deleted ones too."""
        path = f"{of_context(context)}/schemas/ids/{number}/versions"
        said = self._channel.ask(
            "GET",
            path,
            params=_DELETED,
            bounds=LIST,  # all subjects may share an id
        ).document
        with self._channel.reading(f"the versions of id {number}"):
            return read_uses(said or (), context)

    def register(self, wanted: SchemaVersion, *, keeps: bool = True) -> int:
        """Register a version. `keeps`: with its id and number; its subject must be in
        IMPORT. Returns the id in the answer.
        """
        path = f"{of_subject(wanted.full_subject)}/versions"
        said = self._channel.ask(
            "POST", path, body=registration(wanted, keeps=keeps)
        ).document
        with self._channel.reading("a new version"):
            number = int(said["id"])
        with self._channel.reading("the id of a new version"):
            if not 0 <= number < 1 << 32:  # as records have it
                raise ValueError(number)
        return number

    def delete(self, subject: Subject, version: int, *, for_good: bool = False) -> None:
        """Delete a version softly; `for_good`: one that is deleted softly. One that is
        deleted already stays so.
        """
        self._channel.ask(
            "DELETE",
            f"{of_subject(subject)}/versions/{version}",
            params={"permanent": "true"} if for_good else {},
        )

    def remove(self, subject: Subject) -> None:
        """Delete a subject, all of its versions and its mode for good."""
        for params in ({}, {"permanent": "true"}):
            self._channel.ask("DELETE", of_subject(subject), params=params)
        self.set_mode(subject, None)

    def mode(self, subject: Subject) -> Mode | None:
        """The subject's own mode; None: that of its context. Of a context, a `Subject`
        without a name, the mode that holds there.
        """
        try:
            answer = self._channel.ask("GET", of_setting("mode", subject))
        except RegistryError as error:
            if error.status in NOT_THERE:
                raise self._no_modes() from error
            raise
        return None if answer.missing else self._mode_in(answer.document)

    def set_mode(
        self, subject: Subject, mode: Mode | None, *, force: bool = False
    ) -> None:
        """Set a subject's or a context's own mode; None takes it away. `force`: IMPORT
        where versions are already.
        """
        if mode is None:
            self._channel.ask("DELETE", of_setting("mode", subject))
            return
        answer = self._channel.ask(
            "PUT",
            of_setting("mode", subject),
            params={"force": "true"} if force else {},
            body={"mode": mode.value},
        )
        with self._channel.reading(f"the new mode of {subject}"):
            if self._mode_in(answer.document) is not mode:
                raise ValueError(mode)

    def level(self, subject: Subject) -> str | None:
        """The subject's own compatibility level; None: that of its context."""
        answer = self._channel.ask("GET", of_setting("config", subject))
        if answer.missing:
            return None
        with self._channel.reading(f"the level of {subject}"):
            # A subject may have other settings, such as an alias, and no level.
            found = answer.document.get("compatibilityLevel")
            return None if found is None else str(found)

    def tells_levels(self, nowhere: Subject) -> bool:
        """Whether it tells a subject without a level of its own from one with NONE. If
        so, it knows no level of a subject that is not there; others, no such subject.
        """
        asked = self._channel.ask("GET", of_setting("config", nowhere))
        return asked.missing != _NO_SUBJECT

    def set_level(self, subject: Subject, level: str | None) -> None:
        """Set it; None takes it away."""
        path = of_setting("config", subject)
        if level is None:
            self._channel.ask("DELETE", path)
        else:
            self._channel.ask("PUT", path, body={"compatibility": level})

    def _mode_in(self, said: Any) -> Mode:
        if said is None:
            raise self._no_modes()
        with self._channel.reading("the mode"):
            return Mode(said["mode"])

    def _no_modes(self) -> RegistryError:
        where = self._channel.where
        return RegistryError(f"{where} has no modes, so it cannot keep ids")

    def close(self) -> None:
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextmanager
def open_registries(
    flow: FlowConfig, source: ClusterConfig, target: ClusterConfig
) -> Iterator[tuple[Registry, Registry]]:
    """The source's and the target's, each asked no more often than the flow may."""
    rate = flow.schemas_requests_per_second
    with (
        Registry(source, pace=RequestPace(rate)) as of_source,
        Registry(target, pace=RequestPace(rate)) as of_target,
    ):
        yield of_source, of_target


# ---- all versions in a context of a registry, softly deleted ones too ----
#
# Main type: `Lists`. It asks for two lists, with and without what is deleted, and
# where a registry has no list of schemas, subject by subject; also where its list is
# larger than mirror takes at once, and it has no pages of fewer rows. A list that is
# the same as the last time is not read again: it is large, and mostly nothing
# changed. Of one above a megabyte only the end is asked for in between: another
# version, or one less, moves it.


LIST = Bounds(size=32 << 20, values=500_000)
"""A page of a thousand versions, which is what a registry sends at most by default, of
32 KB each, or a whole list of 16,000 of 2 KB.
"""
_ROWS = 256
"""In a page, once one was too large; a sixteenth of that if it still is."""
_MOST_VERSIONS = 500_000
_MOST_TEXT = 256 << 20
"""Characters in all schemas of a context: 100,000 versions of 2.6 KB."""
_LARGE = 1 << 20
"""Bytes of a list that is not asked for as a whole at every look."""
_WHOLE_SECONDS = 60.0
"""How often it is: what changes without another count is seen then."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """One list as it was the last time."""

    pages: dict[bytes, tuple[SchemaVersion, ...]]
    """By digest."""
    versions: dict[Key, SchemaVersion]


class Lists:
    """Reads lists, and keeps the last ones."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._kept: dict[tuple[str, bool], _Kept] = {}
        self._ends: dict[tuple[str, bool], tuple[bytes, float]] = {}
        """Of large ones: the digest of the last row alone, and until when (monotonic)
        that is enough.
        """
        self._rows_each = 0
        """How many rows a page may have; 0: as the registry likes."""
        self._joined: dict[str, tuple[_Kept, _Kept, tuple[SchemaVersion, ...]]] = {}

    def versions(self, context: str) -> tuple[SchemaVersion, ...]:
        """In the order of subjects and versions; the same object if nothing changed.

        Raises:
            RegistryError: the registry cannot be asked.
        """
        try:
            # In this order a version that comes meanwhile does not look deleted.
            every = self._list(context, deleted=True)
            alive = self._list(context, deleted=False)
        except RegistryError as error:
            if error.status not in NOT_THERE and not error.too_large:
                raise
            return self._one_by_one(context)
        joined = self._joined.get(context)
        if joined is None or joined[0] is not every or joined[1] is not alive:
            gone = every.versions.keys() - alive.versions.keys()
            found = {**every.versions, **alive.versions}
            for key in gone:
                found[key] = replace(found[key], deleted=True)
            joined = (every, alive, tuple(found[key] for key in sorted(found)))
            self._joined[context] = joined
        return joined[2]

    def _list(self, context: str, *, deleted: bool) -> _Kept:
        """A registry may answer with a part of its list, so the rest is asked for."""
        kept = self._kept.get((context, deleted)) or _Kept({}, {})
        other = self._kept.get((context, not deleted)) or _Kept({}, {})
        end, until = self._ends.pop((context, deleted), (b"", 0.0))
        if time.monotonic() < until:
            first = len(kept.versions) - 1
            if self._page(context, first, {end}, deleted=deleted).digest == end:
                self._ends[context, deleted] = end, until
                return kept
        known = {**other.pages, **kept.pages}
        pages: dict[bytes, tuple[SchemaVersion, ...]] = {}
        count = size = 0
        while True:
            answer = self._page(context, count, known, deleted=deleted)
            rows = known.get(answer.digest) or self._read(context, answer.document)
            if not rows or answer.digest in pages:
                if rows and self._rows_each:
                    raise RegistryError("a part is all that comes", too_large=True)
                break  # if the latter, it does not know of offsets
            pages[answer.digest] = rows
            count += len(rows)
            size += len(answer.raw)
            self._require_room(context, count, size)
        if list(pages) != list(kept.pages) or not pages:
            # Without deleted versions both lists are the same: one is enough.
            same = pages and list(pages) == list(other.pages)
            kept = other if same else _Kept(pages, self._unique(pages.values()))
            self._kept[context, deleted] = kept
        if size > _LARGE:
            answer = self._page(context, count - 1, (), deleted=deleted)
            last = next(reversed(kept.versions.values()))
            # Else it has changed meanwhile, or does not know of offsets.
            if self._read(context, answer.document) == (last,):
                until = time.monotonic() + _WHOLE_SECONDS
                self._ends[context, deleted] = answer.digest, until
        return kept

    def _page(
        self, context: str, first: int, known: Collection[bytes], *, deleted: bool
    ) -> RegistryAnswer:
        """What a list has from a row on."""
        params = {**(_DELETED if deleted else {}), "offset": str(first)}
        while True:
            if self._rows_each:
                params["limit"] = str(self._rows_each)
            try:
                return self._channel.ask(
                    "GET", f"{of_context(context)}/schemas",
                    params=params, known=known, bounds=LIST,
                )  # fmt: skip
            except RegistryError as error:
                if not error.too_large or self._rows_each == 1:
                    raise
                self._rows_each = self._rows_each // 16 or _ROWS

    def _read(self, context: str, document: Any) -> tuple[SchemaVersion, ...]:
        with self._channel.reading("the list of schemas"):
            rows = _list_of(object, document)
            return tuple(read_version(row, context) for row in rows)

    def _unique(
        self, pages: Iterable[tuple[SchemaVersion, ...]]
    ) -> dict[Key, SchemaVersion]:
        rows = list(itertools.chain.from_iterable(pages))
        found = {row.key: row for row in rows}
        if len(found) < len(rows):
            # A row that stands in two pages took the place of another one.
            raise RegistryError(
                f"{self._channel.where}: the list of schemas changed while it was read",
                retriable=True,
            )
        return found

    def _one_by_one(self, context: str) -> tuple[SchemaVersion, ...]:
        found: list[SchemaVersion] = []
        size = 0
        for name in sorted(self._names(f"{of_context(context)}/subjects")):
            subject = Subject.parse(name)
            for each in self.of_subject(
                Subject(subject.context or context, subject.name)
            ):
                found.append(each)
                size += len(each.text)
                self._require_room(context, len(found), size)
        return tuple(sorted(found, key=lambda each: each.key))

    def _require_room(self, context: str, count: int, size: int) -> None:
        """Raise if a context has more than this process can hold."""
        if count > _MOST_VERSIONS or size > _MOST_TEXT:
            raise RegistryError(
                f"{self._channel.where}: {context or 'the default context'} has more "
                f"than {_MOST_VERSIONS:,} versions or {_MOST_TEXT >> 20} MiB of "
                "schemas, which mirror does not hold; delete versions that are not used"
            )

    def of_subject(self, subject: Subject) -> Iterator[SchemaVersion]:
        """Its versions in order, each with a request of its own.

        Raises:
            RegistryError: the registry cannot be asked.
        """
        path = f"{of_subject(subject)}/versions"
        # In this order a version that comes meanwhile does not look deleted.
        every = self._numbers(path, deleted=True)
        alive = frozenset(self._numbers(path, deleted=False))
        for number in every:
            answer = self._channel.ask("GET", f"{path}/{number}", params=_DELETED)
            if answer.document is None:
                continue  # deleted with its subject: some show neither
            with self._channel.reading("a schema"):
                found = read_version(
                    answer.document, subject.context, deleted=number not in alive
                )
            yield found

    def _names(self, path: str) -> list[str]:
        names = (
            self._channel.ask("GET", path, params=_DELETED, bounds=LIST).document or []
        )
        with self._channel.reading("the list of subjects"):
            return _list_of(str, names)

    def numbers(self, subject: Subject) -> list[int]:
        """The versions of a subject, deleted ones too. Raises as `versions`."""
        return self._numbers(f"{of_subject(subject)}/versions", deleted=True)

    def _numbers(self, path: str, *, deleted: bool) -> list[int]:
        params = _DELETED if deleted else {}
        numbers = self._channel.ask("GET", path, params=params).document or []
        with self._channel.reading("the versions of a subject"):
            return sorted(_list_of(int, numbers))


# ---- from the JSON of Confluent's API to values, and back ----
#
# Reading raises what taking values out of JSON raises (`MALFORMED`) if it has another
# form. What registries add to metadata by themselves is left out.


_AVRO = "AVRO"
"""The kind of a schema that does not say its kind."""
_ADDED = "confluent:version"
"""A property of metadata that says again which version it is."""


def read_version(said: Any, context: str, *, deleted: bool = False) -> SchemaVersion:
    """A version of a subject. Its own context wins over the one that was asked."""
    subject = Subject.parse(_text(said["subject"]))
    return SchemaVersion(
        **_content(said),
        context=subject.context or context,
        subject=subject.name,
        version=_whole(said["version"]),
        id=_whole(said["id"]),
        deleted=deleted,
    )


def read_uses(said: Any, context: str) -> tuple[Key, ...]:
    """The versions that have an id."""
    found = []
    for each in said:
        subject = Subject.parse(_text(each["subject"]))
        place = Subject(subject.context or context, subject.name)
        found.append(Key(place, _whole(each["version"])))
    return tuple(sorted(found))


def registration(wanted: SchemaVersion, *, keeps: bool) -> dict[str, Any]:
    """What registers a version; `keeps`: with its id and number."""
    return {
        "schema": wanted.text,
        "schemaType": wanted.kind,
        "references": [
            {"name": each.name, "subject": each.subject, "version": each.version}
            for each in wanted.references
        ],
        **({"id": wanted.id, "version": wanted.version} if keeps else {}),
        **({"metadata": json.loads(wanted.metadata)} if wanted.metadata else {}),
        **({"ruleSet": json.loads(wanted.rule_set)} if wanted.rule_set else {}),
    }


def _content(said: Any) -> dict[str, Any]:
    metadata = dict(said.get("metadata") or {})
    properties = {
        name: value
        for name, value in (metadata.pop("properties", None) or {}).items()
        if name != _ADDED
    }
    return {
        "kind": _text(said.get("schemaType") or _AVRO),
        "text": _text(said["schema"]),
        "references": tuple(
            Reference(
                _text(each["name"]), _text(each["subject"]), _whole(each["version"])
            )
            for each in said.get("references") or ()
        ),
        "metadata": _canonical({**metadata, "properties": properties}),
        "rule_set": _canonical(said.get("ruleSet") or {}),
    }


def _canonical(said: dict[str, Any]) -> str:
    """The same text for the same content; empty if there is none."""
    kept = {name: value for name, value in said.items() if value}
    return json.dumps(kept, sort_keys=True, separators=(",", ":")) if kept else ""


def _list_of(kind: type[T], said: Any) -> list[T]:
    if not isinstance(said, list) or not all(isinstance(each, kind) for each in said):
        raise TypeError
    return said


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _whole(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError
    return value


# ---- where things are in Confluent's API ----
#
# Functions: `of_context`, `of_subject`, and `of_setting` for what subjects and
# contexts have, a mode and a level. Names may have any character, so they are
# quoted, but only where an address must: some registries take a quoted name for
# another one.


_PLAIN = ":+@,!$'()*~"
"""What a path may have as it is, and no server takes for something else."""


def of_context(context: str) -> str:
    """What the paths of a context begin with."""
    return f"/contexts/{_quoted(context)}" if context else ""


def of_subject(subject: Subject) -> str:
    return f"{of_context(subject.context)}/subjects/{_quoted(subject.name)}"


def of_setting(what: Literal["mode", "config"], subject: Subject) -> str:
    """The setting of a subject; of a context, if it has no name."""
    path = f"{of_context(subject.context)}/{what}"
    return f"{path}/{_quoted(subject.name)}" if subject.name else path


def _quoted(name: str) -> str:
    return quote(name, safe=_PLAIN)
