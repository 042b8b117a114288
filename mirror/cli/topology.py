"""`mirror topology`: the clusters and the flows between them as a picture.

It takes the service's answer at `/status`; `mirror.status.topology` draws it.
"""

from __future__ import annotations

from enum import StrEnum
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mirror.cli.asking import CaFile, OfConfig, TokenFile, Url, ask
from mirror.cli.output import document, duration, moment, rate, shown
from mirror.status.topology import Edge, dot, mermaid, terminal

if TYPE_CHECKING:
    from collections.abc import Mapping

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

    \b
    Examples:
      mirror topology
      mirror topology -u http://mirror.example.com:8083
      mirror topology -o mermaid >> README.md
      mirror topology -o dot | dot -Tsvg > topology.svg
    """
    answer = ask(url, config, token_file=token_file, ca_file=ca_file)
    flows, clusters = answer["flows"], answer["clusters"]
    if output is PictureForm.JSON:
        ids = {each["alias"]: each["cluster_id"] for each in clusters}
        values = [_values(flow, ids) for flow in flows]
        document({"format_version": FORMAT_VERSION, "flows": values})
        return
    silent = {each["alias"]: each for each in clusters if not each["answers"]}
    lines = _DRAWN[output]([_edge(flow, silent) for flow in flows])
    if output is PictureForm.TEXT:
        lines += [
            f"cluster {name} does not answer, since {moment(each['since'])}: "
            f"{each['reason']}"
            for name, each in silent.items()
        ]
    for line in lines:
        sys.stdout.write(shown(line) + "\n")


def _edge(flow: dict[str, Any], silent: Mapping[str, Any]) -> Edge:
    notes = [rate(flow["bytes_per_second"])]
    if flow["lag_seconds"] >= 0:
        notes.append(f"{duration(flow['lag_seconds'])} behind")
    if flow["faulted"]:
        notes.append(f"{flow['faulted']} partitions FAULTED")
    source, target = (
        f"{flow[end]} (does not answer)" if flow[end] in silent else flow[end]
        for end in ("source", "target")
    )
    return Edge(
        source=source, target=target, state=flow["state"], note=", ".join(notes)
    )


def _values(flow: dict[str, Any], ids: Mapping[str, str]) -> dict[str, Any]:
    return {
        "source": flow["source"],
        "target": flow["target"],
        "source_id": ids.get(flow["source"], ""),
        "target_id": ids.get(flow["target"], ""),
        "state": flow["state"],
        "lag": flow["lag"],
        "lag_seconds": flow["lag_seconds"],
        "bytes_per_second": flow["bytes_per_second"],
        "faulted": flow["faulted"],
    }
