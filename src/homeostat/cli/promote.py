"""`homeostat promote`: what one environment runs is declared for another, by a commit."""

from __future__ import annotations

import difflib
import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from homeostat.cli.connection import Connection, server_options
from homeostat.cli.show import ask, count, echo_lines, painted

if TYPE_CHECKING:
    from homeostat.client import Client

LINES = 400
"""Of the difference, how many are shown."""


class Move(msgspec.Struct):
    """The files of one path that become those of another, on one branch of one repository."""

    name: str
    url: str
    branch: str
    commit: str
    before: str
    after: str
    changes: dict[str, tuple[str, str]] = msgspec.field(default_factory=dict)
    """By path in the repository: mode and blob; both empty where it goes."""


@click.command()
@click.argument("before", metavar="FROM")
@click.argument("after", metavar="TO")
@click.option(
    "--only",
    multiple=True,
    metavar="GLOB",
    help="Only files below the path that match, such as *.yaml; may be repeated.",
)
@click.option(
    "--except",
    "without",
    multiple=True,
    metavar="GLOB",
    help="Not those that match, such as local/**; may be repeated.",
)
@click.option("-m", "--message", default="", help="Of the commit. Default: says what was promoted.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option(
    "--dry-run", is_flag=True, help="Show how the environments differ, and do nothing; exits with 1 where they do."
)
@server_options()
def command(
    server: Connection,
    before: str,
    after: str,
    only: tuple[str, ...],
    without: tuple[str, ...],
    message: str,
    yes: bool,
    dry_run: bool,
) -> None:
    """Declare for environment TO what environment FROM runs: show the difference, and write it as a commit.

    An environment is the Syncs that have its name in `environment`; those whose names differ by it alone belong together, such as
    shop-dev and shop-prod. The files of FROM's path, at the commit that it has applied, become those of TO's path on TO's branch. It
    is written with the rights that git has here, so TO changes as by any other commit: as a change set, under the guards.

    \b
    Examples:
      homeostat promote dev prod --dry-run
      homeostat promote dev prod --except 'local/**' -m "Release 1.4"

    Exits with 0 when it is written or nothing differs, 1 when that failed, 3 when you said no.
    """
    moves = server.run(lambda client: _moves(client, before, after))
    with tempfile.TemporaryDirectory(prefix="homeostat-promote-") as place:
        changed = 0
        for move in moves:
            repository = _Clone(Path(place) / str(len(move.name)) / move.name, move.url)
            changed += repository.compare(move, only, without)
            echo_lines(painted(line) for line in repository.difference(move))
        if not changed:
            click.echo(f"{after} declares what {before} runs.")
            return
        click.echo(f"{count(changed, 'file')} of {after} would change.")
        if dry_run:
            raise click.exceptions.Exit(1)
        if not yes:
            ask(f"Write it for {after}?")
        for move in moves:
            if move.changes:
                made = _Clone(Path(place) / str(len(move.name)) / move.name, move.url).write(
                    move, message or _message(before, after, move)
                )
                click.echo(f"{move.name}: {made[:12]} is on {move.branch} of {move.url}")


def _message(before: str, after: str, move: Move) -> str:
    return f"Promote {move.name} from {before} to {after}\n\nWhat {before} runs at {move.commit}."


async def _moves(client: Client, before: str, after: str) -> list[Move]:
    from homeostat.cli.syncs import API, SOURCE, pairs

    found = []
    for pair in await pairs(client, before, after):
        commit = (pair.before.get("status") or {}).get("commit", "")
        if not commit:
            raise click.ClickException(
                f"Sync {pair.before['metadata']['name']} has applied nothing yet: there is nothing to promote"
            )
        sources: list[Any] = []
        for sync in (pair.before, pair.after):
            sources.append(
                await client.kind(API, SOURCE).get(sync["spec"]["source"]["name"], namespace=client.namespace)
            )
        urls = {source["spec"]["url"] for source in sources}
        if len(urls) != 1:
            raise click.ClickException(
                f"{pair.name}: the environments are in different repositories, {' and '.join(sorted(urls))}"
            )
        revision = sources[1]["spec"].get("revision") or {}
        if revision.keys() & {"tag", "semver", "commit"}:
            raise click.ClickException(
                f"{pair.name}: GitSource {sources[1]['metadata']['name']} follows no branch: promote by a tag instead"
            )
        paths = [(sync["spec"].get("path") or "").strip("/") for sync in (pair.before, pair.after)]
        found.append(Move(pair.name, urls.pop(), revision.get("branch", ""), commit, paths[0], paths[1]))
    return found


class _Clone:
    """A bare clone, made and pushed by the git that is here, with the credentials that it knows."""

    def __init__(self, place: Path, url: str) -> None:
        self._place = place
        if not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            _git("clone", "--quiet", "--bare", url, str(place))

    def git(self, *words: str, given: str = "", **environment: str) -> str:
        return _git("-C", str(self._place), *words, given=given, **environment)

    def _files(self, commit: str, path: str) -> dict[str, tuple[str, str]]:
        """By path below `path`: mode and blob."""
        listed = self.git("ls-tree", "-r", "-z", f"{commit}:{path}" if path else commit)
        rows = (row.split("\t", 1) for row in listed.split("\0") if row)
        return {name: (head.split()[0], head.split()[2]) for head, name in rows}

    def compare(self, move: Move, only: Sequence[str], without: Sequence[str]) -> int:
        """Finds what differs; gives how many files do."""
        from homeostat.sources.files import matches

        move.branch = move.branch or self.git("symbolic-ref", "--short", "HEAD").strip()
        wanted = self._files(move.commit, move.before)
        there = self._files(f"refs/heads/{move.branch}", move.after)
        for name in sorted(wanted.keys() | there.keys()):
            if (only and not any(matches(name, one) for one in only)) or any(matches(name, one) for one in without):
                continue
            if wanted.get(name) != there.get(name):
                move.changes[f"{move.after}/{name}".lstrip("/")] = wanted.get(name, ("", ""))
        return len(move.changes)

    def difference(self, move: Move) -> Iterator[str]:
        lines: list[str] = []
        for path, (_, blob) in move.changes.items():
            name = path.removeprefix(f"{move.after}/")
            old = self._text(f"refs/heads/{move.branch}:{path}")
            new = self.git("cat-file", "blob", blob) if blob else ""
            lines += difflib.unified_diff(
                old.splitlines(), new.splitlines(), path, f"{move.before}/{name} at {move.commit[:12]}", lineterm=""
            )
        yield from lines[:LINES]
        if len(lines) > LINES:
            yield f"… and {len(lines) - LINES} more lines"

    def _text(self, name: str) -> str:
        try:
            return self.git("cat-file", "blob", name)
        except click.ClickException:
            return ""

    def write(self, move: Move, message: str) -> str:
        """Commits and pushes; gives the commit. Where somebody pushed meanwhile it is refused, and nothing is written."""
        index = {"GIT_INDEX_FILE": str(self._place / "promote-index")}
        branch = f"refs/heads/{move.branch}"
        self.git("read-tree", branch, **index)
        for path, (mode, blob) in move.changes.items():
            entry = f"{mode} {blob}\t{path}" if blob else f"0 {'0' * 40}\t{path}"
            self.git("update-index", "--index-info", given=f"{entry}\n", **index)
        tree = self.git("write-tree", **index).strip()
        made = self.git("commit-tree", tree, "-p", branch, "-m", message).strip()
        self.git("push", "--quiet", move.url, f"{made}:{branch}")
        self.git("update-ref", branch, made)
        return made


def _git(*words: str, given: str = "", **environment: str) -> str:
    try:
        done = subprocess.run(
            ["git", *words], input=given, capture_output=True, text=True, env={**os.environ, **environment}, check=False
        )
    except FileNotFoundError:
        raise click.ClickException("git is not on the PATH") from None
    if done.returncode != 0:
        raise click.ClickException(f"git {words[0] if words[0] != '-C' else words[2]}: {done.stderr.strip()[-1000:]}")
    return done.stdout
