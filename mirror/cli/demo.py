"""`mirror demo`: the product at work on two clusters of its own.

`mirror.playground.demo` does the work; this module has the options.
"""

from __future__ import annotations

from typing import Annotated

import typer

from mirror.cli.output import EXIT_FAILED


def demo(
    *,
    keep: Annotated[
        bool,
        typer.Option("--keep", help="Keep clusters and service running until Ctrl-C."),
    ] = False,
    records: Annotated[
        int, typer.Option(min=1000, max=1_000_000, help="How many records to produce.")
    ] = 30_000,
) -> None:
    """Copy between two real clusters, break it, and count every record.

    Starts two temporary Kafka clusters of one broker each on this machine, and a mirror
    service between them. While producing records it kills the service's worker
    processes, watches it recover, and then reads the copy: each record must be there
    exactly once. At the end it kills cluster A and fails over: a consumer group goes on
    at B, at the very next record. Takes about two minutes and leaves nothing behind but
    downloads. With --keep both clusters stay alive: you can try the failover yourself.

    \b
    Examples:
      mirror demo
      mirror demo --records 100000
      mirror demo --keep
    """
    from mirror.playground.demo import show

    if not show(records=records, keep=keep):
        raise typer.Exit(EXIT_FAILED)
