"""One schema registry: what it holds, and changes of that.

Main type: `Registry`. It keeps no copy of anything: each call asks. What is not there
is None; every other refusal is a `RegistryError`. Not thread-safe.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirror.clusters.registry.values import (
        Mode,
        Schema,
        SchemaVersion,
        Subject,
        Use,
    )
    from mirror.config.cluster_settings import ClusterConfig


class Registry:
    """The registry of one cluster. `pace` is called before each request, and may wait.

    Use it as a context manager, or `close` it.
    """

    def __init__(
        self, config: ClusterConfig, *, pace: Callable[[], None] = lambda: None
    ) -> None:
        raise NotImplementedError

    @property
    def alias(self) -> str:
        """The cluster's."""
        raise NotImplementedError

    @property
    def asked(self) -> int:
        """How many requests were sent."""
        raise NotImplementedError

    @property
    def failed(self) -> int:
        """How many of them got no answer, or a failure of the registry's own."""
        raise NotImplementedError

    def contexts(self) -> tuple[str, ...]:
        """All contexts, the default one (empty) first.

        Raises:
            RegistryError: as all methods do, if the registry cannot be asked.
        """
        raise NotImplementedError

    def versions(self, context: str = "") -> tuple[SchemaVersion, ...]:
        """All versions of all subjects in a context, softly deleted ones too, in few
        requests. Metadata and rule sets may be missing in lists: see `schema`.
        """
        raise NotImplementedError

    def schema(self, subject: Subject, version: int) -> SchemaVersion | None:
        """One version, also a deleted one; `deleted` is always right."""
        raise NotImplementedError

    def by_id(self, context: str, number: int) -> Schema | None:
        raise NotImplementedError

    def uses(self, context: str, number: int) -> tuple[Use, ...]:
        """Which versions have this id, deleted ones too."""
        raise NotImplementedError

    def register(self, wanted: SchemaVersion) -> int:
        """Register a version with its id and number; its subject must be in IMPORT.
        Returns the id in the answer. Whether text, id and number were kept is only
        seen by reading them back.
        """
        raise NotImplementedError

    def register_anyhow(self, subject: Subject, schema: Schema) -> int:
        """Register a schema as a producer does: the registry chooses id and version."""
        raise NotImplementedError

    def delete(self, subject: Subject, version: int) -> None:
        """Delete a version softly. One that is deleted already stays so."""
        raise NotImplementedError

    def mode(self, subject: Subject) -> Mode | None:
        """The subject's own mode; None: that of its context. Of a context (a `Subject`
        without a name) the mode that holds there.
        """
        raise NotImplementedError

    def set_mode(
        self, subject: Subject, mode: Mode | None, *, force: bool = False
    ) -> None:
        """Set a subject's or a context's own mode; None takes it away. `force`: IMPORT
        where versions are already.
        """
        raise NotImplementedError

    def level(self, subject: Subject) -> str | None:
        """The subject's own compatibility level; None: that of its context."""
        raise NotImplementedError

    def set_level(self, subject: Subject, level: str | None) -> None:
        """Set it; None takes it away."""
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
