"""``ironlaw completion bash|zsh|fish``: the script that lets a shell complete verbs, options and names of the catalogue."""

from __future__ import annotations

import click
from click.shell_completion import ShellComplete, get_completion_class

from ironlaw.cli.help import AnswerCommand

SHELLS = ("bash", "zsh", "fish")
_VARIABLE = "_IRONLAW_COMPLETE"
_EXAMPLES = """
\b
Once, for every new shell:
  bash:  ironlaw completion bash >> ~/.bashrc
  zsh:   ironlaw completion zsh >> ~/.zshrc
  fish:  ironlaw completion fish > ~/.config/fish/completions/ironlaw.fish
"""


@click.command("completion", cls=AnswerCommand, epilog=_EXAMPLES)
@click.argument("shell", type=click.Choice(SHELLS))
def command(shell: str) -> int:
    """Print the completion script of a shell: bash, zsh or fish."""
    found = get_completion_class(shell)
    assert found is not None
    script = found(click.Command("ironlaw"), {}, "ironlaw", _VARIABLE)  # the script does not depend on the command
    click.echo(ShellComplete.source(script), nl=False)  # without the check of the bash that runs here
    return 0
