"""`sonosco schema`: the config format for editors."""

from __future__ import annotations

import json

import click

from sonosco_like.cli.options import import_modules, imports


@click.command()
@click.option("--indent", default=2, show_default=True, help="Spaces per level; 0 writes one line.")
@imports
def schema(indent: int, modules: tuple[str, ...]) -> None:
    """Print the JSON Schema (draft 2020-12) of the config.

    Editors with a YAML language server complete and check configs with it; put this line at the top of a config:

    \b
      # yaml-language-server: $schema=sonosco.schema.json

    \b
    Examples:
      sonosco schema > sonosco.schema.json
      sonosco schema --import my_models > sonosco.schema.json
    """
    import_modules(modules)
    from sonosco_like.serialization import json_schema

    click.echo(json.dumps(json_schema(), indent=indent or None, ensure_ascii=False))
