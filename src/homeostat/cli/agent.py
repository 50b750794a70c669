"""`homeostat agent`: keeps one machine with GPUs."""

from __future__ import annotations

import asyncio
import os
import pwd
import signal
import socket
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from homeostat.cli.connection import Connection, server_options
from homeostat.cli.identity import identity
from homeostat.cli.logs import Format, configure, log_options
from homeostat.cli.number import Number

if TYPE_CHECKING:
    from homeostat.client import Client
    from homeostat.gpu.agent import Machine
    from homeostat.gpu.agent.devices import Devices
    from homeostat.gpu.agent.launching import Rules
    from homeostat.providers.process.kind import Logs

F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_STATE = "~/.homeostat/agents/NAME"


def _labels(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    for value in values:
        if not value.partition("=")[0] or "=" not in value:
            raise click.BadParameter(f"{value}: write it as KEY=VALUE")
    return dict(value.split("=", 1) for value in values)


def join_options(command: F) -> F:
    """How an agent or a bridge finds its server, beside a kubeconfig: by an address and a token."""
    options = [
        click.option(
            "--join", metavar="URL", default="", help="The server, such as https://control:7443. Or use --kubeconfig."
        ),
        click.option(
            "--token",
            envvar="HOMEOSTAT_TOKEN",
            default="",
            help="With --join. Others on the machine can see it: better --token-file.",
        ),
        click.option(
            "--token-file", type=click.Path(path_type=Path, dir_okay=False), help="With --join; read again each minute."
        ),
        click.option(
            "--ca-file",
            type=click.Path(path_type=Path, dir_okay=False),
            help="Who signed the server. Default: whom the system trusts.",
        ),
    ]
    found: Any = command
    for option in reversed(options):
        found = option(found)
    return found  # type: ignore[no-any-return]


@click.command()
@join_options
@click.option(
    "--name", default=lambda: socket.gethostname().lower(), show_default="the host's name", help="Of the node."
)
@click.option(
    "--simulate", metavar="NxMODEL[:MEMORY]", default="", help="GPUs that are there only in name: 8xH100, 4xA100:40G."
)
@click.option(
    "--readings", type=click.Path(path_type=Path), help="With --simulate: a JSON file that says how the GPUs are."
)
@click.option("--model", default="", help="The type of GPU, where its own name for it is not yours.")
@click.option("--rack", default="")
@click.option("--zone", default="")
@click.option("--pool", default="", help="The NodePool that it belongs to.")
@click.option("--nvlink-domain", default="", help="Nodes of one domain talk at NVLink speed.")
@click.option("--spot", is_flag=True, help="It may be taken away at any time.")
@click.option("--cost-per-hour", type=Number(min=0), default=0.0)
@click.option(
    "--cpu-milli", type=click.IntRange(min=0), default=0, help="Thousandths of a core for workloads. Default: all."
)
@click.option("--memory-mib", type=click.IntRange(min=0), default=0, help="Memory for workloads. Default: all.")
@click.option("--label", "labels", metavar="KEY=VALUE", multiple=True, callback=_labels, help="May be repeated.")
@click.option(
    "--state",
    metavar="DIR",
    default=DEFAULT_STATE,
    show_default=True,
    help="What must outlast the agent; logs are there too.",
)
@click.option("--user", default="", help="As whom workloads run; needs root. Default: as the agent.")
@click.option(
    "--allow-command",
    "allowed",
    metavar="DIR",
    multiple=True,
    help="Run only programs in DIR; may be repeated. Default: any.",
)
@click.option(
    "--suspend-seconds",
    type=Number(min=1),
    default=300.0,
    show_default=True,
    help="How long a process may take to leave a GPU.",
)
@click.option(
    "--lease-seconds",
    type=Number(min=1),
    default=40.0,
    show_default=True,
    help="Lost after so long without a word: as failure.lease of the GpuPolicy. It gives word four times as often.",
)
@click.option(
    "--log-bytes",
    type=click.IntRange(min=4096),
    default=10 * 1024 * 1024,
    show_default=True,
    help="A workload's log is rotated beyond this.",
)
@click.option("--print-access", is_flag=True, help="Print the roles that the agent of this name needs, and end.")
@log_options
@server_options(namespace=False)
def command(
    server: Connection,
    join: str,
    token: str,
    token_file: Path | None,
    ca_file: Path | None,
    name: str,
    simulate: str,
    readings: Path | None,
    state: str,
    user: str,
    allowed: tuple[str, ...],
    suspend_seconds: float,
    lease_seconds: float,
    log_bytes: int,
    print_access: bool,
    log_format: Format,
    log_level: str,
    **facts: Any,
) -> None:
    """Keep this machine: declare its GPUs, run the workloads that are placed on it, and report.

    Workloads run as processes of this machine and outlive the agent; the next one with the same --state takes them up again. Whoever
    may place workloads in the API has commands run here: starting an agent is what allows it.

    \b
    Examples:
      homeostat agent --simulate 8xH100
      homeostat agent --join https://control:7443 --ca-file ca.crt --token-file token --user jobs
      homeostat agent --name gpu-1 --print-access | kubectl apply -f -

    Exits with 0 when it is told to stop, 1 when it cannot be run.
    """
    from homeostat.client import ConfigError
    from homeostat.gpu.agent import Machine
    from homeostat.gpu.agent.lease import timing_for
    from homeostat.model.names import dns_subdomain_problems

    if problems := dns_subdomain_problems(name):
        raise click.BadParameter(f"{name}: {'; '.join(problems)}", param_hint="--name")
    if print_access:
        _print_access(name)
        return
    configure(log_format, log_level)
    place = Path(state.replace("NAME", name) if state == DEFAULT_STATE else state).expanduser().absolute()
    options = {
        "rules": _rules(allowed, user),
        "output": _output(log_bytes),
        "suspend_seconds": suspend_seconds,
        "timing": timing_for(lease_seconds),
    }
    devices = _devices(simulate, readings)
    try:
        client = client_of(server, join, token, token_file, ca_file)
        _run(client, Machine(name=name, **facts), devices, place, options)
    except ConfigError as error:
        raise click.ClickException(str(error)) from None


def _run(client: Client, machine: Machine, devices: Devices, state: Path, options: dict[str, Any]) -> None:
    import uvloop

    from homeostat.gpu.agent import Agent

    async def run() -> None:
        async with client:
            agent = Agent(client, machine, devices, state, identity(state), **options)

            def greeting() -> str:
                what = f"{len(devices.gpus())} {machine.model or devices.model}{' (simulated)' if devices.simulated else ''}"
                return f"keeping {machine.name}: {what}. Ctrl-C stops the agent; what it runs goes on."

            await run_until_stopped(agent.run(), agent.ready, greeting)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            runner.run(run())
        except Exception as error:
            raise click.ClickException(plain(error)) from None


async def run_until_stopped(running: Coroutine[Any, Any, None], ready: asyncio.Event, greeting: Callable[[], str]) -> None:
    """Runs it until somebody stops this process. Prints the greeting when it is ready, and raises what ends it by itself."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    work = asyncio.create_task(running)
    stopped, greeted = asyncio.create_task(stop.wait()), asyncio.create_task(ready.wait())
    await asyncio.wait({work, stopped, greeted}, return_when=asyncio.FIRST_COMPLETED)
    if ready.is_set():
        click.echo(greeting())
    await asyncio.wait({work, stopped}, return_when=asyncio.FIRST_COMPLETED)
    for task in (greeted, stopped, work):
        task.cancel()
    await asyncio.gather(greeted, stopped, return_exceptions=True)
    if stop.is_set():
        await asyncio.gather(work, return_exceptions=True)
    else:
        await work


def plain(error: BaseException) -> str:
    """What went wrong, in a line: the first that failed brought the others down."""
    from homeostat.client import Unreachable
    from homeostat.gpu.agent.lease import Replaced
    from homeostat.model.errors import ApiError

    found = list(_leaves(error))
    for one in found:
        if isinstance(one, ApiError) and one.code == 401:
            return "the server does not take this token: it is wrong, revoked or has run out; `homeostat token create` makes another"
        if isinstance(one, ApiError):
            return one.message
        if isinstance(one, Unreachable | Replaced | RuntimeError | OSError):
            return str(one)
    raise found[0]


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            yield from _leaves(one)
    else:
        yield error


def client_of(server: Connection, join: str, token: str, token_file: Path | None, ca_file: Path | None) -> Client:
    from homeostat.client import Client
    from homeostat.client.http import HttpTransport
    from homeostat.client.kubeconfig import Target

    if not join:
        if token_file or ca_file:
            raise click.UsageError("--token-file and --ca-file go with --join; a kubeconfig has its own")
        return Client.from_kubeconfig(server.place(), server.context)
    if not join.startswith("https://"):
        raise click.UsageError(f"--join {join}: it must begin with https://, for a token goes there")
    if bool(token) == bool(token_file):
        raise click.UsageError("--join needs a --token-file or a --token")
    try:
        authority = ca_file.read_bytes() if ca_file else b""
    except OSError as error:
        raise click.ClickException(f"{ca_file}: {error.strerror}") from None
    return Client(HttpTransport(Target(join, source="--join", authority=authority, token=token, token_file=token_file)))


def _devices(simulate: str, readings: Path | None) -> Devices:
    from homeostat.gpu.agent.nvml import NoNvml, Nvml
    from homeostat.gpu.agent.simulated import Simulated

    if readings and not simulate:
        raise click.UsageError("--readings goes with --simulate")
    try:
        return Simulated.parse(simulate, readings) if simulate else Nvml()
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--simulate") from None
    except NoNvml as error:
        raise click.ClickException(str(error)) from None


def _rules(allowed: tuple[str, ...], user: str) -> Rules:
    from homeostat.gpu.agent.launching import Rules

    if user:
        if os.geteuid() != 0:
            raise click.UsageError("--user: only root can run workloads as somebody else")
        try:
            pwd.getpwnam(user)
        except KeyError:
            raise click.BadParameter(f"there is no {user} on this machine", param_hint="--user") from None
    return Rules([Path(one).expanduser().absolute() for one in allowed] or True, user)


def _output(log_bytes: int) -> Logs:
    from homeostat.providers.process.kind import Logs

    return Logs(max_bytes=log_bytes)


def _print_access(name: str) -> None:
    import yaml

    from homeostat.gpu.agent.access import AGENTS, manifests, user_of

    click.echo(yaml.safe_dump_all(manifests(name), sort_keys=False).rstrip())
    click.echo(f"a token for it: homeostat token create --user {user_of(name)} --group {AGENTS} --ttl 30d", err=True)
