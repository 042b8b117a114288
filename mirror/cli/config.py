"""`mirror config`: the configuration itself, without contacting any cluster.

`show` prints each setting's value and where it comes from, `convert` turns MirrorMaker
2's file or a Strimzi manifest into our YAML, `schema` prints every setting there is.
The room `config` makes the output; it never contains secrets.
"""

from __future__ import annotations

from dataclasses import asdict
from enum import StrEnum
import json
import os
from pathlib import Path
import sys
from typing import Annotated, Any

import typer

from mirror.cli.acls import acls
from mirror.cli.options import ConfigFile, read_config
from mirror.cli.output import Form, Output, document, table
from mirror.config import environment, settings
from mirror.config.load import read
from mirror.config.mm2 import chart
from mirror.config.mm2.convert import convert as as_yaml
from mirror.config.origins import origins

FORMAT_VERSION = 1
COLUMNS = ("SETTING", "VALUE")
ORIGIN_COLUMNS = (*COLUMNS, "ORIGIN", "WRITTEN")

app = typer.Typer(
    help="Show, convert and describe the configuration.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


class SettingsFormat(StrEnum):
    JSON = "json"
    YAML = "yaml"
    MARKDOWN = "markdown"


@app.command()
def show(
    config: ConfigFile,
    *,
    origin: Annotated[
        bool,
        typer.Option("--origin", help="Also show where each value comes from."),
    ] = False,
    output: Output = Form.TABLE,
) -> None:
    """Show every setting in effect: variables override the file, the file defaults.

    \b
    Examples:
      mirror config show -c mirror.yaml
      mirror config show -c mm2.properties --origin
    """
    chosen = read_config(config)
    found = origins(chosen, environment.lay_over(read(config, os.environ), os.environ))
    if output is Form.JSON:
        document(
            {
                "format_version": FORMAT_VERSION,
                "settings": [asdict(each) for each in found],
            }
        )
        return
    table(
        ORIGIN_COLUMNS if origin else COLUMNS,
        (
            (
                each.setting,
                _shown(each.value),
                *((each.origin, each.written) if origin else ()),
            )
            for each in found
        ),
    )


@app.command()
def convert(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="mm2.properties, or a KafkaMirrorMaker2 manifest of Strimzi (.yaml).",
        ),
    ],
    *,
    values: Annotated[
        bool,
        typer.Option(
            "--values",
            help="Print values for mirror's Helm chart, with what the manifest says "
            "about pods and secrets.",
        ),
    ] = False,
) -> None:
    """Print MirrorMaker 2's configuration as mirror's YAML.

    Comments mark what works differently here. Secrets are left out; comments say how
    to provide them.

    \b
    Examples:
      mirror config convert mm2.properties > mirror.yaml
      mirror config convert kafka-mirror-maker-2.yaml > mirror.yaml
      mirror config convert --values kafka-mirror-maker-2.yaml > values.yaml
    """
    converted = as_yaml(read(file, os.environ))
    if values:
        converted = chart.values(file.read_text(encoding="utf-8"))
    sys.stdout.write(converted)


@app.command()
def schema(
    form: Annotated[
        SettingsFormat,
        typer.Option(
            "--form", help="JSON schema, an annotated YAML file, or a Markdown table."
        ),
    ] = SettingsFormat.JSON,
) -> None:
    """Print every setting there is, with its default and its meaning."""
    made = {
        SettingsFormat.JSON: settings.json_schema,
        SettingsFormat.YAML: settings.example,
        SettingsFormat.MARKDOWN: settings.reference,
    }[form]
    sys.stdout.write(made())


app.command("acls", short_help="Show the ACLs that mirror needs.")(acls)


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
