"""Whether a cluster of a pair is active: the answer for load balancers and DNS.

Main function: `is_active`. Only the journal of the cluster asked about counts, so a cut
between two regions takes neither out. Its role is unknown once that journal could not
be read for 30 seconds.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

from mirror.config.pair_settings import pair_name
from mirror.config.section_names import pair_parts
from mirror.web.routing import Response, as_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirror.status.pairs import PairStatus

_VALID_SECONDS = 30.0


def is_active(
    pairs: Sequence[PairStatus], name: str, cluster: str, *, now: float
) -> Response:
    """200 if it is, 503 if it is not or if that is unknown, 404 if there is none.

    `name`: the pair, its clusters in any order; `now`: monotonic.
    """
    parts = pair_parts(name)
    wanted = name if parts is None else pair_name(*parts)
    members = {
        member.cluster: member
        for pair in pairs
        if pair.name == wanted
        for member in pair.members
    }
    if (member := members.get(cluster)) is None:
        known = [f"{p.name}/{m.cluster}" for p in pairs for m in p.members]
        return as_json(
            {"error": f"no cluster {cluster} of a pair {name}", "known": known},
            HTTPStatus.NOT_FOUND,
        )
    read = member.read_at > 0
    late = now - member.read_monotonic
    told = {
        "pair": name,
        "cluster": cluster,
        "active": member.active,
        "read_seconds_ago": round(late, 1) if read else None,
        "error": member.error,
    }
    sure = read and late <= _VALID_SECONDS and member.active == cluster
    return as_json(told, HTTPStatus.OK if sure else HTTPStatus.SERVICE_UNAVAILABLE)
