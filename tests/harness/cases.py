"""Cases of a matrix: some run each time, the further ones in `make test-full` alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable


def cases(every: Iterable[Any], *, some: Collection[Any]) -> list[Any]:
    """For `parametrize`: all, of which only `some` run each time; tuples have a value
    for each parameter.
    """
    return [
        pytest.param(
            *(each if isinstance(each, tuple) else (each,)),
            marks=() if each in some else pytest.mark.full,
        )
        for each in every
    ]
