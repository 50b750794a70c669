"""`homeostat token`: bearer tokens for people."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

import click

from homeostat.cli.connection import Connection, server_options
from homeostat.cli.duration import seconds
from homeostat.cli.show import echo_lines, emit, output_option, table

if TYPE_CHECKING:
    from homeostat.client import Client

T = TypeVar("T")

API_VERSION, KIND = "homeostat.dev/v1", "UserToken"


@click.group()
def command() -> None:
    """Make, list and revoke bearer tokens for people.

    A token stands for a user and groups until it expires or is revoked. What they may do is said by roles.

    \b
    Examples:
      homeostat token create --user ada --ttl 8h
      homeostat token list
      homeostat token revoke token-x7k2p
    """


@command.command()
@click.option("--user", required=True, help="Whom the token stands for.")
@click.option("--group", "groups", multiple=True, help="A group the user is in; may be repeated.")
@click.option("--ttl", callback=seconds, default="24h", show_default=True, help="How long it lives: 30m, 24h, 7d.")
@click.option("-o", "--output", type=click.Choice(["token", "kubeconfig"]), default="token", show_default=True)
@server_options(namespace=False)
def create(server: Connection, user: str, groups: tuple[str, ...], ttl: int, output: str) -> None:
    """Make a token and print it: now and never again.

    \b
    Examples:
      homeostat token create --user ada --ttl 8h
      homeostat token create --user ada --group dev -o kubeconfig > ada.kubeconfig

    Exits with 0, or 1 where the server refuses it.
    """
    spec: dict[str, Any] = {"user": user, "expirationSeconds": ttl}
    if groups:
        spec["groups"] = list(groups)

    async def make(client: Client) -> dict[str, Any]:
        return await client.kind(API_VERSION, KIND).create({"metadata": {"generateName": "token-"}, "spec": spec})

    made = _with_server(server, make)
    status = made["status"]
    click.echo(_kubeconfig_for(server, user, status["token"]) if output == "kubeconfig" else status["token"])
    note = f"{made['metadata']['name']} for {user}, valid until {status['expirationTimestamp']}"
    click.echo(f"{note}; it is not shown again", err=True)


@command.command("list")
@output_option("table", "json", "yaml")
@server_options(namespace=False)
def list_tokens(server: Connection, output: str) -> None:
    """List tokens: whose they are and until when. What they are is known to nobody but who made them.

    \b
    Examples:
      homeostat token list
      homeostat token list -o json

    Exits with 0, or 1 where the server refuses it.
    """

    async def read(client: Client) -> list[dict[str, Any]]:
        return await client.kind(API_VERSION, KIND).list()

    found = sorted(_with_server(server, read), key=lambda item: str(item["status"]["expirationTimestamp"]))
    if output != "table":
        emit([{"name": i["metadata"]["name"], **i["spec"], "expires": i["status"]["expirationTimestamp"]} for i in found], output)
        return
    rows = [("NAME", "USER", "GROUPS", "EXPIRES")]
    for item in found:
        spec = item["spec"]
        groups = ",".join(spec.get("groups", ())) or "-"
        rows.append((item["metadata"]["name"], spec["user"], groups, item["status"]["expirationTimestamp"]))
    if len(rows) == 1:
        click.echo("no tokens", err=True)
        return
    echo_lines(table(rows))


@command.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@server_options(namespace=False)
def revoke(server: Connection, names: tuple[str, ...]) -> None:
    """Revoke tokens by name, as `homeostat token list` shows them: the next request with one is refused.

    \b
    Examples:
      homeostat token revoke token-x7k2p

    Exits with 0 when all are revoked, 1 when one is not.
    """

    from homeostat.model.errors import ApiError

    async def drop(client: Client) -> int:
        failed = 0
        for name in names:
            try:
                await client.kind(API_VERSION, KIND).delete(name)
            except ApiError as error:  # the others must not live on because of one
                click.echo(f"{name} is not revoked: {error.message}", err=True)
                failed += 1
            else:
                click.echo(f"{name} is revoked", err=True)
        return failed

    if _with_server(server, drop):
        raise click.exceptions.Exit(1)


def _with_server(server: Connection, work: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
    from homeostat.model.errors import ApiError

    async def checked(client: Client) -> T:
        try:
            return await work(client)
        except ApiError as error:
            if error.code == 404 and not error.name:
                raise click.ClickException(f"that server is not Homeostat: {error.message}") from None
            raise

    return server.run(checked)


def _kubeconfig_for(server: Connection, user: str, token: str) -> str:
    """A kubeconfig for the same server with nothing but this token."""
    import base64

    import yaml

    from homeostat.client.kubeconfig import from_kubeconfig

    target = from_kubeconfig(server.place(), server.context)
    cluster: dict[str, Any] = {"server": target.server}
    if target.authority:
        cluster["certificate-authority-data"] = base64.b64encode(target.authority).decode()
    if target.insecure:
        cluster["insecure-skip-tls-verify"] = True
    if target.tls_server_name:
        cluster["tls-server-name"] = target.tls_server_name
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "homeostat", "cluster": cluster}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": "homeostat", "context": {"cluster": "homeostat", "user": user}}],
        "current-context": "homeostat",
    }
    return str(yaml.safe_dump(document, sort_keys=False)).rstrip()
