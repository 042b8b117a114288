"""What the names of flows and pairs say, in files and in commands."""

from __future__ import annotations


def flow_ends(name: str) -> tuple[str, str] | None:
    """Source and target of "A->B", or of "A/B" for shells; None if it is neither."""
    for arrow in ("->", "/"):
        source, found, target = (part.strip() for part in name.partition(arrow))
        if found and source and target:
            return source, target
    return None


def scoped_flow(name: str) -> tuple[str, str | None]:
    """A flow's name, and that of a pair behind it: "A->B/orders", or "A/B/orders"."""
    ends, found, scope = name.rpartition("/")
    if found and flow_ends(ends) is not None:
        return ends, scope.strip()
    return name, None


def pair_parts(name: str) -> tuple[str, str, str | None] | None:
    """Both clusters of "A<->B", and the name behind them in "A<->B/orders"; None if it
    is no pair's name.
    """
    members, named, scope = (part.strip() for part in name.partition("/"))
    one, found, other = (part.strip() for part in members.partition("<->"))
    if not (found and one and other and one != other) or (named and not scope):
        return None
    return one, other, scope or None
