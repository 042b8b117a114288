"""The provenance header: which clusters a record has passed through.

Every hop appends one header `mirror.via` with the value `<alias>/<cluster id>` of the
cluster it read from. A record that names the target's cluster id would loop and is not
copied; nor is one that names no cluster, if the flow leaves out keys that have their
home elsewhere. Main type: `Provenance`, the bytes that the kernel works with.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from mirror.policy.naming import is_heartbeats
from mirror.records import fillers
from mirror.records.records import varint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mirror.config.schema import FlowConfig

HEADER = "mirror.via"

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """What to look for and what to add. If all are empty, records stay as they are."""

    key: Bytes
    """The header's key."""
    stamp: Bytes
    """The encoded header to append to every record."""
    target_suffix: Bytes
    """The suffix of values that name the target."""
    feeders: Bytes
    """The prefixes of values that name clusters copied to the source; for the form see
    `looped.first_of`."""
    filler: bytes = b""
    """The encoded header of records that stand for offsets without a record."""
    homes: Bytes = field(default_factory=lambda: _array(b""))
    """How keys begin, in the same form, longest first; 1: their home is elsewhere."""
    is_heartbeats: Callable[[str], bool] = is_heartbeats
    """By topic."""

    @property
    def changes_records(self) -> bool:
        return bool(self.stamp.size)


def via(
    *,
    source_alias: str,
    source_id: str,
    target_id: str,
    feeders: Iterable[str] = (),
    homes: Iterable[tuple[str, bool]] = (),
    is_heartbeats: Callable[[str], bool] = is_heartbeats,
) -> Provenance:
    """The provenance of records read from one cluster and written to another.

    `feeders`: the aliases of clusters that are copied to the source. The last hop of a
    looping record is one of them, unless a mirror with another configuration copied the
    record or a producer wrote the header. `homes`: see `FlowConfig.homes`.
    """
    key = HEADER.encode()
    value = f"{source_alias}/{source_id}".encode()
    return Provenance(
        key=_array(key),
        stamp=_array(varint(len(key)) + key + varint(len(value)) + value),
        target_suffix=_array(f"/{target_id}".encode()),
        feeders=prefixes((f"{alias}/", True) for alias in feeders),
        filler=fillers.header_of(f"{source_alias}/{source_id}"),
        homes=prefixes(homes),
        is_heartbeats=is_heartbeats,
    )


def of_flow(
    flow: FlowConfig, *, source_id: str, target_id: str, feeders: Iterable[str] = ()
) -> Provenance:
    """What a flow looks for and adds."""
    made = via(
        source_alias=flow.source, source_id=source_id, target_id=target_id,
        feeders=feeders, homes=flow.homes, is_heartbeats=flow.is_heartbeats,
    )  # fmt: skip
    return made if flow.provenance else replace(none(), filler=made.filler)


def none() -> Provenance:
    """No header: records are copied byte for byte."""
    nothing = _array(b"")
    return Provenance(
        key=nothing, stamp=nothing, target_suffix=nothing, feeders=nothing
    )


def prefixes(each: Iterable[tuple[str, bool]]) -> Bytes:
    """In the form of `looped.first_of`."""
    encoded = ((text.encode(), flag) for text, flag in each)
    return _array(
        b"".join(
            bytes((flag, *len(prefix).to_bytes(2))) + prefix for prefix, flag in encoded
        )
    )


def _array(value: bytes) -> Bytes:
    return np.frombuffer(bytearray(value), np.uint8)
