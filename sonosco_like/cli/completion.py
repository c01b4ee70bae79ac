"""`sonosco completion`: commands, options and files are completed by the shell."""

from __future__ import annotations

import click

_ZSH_WITHOUT_COMPLETION = "(( $+functions[compdef] )) || { autoload -Uz compinit && compinit -i }"  # a bare .zshrc's


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script that lets your shell complete commands.

    Add it to what your shell reads when it starts, and open a new terminal.

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
    if shell == "zsh":  # its first line is read by compinit, if the script is kept in a file of its own
        script = script.replace("\n", f"\n{_ZSH_WITHOUT_COMPLETION}\n", 1)
    click.echo(script)
