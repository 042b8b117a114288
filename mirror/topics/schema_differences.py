"""Where the schemas of two registries differ, for the comparison of two clusters.

Main function: `of_schemas`, from what a look of one flow found to rows like those of
`differences`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror.status.states import SchemaState
from mirror.status.wording import some
from mirror.topics.differences import Difference

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirror.schemas.rules import SchemasResult

SCHEMA = "schema"


def of_schemas(found: SchemasResult) -> Iterator[Difference]:
    """A row for each subject that is not the same; of a remark, one that is expected.
    Seen from the source.
    """
    for each in found.subjects:
        if each.state is not SchemaState.SYNCED or each.reason:
            yield Difference(
                what=SCHEMA,
                name=str(each.subject),
                a=some(each.versions, "version"),
                b=f"{each.there} of {each.versions}",
                expected=each.state is SchemaState.SYNCED,
                reason=each.reason or "not copied yet",
            )
    for level in found.levels:
        yield Difference(
            what=SCHEMA,
            name=str(level.subject) or "(level)",
            a=f"level {level.then or 'not set'}",
            b=f"level {level.now or 'not set'}",
            expected=False,
            reason="not copied yet",
        )
