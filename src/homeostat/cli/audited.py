"""What the audit log knows of writes, for `homeostat history`: asked of the server, or read from its file where one may not ask."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from homeostat.model.protocol import composed_by

if TYPE_CHECKING:
    from homeostat.cli.kinds import Kind
    from homeostat.client import Client

_DOOR = "/homeostat/audit"
_LOG = "audit.log"
_MOST = "5000"
_READS = ("get", "list", "watch")
_LOOP, _MANAGER = "system:homeostat:loop", "homeostat"
"""As who a loop asks that runs in the server, and as what every loop reports."""

Said = dict[str, Any]


async def ask_server(client: Client, kind: Kind | None, namespace: str, name: str, change_set: str) -> list[Said] | None:
    """The records of writes to an object, or of a change set. None where the server has no such log, or it is not ours to read."""
    from homeostat.model.errors import ApiError

    params = {"writes": "true", "limit": _MOST}
    if kind is not None:
        params |= {"group": kind.group, "resource": kind.plural, "namespace": namespace, "name": name}
    else:
        params |= {"changeSet": change_set}
    try:
        found: list[Said] = (await client.request("GET", _DOOR, params)).json()["items"]
    except ApiError as error:
        if error.code in (403, 404):
            return None
        raise
    return found


def from_file(directory: Path, kind: Kind | None, namespace: str, name: str) -> Iterator[Said]:
    """The same from a data directory of this machine."""
    import orjson

    try:
        lines = [line for file in sorted(directory.glob(f"{_LOG}*")) for line in file.read_bytes().splitlines()]
    except OSError as error:
        click.echo(f"the audit log cannot be read: {error.strerror}", err=True)
        return
    for line in lines:
        try:
            said: Said = orjson.loads(line)
        except orjson.JSONDecodeError:
            continue  # cut off by a crash
        thing = said.get("object") or {}
        if not thing or said.get("dryRun") or said["verb"] in _READS:
            continue
        place = (thing.get("group", ""), thing.get("resource"), thing.get("namespace", ""), thing.get("name"))
        if kind is None or place == (kind.group, kind.plural, namespace, name):
            yield said


def has_log(directory: Path) -> bool:
    """Whether a directory is the data directory of a server."""
    return (directory / _LOG).exists()


def by_name(user: str, manager: str) -> str:
    """Who it was, for people: a person with the program that they used, or the loop by what it works for."""
    if user == _LOOP or manager == _MANAGER or manager.startswith(composed_by("")):
        part = manager.partition("/")[2]
        other = f", as {user}" if user not in ("", _LOOP) else ""
        return (f"the loop, for {part}" if part else "the loop") + other
    return f"{user} ({manager})" if user and manager and user != manager else user or manager


def mostly(lines: Iterable[str], width: int) -> list[str]:
    """Text in lines no longer than this; what has no space, such as a path, is cut at its end."""
    import textwrap

    return [part for line in lines for part in textwrap.wrap(line, width, break_on_hyphens=False) or [""]]
