"""All sites as `mirror status --all` shows them, and `mirror topology` draws them.

`ask_estate` asks a service for itself and its peers; `show_estate` prints tables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mirror.cli.asking import ask
from mirror.cli.output import blank_line, moment, rate, table
from mirror.errors import MirrorError
from mirror.status.estate import merged
from mirror.status.sites import read_sites

if TYPE_CHECKING:
    from pathlib import Path

    from mirror.status.estate import Estate, EstateFlow

SITE_COLUMNS = ("SITE", "ANSWERS", "SINCE", "FLOWS", "REASON")
WAY_COLUMNS = (
    *("SITE", "FLOW", "STATE", "SINCE", "LAG", "RECORDS", "RATE", "FAULTED"),
    *("RESTARTS", "REASON"),
)
CLUSTER_COLUMNS = ("CLUSTER", "DOES-NOT-ANSWER")


def ask_estate(
    url: str | None,
    config: Path | None,
    *,
    token_file: Path | None = None,
    ca_file: Path | None = None,
) -> tuple[Estate, dict[str, Any]]:
    """What a service and its peers do, and the answer as it came.

    Raises:
        MirrorError: no answer, or not from a service that this version can read.
    """
    answer = ask(url, config, token_file=token_file, ca_file=ca_file, path="/estate")
    try:
        return merged(read_sites(answer)), answer
    except MirrorError as error:
        raise MirrorError(f"the service's answer cannot be read: {error}") from error


def show_estate(estate: Estate) -> None:
    """Print the sites, their flows, and the clusters that do not answer."""
    table(
        SITE_COLUMNS,
        (
            (
                site.name,
                "yes" if site.answers else "NO",
                moment(site.since),
                len(site.flows),
                site.reason,
            )
            for site in estate.sites
        ),
    )
    blank_line()
    table(WAY_COLUMNS, map(_row, estate.ways))
    silent = [(place.name, text) for place in estate.places for text in place.silent]
    if silent:
        blank_line()
        table(CLUSTER_COLUMNS, silent)


def _row(way: EstateFlow) -> tuple[object, ...]:
    flow, answers = way.flow, way.site.answers
    return (
        way.site.name,
        flow.name,
        way.state,
        moment(flow.since if answers else way.site.since),
        flow.lag,
        flow.records,
        rate(flow.bytes_per_second),
        flow.faulted,
        flow.restarts,
        flow.reason if answers else f"as of {moment(way.site.heard_at)}",
    )
