"""How every command finds its server: the same options, the same errors."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

if TYPE_CHECKING:
    from homeostat.client import Client

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_KUBECONFIG = "~/.homeostat/admin.kubeconfig"
REQUEST_SECONDS = 10.0
"""How long a request may take. Somebody sits and waits: a server that is not there is told at once."""


_EXPIRED, _OTHER_HOST, _OTHER_ADDRESS = 10, 62, 64  # X509_V_ERR_…
_ELSEWHERE = "Call it by the name that `homeostat up` prints, or start it with that one as --listen."
_TRUST = {_EXPIRED: "A restart of the server renews it.", _OTHER_HOST: _ELSEWHERE, _OTHER_ADDRESS: _ELSEWHERE}


class Trouble(click.ClickException):
    """What went wrong, where the exit code 1 has a meaning of its own."""

    exit_code = 2


class Connection(msgspec.Struct, frozen=True):
    """Which server, as whom, and where in it. Commands get it from `server_options`."""

    kubeconfig: str | None = None
    context: str | None = None
    namespace: str = ""

    def place(self) -> str | None:
        """The kubeconfig to read; None leaves it to $KUBECONFIG."""
        if self.kubeconfig or os.environ.get("KUBECONFIG"):
            return self.kubeconfig
        ours = Path(DEFAULT_KUBECONFIG).expanduser()
        if not ours.exists():
            raise click.ClickException(
                f"{ours} does not exist: start a server with `homeostat up`, or name a kubeconfig with --kubeconfig"
            )
        return str(ours)

    def run(
        self,
        work: Callable[[Client], Coroutine[Any, Any, T]],
        *,
        failure: type[click.ClickException] = click.ClickException,
        **options: Any,
    ) -> T:
        """Does the work with a client and gives what it gives; what fails is said in one line, as this kind of failure."""
        import asyncio

        from homeostat.client import Client, ConfigError, Unreachable
        from homeostat.client.transport import Untrusted
        from homeostat.model.errors import ApiError

        async def connected() -> T:
            settings = {"timeout": REQUEST_SECONDS, "attempts": 1, **options}
            if self.namespace:
                settings["namespace"] = self.namespace
            async with Client.from_kubeconfig(self.place(), self.context, **settings) as client:
                try:
                    return await work(client)
                except ApiError as error:
                    if error.code == 404 and error.name:
                        from homeostat.cli.kinds import similar_name

                        error.message += await similar_name(client, error)
                    raise

        try:
            return asyncio.run(connected())
        except ConfigError as error:
            message = str(error)
        except Untrusted as error:
            way = _TRUST.get(error.why, "The kubeconfig is not this server's: `homeostat up` prints where its own is, and writes it anew at every start.")
            message = f"{error}. {way}"
        except Unreachable as error:
            message = f"{error}. Is the server up? `homeostat up` starts it."
        except ApiError as error:
            message = error.message
        except click.ClickException as error:
            message = error.message
        raise failure(message)


def server_options(namespace: bool = True) -> Callable[[F], F]:
    """Adds --kubeconfig, --context and (unless told otherwise) --namespace, and hands them over as `server`."""

    def decorate(command: F) -> F:
        @functools.wraps(command)
        def wrapped(*args: Any, kubeconfig: str | None, context: str | None, namespace: str = "", **rest: Any) -> Any:
            return command(*args, server=Connection(kubeconfig, context, namespace), **rest)

        options = [
            click.option(
                "--kubeconfig",
                metavar="PATH",
                help=f"Which server, and as whom. Default: $KUBECONFIG, then {DEFAULT_KUBECONFIG}.",
            ),
            click.option(
                "--context", metavar="NAME", help="The context of the kubeconfig, where it is not the current."
            ),
        ]
        if namespace:
            options.append(
                click.option("-n", "--namespace", metavar="NAME", default="", help="Default: that of the context.")
            )
        found: Any = wrapped
        for option in reversed(options):
            found = option(found)
        return found  # type: ignore[no-any-return]

    return decorate
