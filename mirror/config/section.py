"""What all sections of the configuration have in common: their kind, and their types.

Main type: `Section`. Nothing unknown gets into one, and nobody changes it. Settings
themselves stand in `schema` and in the modules that it is made of.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr

from mirror.config import values

Alias = Annotated[str, BeforeValidator(values.alias)]
Text = Annotated[str, Field(min_length=1)]
Secret = Annotated[SecretStr, BeforeValidator(values.secret)]
Whole = Annotated[int, BeforeValidator(values.number)]
Number = Annotated[float, BeforeValidator(values.number)]
Patterns = Annotated[tuple[str, ...], BeforeValidator(values.patterns)]


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
