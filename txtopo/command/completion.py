"""``txtopo completion``: prints the script with which a shell completes verbs, options and ids."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script of a shell.

    Ids of topologies are completed from the ensemble, if it answers at once. Needs nothing.

    \b
    Example:
      eval "$(txtopo completion bash)"
    """
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(context.find_root().command, {}, "txtopo", "_TXTOPO_COMPLETE").source())
