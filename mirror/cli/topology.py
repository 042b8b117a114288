"""`mirror topology`: the clusters and the flows between them as a picture.

It takes the service's answer at `/status`; `mirror.status.topology` draws it.
"""

from __future__ import annotations

from enum import StrEnum
import sys
from typing import Annotated, Any

import typer

from mirror.cli.asking import CaFile, OfConfig, TokenFile, Url, ask
from mirror.cli.output import document, duration, rate
from mirror.status.topology import Edge, dot, mermaid, terminal

FORMAT_VERSION = 1


class Picture(StrEnum):
    """The output format."""

    TEXT = "text"
    MERMAID = "mermaid"
    DOT = "dot"
    JSON = "json"


_DRAWN = {Picture.TEXT: terminal, Picture.MERMAID: mermaid, Picture.DOT: dot}


def topology(
    *,
    url: Url = None,
    config: OfConfig = None,
    token_file: TokenFile = None,
    ca_file: CaFile = None,
    output: Annotated[
        Picture,
        typer.Option(
            "--output", "-o", help="For a terminal, Mermaid, Graphviz, or programs."
        ),
    ] = Picture.TEXT,
) -> None:
    """Draw the clusters and the flows between them, with state, lag and throughput.

    \b
    Examples:
      mirror topology
      mirror topology -o mermaid >> README.md
      mirror topology -o dot | dot -Tsvg > topology.svg
    """
    flows = ask(url, config, token_file=token_file, ca_file=ca_file)["flows"]
    if output is Picture.JSON:
        document({"format_version": FORMAT_VERSION, "flows": list(map(_values, flows))})
        return
    for line in _DRAWN[output]([_edge(flow) for flow in flows]):
        sys.stdout.write(line + "\n")


def _ends(flow: dict[str, Any]) -> tuple[str, str]:
    source, _, target = flow["name"].partition("->")
    return flow.get("source") or source, flow.get("target") or target


def _edge(flow: dict[str, Any]) -> Edge:
    source, target = _ends(flow)
    notes = [rate(flow.get("bytes_per_second", 0.0))]
    if flow.get("lag_seconds", -1.0) >= 0:
        notes.append(f"{duration(flow['lag_seconds'])} behind")
    if flow["faulted"]:
        notes.append(f"{flow['faulted']} partitions FAULTED")
    return Edge(
        source=source, target=target, state=flow["state"], note=", ".join(notes)
    )


def _values(flow: dict[str, Any]) -> dict[str, Any]:
    source, target = _ends(flow)
    return {
        "source": source,
        "target": target,
        "state": flow["state"],
        "lag": flow["lag"],
        "lag_seconds": flow.get("lag_seconds", -1.0),
        "bytes_per_second": flow.get("bytes_per_second", 0.0),
        "faulted": flow["faulted"],
    }
