"""What all sections of the configuration share: their base class and field types.

Main type: `Section`, frozen, which refuses unknown settings. The settings are in
`schema` and in the modules that it is made of.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr

from mirror.config import values
from mirror.config.traits import EXISTS, FOLDERS, Effect, traits

Alias = Annotated[str, BeforeValidator(values.alias)]
Text = Annotated[str, Field(min_length=1)]
Secret = Annotated[SecretStr, BeforeValidator(values.secret)]
File = Annotated[Path, EXISTS]
FileOrFolder = Annotated[Path, EXISTS, FOLDERS]
Whole = Annotated[int, BeforeValidator(values.number)]
Number = Annotated[float, BeforeValidator(values.number)]
Patterns = Annotated[tuple[str, ...], BeforeValidator(values.patterns)]
Aliases = Annotated[tuple[Alias, ...], BeforeValidator(values.patterns)]


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
    on_change: ClassVar[Effect] = Effect.RUN
    """What changing a setting takes that this class declares, unless the setting's
    traits say otherwise. A new run is always right: it begins with everything."""

    @classmethod
    def effect(cls, name: str) -> Effect:
        """What a change of this setting takes."""
        own = traits(cls.model_fields[name]).on_change
        if own is not None:
            return own
        # The last class of the MRO that has it is the one that declares it.
        *_, declared = (
            each
            for each in cls.__mro__
            if issubclass(each, Section) and name in each.model_fields
        )
        return declared.on_change
