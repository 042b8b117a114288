"""One schema registry: what it holds, and changes of that.

Main type: `Registry`. Each call asks. What is not there is None; every other refusal is
a `RegistryError`, or an `AuthenticationError` where our own secrets cannot be used.
Writes are not checked here: a registry may keep another text, id or version than it was
given, which is only seen by reading it back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from mirror.clusters.registry import answers
from mirror.clusters.registry.answers import of_context, of_setting, of_subject
from mirror.clusters.registry.channel import NOT_THERE, Channel, malformed
from mirror.clusters.registry.lists import LIST, Lists
from mirror.clusters.registry.values import Mode
from mirror.errors import MALFORMED, RegistryError

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirror.clusters.registry.values import Schema, SchemaVersion, Subject, Use
    from mirror.config.cluster_settings import ClusterConfig

_DELETED = {"deleted": "true"}
_NO_OTHERS = frozenset({"", ".", ".__GLOBAL"})
"""The default context, and one that has modes and levels only."""
_NO_SUBJECT = 40401
"""Confluent's code."""


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
        if not isinstance(said, list) or not all(isinstance(n, str) for n in said):
            raise malformed(self._channel, "the list of contexts")
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
        try:
            return answers.version(said, subject.context, deleted=alive is None)
        except MALFORMED as error:
            raise malformed(self._channel, f"version {version} of {subject}") from error

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
        try:
            return tuple(
                (str(each["context"]).strip(":").removesuffix("."), int(each["id"]))
                for each in said or ()
            )
        except MALFORMED as error:
            raise malformed(self._channel, f"the ids of GUID {guid}") from error

    def numbers(self, subject: Subject) -> list[int]:
        """Which versions a subject has, deleted ones too."""
        return self._lists.numbers(subject)

    def by_id(self, context: str, number: int) -> Schema | None:
        """The schema with this id."""
        path = f"{of_context(context)}/schemas/ids/{number}"
        said = self._channel.ask("GET", path).document
        try:
            return None if said is None else answers.schema(said)
        except MALFORMED as error:
            raise malformed(self._channel, f"the schema with id {number}") from error

    def uses(self, context: str, number: int) -> tuple[Use, ...]:
        """Which versions have this id, deleted ones too."""
        path = f"{of_context(context)}/schemas/ids/{number}/versions"
        said = self._channel.ask(
            "GET",
            path,
            params=_DELETED,
            bounds=LIST,  # all subjects may share an id
        ).document
        try:
            return answers.uses(said or (), context)
        except MALFORMED as error:
            raise malformed(self._channel, f"the versions of id {number}") from error

    def register(self, wanted: SchemaVersion, *, keeps: bool = True) -> int:
        """Register a version. `keeps`: with its id and number; its subject must be in
        IMPORT. Returns the id in the answer.
        """
        path = f"{of_subject(wanted.full_subject)}/versions"
        said = self._channel.ask(
            "POST", path, body=answers.body(wanted, keeps=keeps)
        ).document
        try:
            if 0 <= (number := int(said["id"])) < 1 << 32:  # as records have it
                return number
        except MALFORMED as error:
            raise malformed(self._channel, "a new version") from error
        raise malformed(self._channel, "the id of a new version")

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
        if self._mode_in(answer.document) is not mode:
            raise malformed(self._channel, f"the new mode of {subject}")

    def level(self, subject: Subject) -> str | None:
        """The subject's own compatibility level; None: that of its context."""
        answer = self._channel.ask("GET", of_setting("config", subject))
        if answer.missing:
            return None
        try:
            # A subject may have other settings, such as an alias, and no level.
            found = answer.document.get("compatibilityLevel")
            return None if found is None else str(found)
        except MALFORMED as error:
            raise malformed(self._channel, f"the level of {subject}") from error

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
        try:
            return Mode(said["mode"])
        except MALFORMED as error:
            raise malformed(self._channel, "the mode") from error

    def _no_modes(self) -> RegistryError:
        where = self._channel.where
        return RegistryError(f"{where} has no modes, so it cannot keep ids")

    def close(self) -> None:
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
