"""`homeostat completion`: the Tab key knows commands and options, and the kinds and names that the server has."""

from __future__ import annotations

import click

_HOW = {
    "bash": "source <(homeostat completion bash)        # in ~/.bashrc",
    "zsh": "source <(homeostat completion zsh)         # in ~/.zshrc, after compinit",
    "fish": "homeostat completion fish | source         # in ~/.config/fish/config.fish",
}


@click.command()
@click.argument("shell", type=click.Choice(list(_HOW)))
def command(shell: str) -> None:
    """Print what makes the Tab key complete commands, options, kinds and names, for a SHELL.

    \b
    Examples:
      source <(homeostat completion bash)
      homeostat completion fish | source

    Exits with 0.
    """
    from click.shell_completion import get_completion_class

    from homeostat.cli import main

    made = get_completion_class(shell)
    assert made is not None, "click knows all three"
    click.echo(made(main, {}, "homeostat", "_HOMEOSTAT_COMPLETE").source())
