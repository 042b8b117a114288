"""What Spark's operators are given to run: the program `mirror`, from its package."""

from __future__ import annotations

from mirror.cli.main import main

main()
