"""`sonosco completion` and `sonosco schema`: completion of commands in a shell and of configs in an editor."""

from __future__ import annotations

import json

import click

from sonosco_like.cli.options import import_modules, imports

_ZSH_WITHOUT_COMPLETION = (
    "(( $+functions[compdef] )) || { autoload -Uz compinit && compinit -i }"  # for a .zshrc that loads none
)


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script that lets your shell complete commands.

    Add the script to the start-up file of your shell, and open a new terminal.

    \b
    Examples:
      sonosco completion bash >> ~/.bashrc
      sonosco completion zsh >> ~/.zshrc
      sonosco completion fish > ~/.config/fish/completions/sonosco.fish
    """
    from click.shell_completion import get_completion_class

    root = context.find_root()
    name = root.info_name or "sonosco"
    kind = get_completion_class(shell)
    assert kind is not None, "click knows the shells that the argument offers"
    script = kind(root.command, {}, name, f"_{name.upper()}_COMPLETE").source()
    if shell == "zsh":  # the first line stays first: compinit reads it if the script is a file of its own
        script = script.replace("\n", f"\n{_ZSH_WITHOUT_COMPLETION}\n", 1)
    click.echo(script)


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
    from sonosco_like.training import Experiment

    click.echo(json.dumps(json_schema(Experiment), indent=indent or None, ensure_ascii=False))
