"""All versions in a context of a registry, softly deleted ones too.

Main type: `Lists`. It asks for two lists, with and without what is deleted, and where a
registry has no list of schemas, subject by subject; also where its list is larger than
mirror takes at once, and it has no pages of fewer rows. A list that is the same as the
last time is not read again: it is large, and mostly nothing changed. Of one above a
megabyte only the end is asked for in between: another version, or one less, moves it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
import itertools
import time
from typing import TYPE_CHECKING, Any

from mirror.clusters.bounded import Bounds
from mirror.clusters.registry import answers
from mirror.clusters.registry.answers import of_context, of_subject
from mirror.clusters.registry.channel import NOT_THERE, malformed
from mirror.clusters.registry.values import Subject
from mirror.errors import MALFORMED, RegistryError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from mirror.clusters.registry.channel import Channel, RegistryAnswer
    from mirror.clusters.registry.values import SchemaVersion

_Key = tuple[Subject, int]
_DELETED = {"deleted": "true"}
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
    versions: dict[_Key, SchemaVersion]


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
        if not isinstance(document, list):
            raise malformed(self._channel, "the list of schemas")
        try:
            return tuple(answers.version(row, context) for row in document)
        except MALFORMED as error:
            raise malformed(self._channel, "the list of schemas") from error

    def _unique(
        self, pages: Iterable[tuple[SchemaVersion, ...]]
    ) -> dict[_Key, SchemaVersion]:
        rows = list(itertools.chain.from_iterable(pages))
        found = {(row.full_subject, row.version): row for row in rows}
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
        return tuple(sorted(found, key=lambda each: (each.full_subject, each.version)))

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
            try:
                yield answers.version(
                    answer.document, subject.context, deleted=number not in alive
                )
            except MALFORMED as error:
                raise malformed(self._channel, "a schema") from error

    def _names(self, path: str) -> list[str]:
        names = (
            self._channel.ask("GET", path, params=_DELETED, bounds=LIST).document or []
        )
        if not isinstance(names, list) or not all(isinstance(n, str) for n in names):
            raise malformed(self._channel, "the list of subjects")
        return names

    def numbers(self, subject: Subject) -> list[int]:
        """The versions of a subject, deleted ones too. Raises as `versions`."""
        return self._numbers(f"{of_subject(subject)}/versions", deleted=True)

    def _numbers(self, path: str, *, deleted: bool) -> list[int]:
        params = _DELETED if deleted else {}
        numbers = self._channel.ask("GET", path, params=params).document or []
        if not isinstance(numbers, list) or not all(
            isinstance(n, int) for n in numbers
        ):
            raise malformed(self._channel, "the versions of a subject")
        return sorted(numbers)
