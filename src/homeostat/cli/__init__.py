"""The `homeostat` command. Each subcommand lives in its own file and imports what is heavy only when it runs."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

import click

_COMMANDS = {
    "agent": ("homeostat.cli.agent", "Keep this machine and its GPUs."),
    "apply": ("homeostat.cli.apply", "Declare what files say, as one change set."),
    "approve": ("homeostat.cli.approve", "Say yes to one exact plan that the guards hold."),
    "bridge": ("homeostat.cli.bridge", "Keep the GPUs of a Slurm or Kubernetes cluster."),
    "checkpoint": ("homeostat.cli.checkpoint", "Keep all that is declared in one file, and get it back."),
    "completion": ("homeostat.cli.completion", "Make the Tab key complete commands, kinds and names."),
    "controllers": ("homeostat.cli.controllers", "Run the loop as a process of its own."),
    "diff": ("homeostat.cli.diff", "Show what differs between files and the server, or between two moments."),
    "doctor": ("homeostat.cli.doctor", "Look for what is wrong around a server and its loop."),
    "drift": ("homeostat.cli.drift", "Show what is not as declared."),
    "enforce": ("homeostat.cli.enforce", "Show what the loop would do, and let it."),
    "events": ("homeostat.cli.events", "Show what was said of things."),
    "explain": ("homeostat.cli.explain", "Explain why a thing is as it is."),
    "freeze": ("homeostat.cli.freeze", "Let nothing be done to a scope."),
    "get": ("homeostat.cli.get", "Show objects."),
    "gpu": ("homeostat.cli.gpu", "See who has which GPUs, and ask why."),
    "history": ("homeostat.cli.history", "Show what happened to a thing, or by a change set."),
    "inventory": ("homeostat.cli.inventory", "Show all that is managed, and what is not."),
    "observe": ("homeostat.cli.observe", "Report drift of a scope, and do nothing about it."),
    "plan": ("homeostat.cli.plan", "Show what would be done."),
    "promote": ("homeostat.cli.promote", "Declare for one environment what another runs, by a commit."),
    "release": ("homeostat.cli.release", "Let a Sync that is held go on with its source."),
    "report": ("homeostat.cli.report", "Give evidence of how what is declared is kept."),
    "rollback": ("homeostat.cli.rollback", "Take an object or a change set back to what it was."),
    "runbook": ("homeostat.cli.runbook", "Show what needs a person now, and the ways out."),
    "top": ("homeostat.cli.top", "Show how the fleets stand, live."),
    "tree": ("homeostat.cli.tree", "Show a thing and all that is made for it."),
    "token": ("homeostat.cli.token", "Make, list and revoke tokens for people."),
    "ui": ("homeostat.cli.ui", "Open the dashboard, signed in."),
    "unfreeze": ("homeostat.cli.unfreeze", "Lift the freezes of a scope."),
    "up": ("homeostat.cli.up", "Start a control plane."),
    "version": ("homeostat.cli.version", "Show the version."),
    "wait": ("homeostat.cli.wait", "Wait until a condition holds."),
}


class Lazy(click.Group):
    """Finds commands by name without importing the others: help and completion stay quick. `table` has the module and the line of help of each."""

    def __init__(self, *args: Any, table: dict[str, tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._table = table

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(self._table)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in self._table:
            return None
        module = importlib.import_module(self._table[name][0])
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in sorted(self._table.items())])

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if error.possibilities:
                raise
            raise click.UsageError(f"{error.message} Options stand after the command: {ctx.command_path} COMMAND {error.option_name}", ctx) from None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            import difflib

            near = difflib.get_close_matches(args[0], [*self._table, "--help"], n=1)
            if near:
                raise click.UsageError(f"{error.message} Did you mean '{near[0]}'?", ctx) from None
            raise

    def main(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().main(*args, **kwargs)
        except OSError as error:  # a full disk behind `>`; where `| head` has read enough, click ends by itself
            click.ClickException(f"{error.filename or 'the output'}: {error.strerror or error}").show()
            give_up_output()
            sys.exit(1)


def give_up_output() -> None:
    """After a print that failed: what waits in the buffer goes nowhere, or Python would try again at the end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)


def _version(ctx: click.Context, param: click.Parameter, asked: bool) -> None:
    if asked:
        from homeostat.cli.version import command

        ctx.invoke(command)
        ctx.exit()


@click.group(cls=Lazy, table=_COMMANDS, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Show the version and exit."
)
@click.pass_context
def main(ctx: click.Context) -> None:
    """Keeps real things as they were declared, and thinks before it acts.

    \b
    Examples:
      homeostat up --demo         # a live example to look at
      homeostat COMMAND --help    # options, examples and exit codes of a command
    """
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":  # https://no-color.org: whatever it says
        ctx.color = False
