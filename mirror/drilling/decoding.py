"""Whether a consumer decodes a record with what a registry answers for its schema.

Main function: `decode`, for Avro, JSON and Protobuf. Any producer of a mirrored topic
chooses the bytes, and any client of a registry the text: what is too large, nested too
deeply or has too many parts is not tried. A value of JSON may be any JSON, one of
Protobuf any message that the file has.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from mirror.drilling import avro, protobuf
from mirror.errors import MALFORMED, BoundsError, ContentError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirror.clusters.registry.values import Schema

MOST_CONTENT = 256 << 10
"""Bytes of a record that is decoded."""
_MOST_TEXT = 4 << 20
"""Characters of a schema, with all that it refers to."""


def decode(schema: Schema, needed: Sequence[Schema], content: bytes) -> None:
    """`content`: what follows the id, or the message's indexes and the whole content,
    where the id is in a header. `needed`: all that the schema refers to.

    Raises:
        ContentError: no consumer decodes it.
        BoundsError: it is beyond what is tried here.
    """
    if len(content) > MOST_CONTENT:
        raise BoundsError(f"it has more than {MOST_CONTENT >> 10} KiB")
    if sum(len(each.text) for each in (schema, *needed)) > _MOST_TEXT:
        raise BoundsError(f"its schema has more than {_MOST_TEXT >> 20} MiB")
    try:
        if schema.kind == "AVRO":
            avro.walk(*_avro(schema, needed), content)
        elif schema.kind == "PROTOBUF":
            protobuf.walk(schema.text, content)
        elif schema.kind == "JSON":
            # Numbers of any size are fine; to read them is not needed.
            json.loads(content, parse_int=len, parse_float=len)
        else:
            raise BoundsError(f"its schema is of kind {schema.kind[:50]!r}")
    except RecursionError as error:
        raise BoundsError("it or its schema is nested too deeply") from error
    except MALFORMED as error:
        what = "it" if schema.kind == "JSON" else "its schema"
        raise ContentError(f"{what} is not {schema.kind}: {error!r:.100}") from error


def _avro(schema: Schema, needed: Sequence[Schema]) -> tuple[object, list[object]]:
    return json.loads(schema.text), [json.loads(each.text) for each in needed]
