"""`mirror topology`: the clusters and the flows between them as a picture.

It takes the service's answer at `/estate`, which has its peers' flows, too;
`mirror.status.topology` draws it.
"""

from __future__ import annotations

from enum import StrEnum
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mirror.cli.asking import CaFile, OfConfig, TokenFile, Url
from mirror.cli.estate import ask_estate
from mirror.cli.output import document, duration, moment, rate
from mirror.status.topology import Edge, dot, mermaid, terminal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirror.status.estate import Estate, EstateCluster, EstateFlow

FORMAT_VERSION = 1


class PictureForm(StrEnum):
    """The output format."""

    TEXT = "text"
    MERMAID = "mermaid"
    DOT = "dot"
    JSON = "json"


_DRAWN = {
    PictureForm.TEXT: terminal,
    PictureForm.MERMAID: mermaid,
    PictureForm.DOT: dot,
}


def topology(
    *,
    url: Url = None,
    config: OfConfig = None,
    token_file: TokenFile = None,
    ca_file: CaFile = None,
    output: Annotated[
        PictureForm,
        typer.Option(
            "--output", "-o", help="For a terminal, Mermaid, Graphviz, or programs."
        ),
    ] = PictureForm.TEXT,
) -> None:
    """Draw the clusters and the flows between them, with state, lag and throughput.

    With service.peers, the picture has the flows of all sites; clusters with the same
    cluster id are one, under the names that the sites have for it. A flow is UNKNOWN
    while its service does not answer.

    \b
    Examples:
      mirror topology
      mirror topology -o mermaid >> README.md
      mirror topology -o dot | dot -Tsvg > topology.svg
    """
    estate, _ = ask_estate(url, config, token_file=token_file, ca_file=ca_file)
    if output is PictureForm.JSON:
        document(
            {
                "format_version": FORMAT_VERSION,
                "flows": [_values(way) for way in estate.ways],
                "silent_sites": [
                    {"site": each.name, "since": each.since, "reason": each.reason}
                    for each in estate.silent
                ],
            }
        )
        return
    for line in _DRAWN[output]([_edge(way) for way in estate.drawn]):
        sys.stdout.write(line + "\n")
    if output is PictureForm.TEXT:
        for line in _silence(estate):
            sys.stdout.write(line + "\n")


def _edge(way: EstateFlow) -> Edge:
    flow = way.flow
    notes = [rate(flow.bytes_per_second)]
    if flow.lag_seconds >= 0:
        notes.append(f"{duration(flow.lag_seconds)} behind")
    if flow.faulted:
        notes.append(f"{flow.faulted} partitions FAULTED")
    return Edge(
        source=_named(way.source),
        target=_named(way.target),
        state=way.state,
        note=", ".join(notes if way.site.answers else way.notes),
    )


def _named(place: EstateCluster) -> str:
    return f"{place.name} (does not answer)" if place.silent else place.name


def _silence(estate: Estate) -> Iterator[str]:
    """Who does not answer, since when and why."""
    for place in estate.places:
        for text in place.silent:
            yield f"cluster {place.name} does not answer {text}"
    for site in estate.silent:
        yield (
            f"site {site.name} does not answer, since {moment(site.since)}: "
            f"{site.reason}"
        )


def _values(way: EstateFlow) -> dict[str, Any]:
    flow = way.flow
    return {
        "site": way.site.name,
        "source": flow.source,
        "target": flow.target,
        "source_id": way.source.cluster_id,
        "target_id": way.target.cluster_id,
        "state": way.state,
        "lag": flow.lag,
        "lag_seconds": flow.lag_seconds,
        "bytes_per_second": flow.bytes_per_second,
        "faulted": flow.faulted,
    }
