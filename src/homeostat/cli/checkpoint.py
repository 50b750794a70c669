"""`homeostat checkpoint`: all that is declared, in one file; and back from it."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from homeostat.cli.connection import Connection, server_options
from homeostat.cli.progress import progress
from homeostat.cli.show import ago, count, echo_lines, emit, output_option, table

if TYPE_CHECKING:
    from homeostat.client import Client
    from homeostat.store.checkpoint import Summary

FOLDER = "checkpoints"
"""Where timed checkpoints are, in the data directory."""


@click.group()
def command() -> None:
    """Keep all that is declared in one file, check it, and get it back.

    A checkpoint holds every object there is, secrets too, at one revision: keep it as you keep the data directory. It is written
    with mode 0600, and for administrators only. Certificates and keys (`pki/`), the audit log and the history are not in it.

    \b
    Examples:
      homeostat checkpoint create before-the-move.checkpoint
      homeostat checkpoint verify before-the-move.checkpoint
      homeostat checkpoint restore before-the-move.checkpoint --data ~/fresh
      homeostat checkpoint restore before-the-move.checkpoint
      homeostat up --checkpoint-every 1h --checkpoint-keep 24
    """


@command.command()
@click.argument("file", required=False, type=click.Path(dir_okay=False, path_type=Path))
@click.option("--data", metavar="DIR", type=click.Path(path_type=Path), help="Of this data directory, on which no server runs.")
@output_option("text", "json", "yaml")
@server_options(namespace=False)
def create(server: Connection, file: Path | None, data: Path | None, output: str) -> None:
    """Write a checkpoint of a running server, or of a data directory that nothing runs on. FILE appears when it is whole.

    \b
    Examples:
      homeostat checkpoint create
      homeostat checkpoint create monday.checkpoint
      homeostat checkpoint create --data ~/.homeostat monday.checkpoint

    Exits with 0, or 1 where it cannot be read or written; then there is no file.
    """
    from homeostat.store.checkpoint import SUFFIX

    path = file or Path(f"homeostat-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}{SUFFIX}")
    if path.exists():
        raise click.ClickException(f"{path} exists already: choose another name, or remove it")
    try:
        summary = _of_directory(data, path) if data is not None else _of_server(server, path)
    except OSError as error:
        raise click.ClickException(f"{error.filename or path}: {error.strerror or error}") from None
    if output != "text":
        emit(_data(path, summary), output)
    else:
        click.echo(f"{path}: {count(summary.objects, 'object')} at revision {summary.revision}, sha256 {summary.sha256}")


def _of_server(server: Connection, path: Path) -> Summary:
    from homeostat.cli.past import known_here
    from homeostat.store.base import StoreError
    from homeostat.store.checkpoint import Draft

    async def read(client: Client) -> Summary:
        await known_here(client, "/homeostat/revision")
        answer = await client.stream("/homeostat/checkpoint", {})
        draft = Draft(path)
        try:
            with progress(None, "writing the checkpoint", size=True) as bar:
                while piece := await answer.piece():
                    draft.write(piece)
                    bar.step(len(piece))
            return draft.finish()
        except StoreError as error:
            raise click.ClickException(f"what came is not whole, and was thrown away: {error}") from None
        except BaseException:
            draft.give_up()
            raise
        finally:
            answer.close()

    return server.run(read, timeout=None)


def _of_directory(data: Path, path: Path) -> Summary:
    from homeostat import __version__
    from homeostat.model.clock import format_time
    from homeostat.store import SqliteStore, StoreError
    from homeostat.store.checkpoint import Draft, pack

    async def read() -> Summary:
        store = await SqliteStore.open(data)
        try:
            draft = Draft(path)
            try:
                with progress(None, "writing the checkpoint", size=True) as bar:
                    async for piece in pack(store, store.revision, format_time(time.time()), __version__, asyncio.to_thread):
                        draft.write(piece)
                        bar.step(len(piece))
                return draft.finish()
            except BaseException:
                draft.give_up()
                raise
        finally:
            await store.close()

    if not (data.expanduser() / "store.db").exists():
        raise click.ClickException(f"{data} is no data directory: there is no store.db in it")
    try:
        return asyncio.run(read())
    except StoreError as error:
        raise click.ClickException(str(error)) from None


@command.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(dir_okay=False, path_type=Path))
@output_option("text", "json", "yaml")
def verify(files: tuple[Path, ...], output: str) -> None:
    """Read checkpoints to their end, and say whether they are what was written. Needs no server.

    \b
    Examples:
      homeostat checkpoint verify monday.checkpoint
      homeostat checkpoint verify ~/.homeostat/checkpoints/*

    Exits with 0 when all are sound, 1 when one is not.
    """
    told, broken = [], []
    for path in files:
        try:
            found = _data(path, _verified(path))
        except click.ClickException as error:
            broken.append(error.message)
            found = {"file": str(path), "error": error.message}
        told.append(found)
        if output == "text" and "error" not in found:
            click.echo(f"{path}: sound; {count(found['objects'], 'object')} at revision {found['revision']} of {found['time']}")
    if output != "text":
        emit(told, output)
    if broken:
        raise click.ClickException("\n  ".join(broken))


def _verified(path: Path) -> Summary:
    from homeostat.store import checkpoint

    try:
        with progress(path.stat().st_size, f"reading {path.name}", size=True) as bar:
            return checkpoint.verify(path, bar.at)
    except checkpoint.Damaged as error:
        raise click.ClickException(str(error)) from None
    except OSError as error:
        raise click.ClickException(f"{path}: {error.strerror}") from None


def _data(path: Path, summary: Summary) -> dict[str, Any]:
    return {
        "file": str(path),
        "revision": summary.revision,
        "time": summary.time,
        "objects": summary.objects,
        "bytes": summary.bytes,
        "sha256": summary.sha256,
    }


@command.command("list")
@click.argument("directory", required=False, type=click.Path(file_okay=False, path_type=Path))
@output_option("table", "json", "yaml")
@server_options(namespace=False)
def show(server: Connection, directory: Path | None, output: str) -> None:
    """Show the checkpoints in a DIRECTORY, youngest first. Default: those of the server, where its kubeconfig lies on this host.

    \b
    Examples:
      homeostat checkpoint list
      homeostat checkpoint list /backup -o json

    Only the beginning of each is read: `homeostat checkpoint verify` reads them whole.

    Exits with 0, or 1 where the directory cannot be read.
    """
    from homeostat.model.clock import parse_time

    place = directory or _place(server) / FOLDER
    rows = []
    try:
        found = [_glance(path) for path in place.iterdir() if path.is_file() and not path.name.endswith(".part")]
    except FileNotFoundError:
        if directory is not None or not place.parent.is_dir():
            raise click.ClickException(f"{place}: No such directory; say which") from None
        found = []  # the server has written none by the clock
    except OSError as error:
        raise click.ClickException(f"{place}: {error.strerror}; say which directory") from None
    told = sorted((one for one in found if one is not None), key=lambda one: one["time"], reverse=True)
    if output != "table":
        emit(told, output)
        return
    for one in told:
        age = ago(time.time() - parse_time(one["time"])) if one["time"] else ""
        rows.append([Path(one["file"]).name, str(one["revision"]), one["time"], age, str(one["size"])])
    if rows:
        echo_lines(table([["FILE", "REV", "TIME", "AGE", "BYTES"], *rows]))
    else:
        timed = "" if directory else "; `homeostat up --checkpoint-every 1h` writes them there, and others are found by `homeostat checkpoint list DIR`"
        click.echo(f"no checkpoint in {place}{timed}", err=True)


def _place(server: Connection) -> Path:
    places = (server.kubeconfig or os.environ.get("KUBECONFIG", "")).split(os.pathsep)
    return (Path(places[0]).expanduser() if places[0] else Path(server.place() or "")).parent


def _glance(path: Path) -> dict[str, Any] | None:
    from homeostat.store.checkpoint import Damaged, Unpacker

    try:
        with path.open("rb") as file:
            head = Unpacker(file, str(path)).head
    except (Damaged, OSError):
        return None
    return {"file": str(path), "revision": head["revision"], "time": head.get("time", ""), "size": path.stat().st_size}


@command.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--data", metavar="DIR", type=click.Path(path_type=Path), help="Into this fresh data directory, instead of in place.")
@click.option("--keep-new", is_flag=True, help="In place: do not delete what was declared since.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Check the file, show the plan, and do nothing.")
@click.option("--approve", is_flag=True, help="Approve all of it at once, where the guards would stop it for its size.")
@click.option("--reason", default="", help="Why it is approved, for whoever reads it later.")
@output_option("text", "json", "yaml")
@server_options(namespace=False)
def restore(
    server: Connection,
    file: Path,
    data: Path | None,
    keep_new: bool,
    yes: bool,
    dry_run: bool,
    approve: bool,
    reason: str,
    output: str,
) -> None:
    """Get back what a checkpoint holds: into a fresh data directory, or in place.

    With --data: the store of a directory that has none, equal to the original: objects, uids, revisions. Nothing may run on it.

    Without: on the running server, as a change set: what differs is declared again as it was, what was declared since is deleted,
    all of it shown as a plan and judged by the guards. Left alone are objects that others make (those with an owner), events,
    leases, tokens and approvals; the status is the loop's to find out. What is declared anew gets a new uid.

    The file is checked to its end before anything is done.

    \b
    Examples:
      homeostat checkpoint restore monday.checkpoint --data ~/fresh && homeostat up --data ~/fresh
      homeostat checkpoint restore monday.checkpoint --dry-run
      homeostat checkpoint restore monday.checkpoint --keep-new --yes

    Exits with 0, 1 where the file is damaged or something is refused, 3 when you said no.
    """
    summary = _verified(file)
    if data is not None:
        _into_directory(file, summary, data.expanduser(), dry_run, output)
        return
    from homeostat.cli.restoring import targets_of
    from homeostat.cli.returning import go_back

    go_back(
        server,
        lambda client: targets_of(client, file, keep_new=keep_new),
        command="restore",
        yes=yes,
        approve=approve,
        reason=reason,
        dry_run=dry_run,
        output=output,
    )


def _into_directory(file: Path, summary: Summary, data: Path, dry_run: bool, output: str) -> None:
    from homeostat.store import StoreError
    from homeostat.store.checkpoint import Unpacker
    from homeostat.store.sqlite.fill import fill

    if not dry_run:
        try:
            with file.open("rb") as opened:
                reader = Unpacker(opened, str(file))
                with progress(summary.objects, "restoring") as bar:
                    fill(data, reader.head["revision"], bar.over(reader.entries()))
        except StoreError as error:
            raise click.ClickException(f"nothing was restored: {error}") from None
        except OSError as error:
            raise click.ClickException(f"nothing was restored: {error.filename or file}: {error.strerror}") from None
    if output != "text":
        emit({**_data(file, summary), "data": str(data), "restored": not dry_run}, output)
        return
    word = "would be" if dry_run else "are"
    click.echo(f"{count(summary.objects, 'object')} {word} in {data}, at revision {summary.revision}.")
    if not dry_run:
        click.echo(f"Start it with `homeostat up --data {data}`. Copy pki/ there first, if kubeconfigs and tokens are to stay good.")
