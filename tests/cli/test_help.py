"""What every command owes people: examples, exit codes, a quick answer, and no colours where they are not wanted."""

from __future__ import annotations

import json
import os
import pty
import re
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest

from homeostat.cli import main
from homeostat.cli.progress import Bar

from .conftest import COMMAND

Run = Callable[..., subprocess.CompletedProcess[str]]


def commands(command: click.Command = main, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    yield " ".join(path), command
    if isinstance(command, click.Group):
        with click.Context(command) as ctx:
            for name in command.list_commands(ctx):
                found = command.get_command(ctx, name)
                assert found is not None
                yield from commands(found, (*path, name))


EVERY = dict(commands())


@pytest.mark.parametrize("name", EVERY)
def test_help_has_examples_and_states_the_exit_codes(name: str) -> None:
    said = EVERY[name].help or ""
    examples = said.partition("Examples:\n")[2].partition("\n\n")[0]
    assert "homeostat" in examples
    if not isinstance(EVERY[name], click.Group):
        assert "Exits with 0" in said


@pytest.mark.parametrize("name", EVERY)
def test_the_examples_are_commands_and_options_that_exist(name: str) -> None:
    examples = (EVERY[name].help or "").partition("Examples:\n")[2].partition("\n\n")[0]
    for call in re.findall(r"homeostat ([^|&)\n]+)", examples):
        words = call.split()
        called = EVERY.get(" ".join(words[:2])) or EVERY.get(words[0])
        assert called is not None or words[0] == "COMMAND", call
        known = {option for parameter in (called.params if called else ()) for option in parameter.opts}
        assert {word for word in words if word.startswith("--")} - known <= {"--help"}, call


def cost(call: list[str]) -> float:
    """Seconds of processor time; other work on the machine is not in it."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(call, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.parametrize("words", [["--help"], ["version"], ["apply", "--help"]])
def test_a_cold_start_is_a_few_bare_pythons(words: list[str]) -> None:
    """Under 150 ms where Python itself takes 15: by ratio, for machines differ; in turns and the best of ten, for they are busy."""
    costs = [(cost([sys.executable, "-c", "pass"]), cost([*COMMAND, *words])) for _ in range(10)]
    bare, ours = (min(column) for column in zip(*costs, strict=True))
    assert ours < 10 * bare


HEAVY = ("aiohttp", "rich", "numpy", "cryptography", "orjson", "homeostat.api", "homeostat.store", "homeostat.client", "homeostat.loop")


def test_what_is_heavy_is_not_imported_to_help_with_any_command() -> None:
    modules = sorted({command.callback.__module__ for command in EVERY.values() if command.callback})
    code = f"import importlib, sys\nfor m in {modules!r}: importlib.import_module(m)\nprint([m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_mistyped_command_and_option_are_understood(homeostat_command: Run) -> None:
    assert "Did you mean 'freeze'?" in homeostat_command("frezee").stderr
    assert "--reason" in homeostat_command("freeze", "files", "--raeson", "x").stderr
    assert "Options stand after the command: homeostat COMMAND --kubeconfig" in homeostat_command("--kubeconfig", "x", "get", "files").stderr


def test_an_address_is_no_file_and_how_it_becomes_one_is_said(homeostat_command: Run) -> None:
    done = homeostat_command("plan", "-f", "https://example.com/site.yaml")
    assert done.returncode == 1
    assert "curl -fsSL https://example.com/site.yaml | homeostat" in done.stderr


def test_the_version_is_told_to_programs(homeostat_command: Run) -> None:
    assert set(json.loads(homeostat_command("version", "-o", "json").stdout)) == {"version", "kubernetes"}


def on_a_terminal(call: list[str], environment: dict[str, str]) -> str:
    """What a person would see."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(call, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    said = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        said += piece
    os.close(ours)
    process.wait()
    return said.decode()


def test_colours_are_for_terminals_and_not_where_no_color_is_set(environment: dict[str, str], tmp_path: Path) -> None:
    code = "import click; from homeostat.cli import main\n@main.command('paint')\ndef paint(): click.echo(click.style('red', fg='red'))\n"
    code += "main._table['paint'] = ('', ''); main.get_command = lambda ctx, name: paint\nmain(['paint'])"
    call = [sys.executable, "-c", code]
    plain = {name: value for name, value in environment.items() if name != "NO_COLOR"} | {"TERM": "xterm"}
    assert "\x1b[31m" in on_a_terminal(call, plain)
    assert "\x1b" not in on_a_terminal(call, {**plain, "TERM": "dumb"})
    assert "\x1b" not in on_a_terminal(call, {**plain, "NO_COLOR": "1"})
    assert "\x1b" not in subprocess.run(call, env=plain, capture_output=True, text=True, check=True).stdout


BAR = "from homeostat.cli import progress\nprogress.PATIENCE = {patience}\nwith progress.progress(4, 'declaring') as bar:\n    for _ in bar.over(range(4)): pass\nprint('done')"


def test_a_bar_has_counts_where_somebody_looks_and_it_takes_long(environment: dict[str, str]) -> None:
    slow = [sys.executable, "-c", BAR.format(patience=0)]
    said = on_a_terminal(slow, {**environment, "TERM": "xterm", "COLUMNS": "100"})
    assert "declaring" in said
    assert "4/4" in said
    quick = on_a_terminal([sys.executable, "-c", BAR.format(patience=60)], {**environment, "TERM": "xterm"})
    assert quick.split() == ["done"]
    elsewhere = subprocess.run(slow, env=environment, capture_output=True, text=True, check=True)
    assert (elsewhere.stdout, elsewhere.stderr) == ("done\n", "")


def test_a_bar_counts_whether_or_not_it_is_drawn() -> None:
    bar = Bar(3, "waiting", shown=False)
    assert list(bar.over("abc")) == ["a", "b", "c"]
    bar.at(2)
    bar.step()
    assert bar.done == 3
