"""The states that flows, partitions, the ACLs of copies and schemas can be in.

Main types: `FlowState`, `PartitionState`, `AclState`, `SchemaState`. Their values are
public: they stand in `/status`, in metrics and in events.
"""

from __future__ import annotations

from enum import StrEnum


class FlowState(StrEnum):
    """How a flow is doing as a whole."""

    STANDBY = "STANDBY"
    """Another instance leads it, and this one could take over at once."""
    RESTING = "RESTING"
    """It copies into the active cluster of its pair, or out of a passive one to a
    cluster that the pair feeds, so it copies nothing until a switch or failover."""
    STARTING = "STARTING"
    """Connecting, looking for topics, fencing earlier runs; or getting ready to stand
    by."""
    RUNNING = "RUNNING"
    """Leases run. Single partitions may still be set aside."""
    RETRYING = "RETRYING"
    """It failed, for the reason given, and will restart."""
    FAILED = "FAILED"
    """Given up, for the reason given; only in a run with an end."""
    STOPPED = "STOPPED"
    """Ended on request, or caught up in a run with an end."""


class PartitionState(StrEnum):
    """How a partition is doing."""

    RUNNING = "RUNNING"
    """Copied as it comes."""
    CATCHING_UP = "CATCHING_UP"
    """Copied, and behind by more than one fetch."""
    SEEDING = "SEEDING"
    """The same, of a copy with the source's offsets whose records are so old that its
    leader may forget who writes them: one batch at a time."""
    PAUSED = "PAUSED"
    """Not copied because a user asked for that; its position stays."""
    FAULTED = "FAULTED"
    """Set aside with a reason, tried again with growing pauses."""


class AclState(StrEnum):
    """The state of a flow's ACL sync."""

    OFF = "OFF"
    """Turned off."""
    WAITING = "WAITING"
    """Not looked at yet."""
    SYNCED = "SYNCED"
    """As of the last run, copies have the right ACLs; single refusals are among the
    flow's problems."""
    NO_AUTHORIZER = "NO_AUTHORIZER"
    """A cluster has no authorizer, so there is nothing to do."""
    NOT_PERMITTED = "NOT_PERMITTED"
    """A cluster does not let us see its ACLs."""


class SchemaState(StrEnum):
    """How a subject of a schema registry is doing in a flow."""

    SYNCED = "SYNCED"
    """The target's registry has what it should; what differs on purpose is said."""
    PENDING = "PENDING"
    """It is about to get something."""
    CONFLICT = "CONFLICT"
    """Something of others is in the way: nothing is written to this subject."""
    UNSUPPORTED = "UNSUPPORTED"
    """The target's registry cannot take it as it is."""
    REFUSED = "REFUSED"
    """A registry refused a request about it; it is tried again."""
