"""What both bridges have in common on the command line."""

from __future__ import annotations

import asyncio
import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from homeostat.cli.agent import client_of, join_options, plain, run_until_stopped
from homeostat.cli.connection import Connection, server_options
from homeostat.cli.identity import identity
from homeostat.cli.logs import Format, configure, log_options
from homeostat.cli.number import Number

if TYPE_CHECKING:
    from homeostat.gpu.bridge import Cluster
    from homeostat.gpu.bridge.models import Models

F = TypeVar("F", bound=Callable[..., Any])
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?").fullmatch


def bridge_options(what: str) -> Callable[[F], F]:
    """The options of every bridge. The command is called with `cluster_options` of its own, and `how`: the rest, for `keep`."""

    def decorate(command: F) -> F:
        options = [
            join_options,
            click.option("--name", default=what, show_default=True, help="Of this bridge, where there are several."),
            click.option(
                "--model",
                "models",
                metavar="TYPE=MODEL[:MEMORY]",
                multiple=True,
                help="What GPUs that the cluster calls TYPE are called in quotas, such as h100=H100:80G. May be repeated.",
            ),
            click.option("--node-prefix", default="", help="Before the names of its machines, where two clusters have the same."),
            click.option(
                "--suspend-as",
                type=click.Choice(["refuse", "restart"]),
                default="refuse",
                show_default=True,
                help="What becomes of those that should leave their GPUs with their state, which a cluster cannot: they run on and say so, or are "
                "ended and begun anew.",
            ),
            click.option("--every", type=Number(min=0.1), default=2.0, show_default=True, help="Seconds between two looks at the cluster."),
            click.option(
                "--lease-seconds",
                type=Number(min=1),
                default=40.0,
                show_default=True,
                help="Lost after so long without a word: as failure.lease of the GpuPolicy.",
            ),
            click.option("--print-access", is_flag=True, help="Print the roles that the bridge needs in Homeostat, for the machines there are now, and end."),
            log_options,
            server_options(namespace=False),
        ]

        @functools.wraps(command)
        def wrapped(**values: Any) -> Any:
            how = How(**{key: values.pop(key) for key in How.__annotations__})
            return command(how=how, **values)

        found: Any = wrapped
        for option in reversed(options):
            found = option(found)
        return found  # type: ignore[no-any-return]

    return decorate


class How:
    """The options of every bridge, as they were given."""

    server: Connection
    join: str
    token: str
    token_file: Path | None
    ca_file: Path | None
    name: str
    models: tuple[str, ...]
    node_prefix: str
    suspend_as: str
    every: float
    lease_seconds: float
    print_access: bool
    log_format: Format
    log_level: str

    def __init__(self, **given: Any) -> None:
        self.__dict__.update(given)
        if not _NAME(self.name):
            raise click.BadParameter(f"{self.name}: small letters, digits, dots and dashes", param_hint="--name")

    def called(self) -> Models:
        """What machines and GPUs are called."""
        from homeostat.gpu.bridge.models import Models

        try:
            return Models.parse(self.models, self.node_prefix)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--model") from None


def keep(how: How, cluster: Cluster, state: Path) -> None:
    """Keeps a cluster until it is told to stop, or prints what that needs."""
    import uvloop

    from homeostat.client import ConfigError

    configure(how.log_format, how.log_level)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            runner.run(_print_access(how, cluster) if how.print_access else _keep(how, cluster, state))
        except ConfigError as error:
            raise click.ClickException(str(error)) from None
        except Exception as error:
            raise click.ClickException(plain(error)) from None


async def _keep(how: How, cluster: Cluster, state: Path) -> None:
    from homeostat.gpu.agent.lease import timing_for
    from homeostat.gpu.bridge import Bridge

    async with client_of(how.server, how.join, how.token, how.token_file, how.ca_file) as client:
        bridge = Bridge(
            client,
            cluster,
            state,
            identity(state),
            restarts=how.suspend_as == "restart",
            every=how.every,
            timing=timing_for(how.lease_seconds),
        )

        def greeting() -> str:
            nodes = [node.member for node in bridge.nodes.values()]
            what = f"{len(nodes)} nodes with {sum(one.gpus for one in nodes)} GPUs of {cluster.what}"
            if not nodes:
                what = f"no node: {cluster.what} shows none with GPUs. If that is the wrong cluster, stop it; if some come, they are kept"
            return f"keeping {what}. Ctrl-C stops the bridge; what it sent there goes on."

        await run_until_stopped(bridge.run(), bridge.ready, greeting)


async def _print_access(how: How, cluster: Cluster) -> None:
    import yaml

    from homeostat.gpu.agent.access import AGENTS, manifests, user_of
    from homeostat.gpu.bridge import Unreadable

    try:
        await cluster.open(lambda: None)
        nodes = sorted((await cluster.look()).members)
    except Unreadable as error:
        raise click.ClickException(f"{cluster.what} cannot be asked for its machines: {error}") from None
    finally:
        await cluster.close()
    if not nodes:
        raise click.ClickException(f"{cluster.what} has no machines with GPUs")
    click.echo(yaml.safe_dump_all(manifests(how.name, nodes), sort_keys=False).rstrip())
    click.echo(f"a token for it: homeostat token create --user {user_of(how.name)} --group {AGENTS} --ttl 30d", err=True)
