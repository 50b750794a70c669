"""`homeostat up`: a control plane on the embedded store, in the foreground."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import shlex
import shutil
import signal
import socket
import sys
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

import click

from homeostat.cli import give_up_output
from homeostat.cli.allow import Allowed, loop_options
from homeostat.cli.keeping import Keeping, keeping_options
from homeostat.cli.logs import Format, configure, log_options

if TYPE_CHECKING:
    from homeostat.api.server import Listen, Server
    from homeostat.cli.controllers import Loop
    from homeostat.guards.policy import Alert

DEFAULT_DATA = "~/.homeostat"
POLICIES = "guardpolicies.homeostat.dev"
KINDS_SECONDS = 5.0
"""So long a first start waits for the kinds of its loop."""
LOOP_USER = "system:homeostat:loop"
"""As whom the loop in this process writes."""
GC_THRESHOLD = (50_000, 50, 1000)
"""How many new objects make a collection, and how many collections a deeper one; Python's default is (700, 10, 10)."""
KUBECTL = "https://kubernetes.io/docs/tasks/tools/, or Debian's package kubernetes-client"

log = logging.getLogger("homeostat")


def _directory(ctx: click.Context, param: click.Parameter, value: str) -> Path:
    try:
        value.encode()
        path = Path(value).expanduser()
    except UnicodeError:
        raise click.BadParameter("the path is not UTF-8") from None
    except RuntimeError:
        raise click.BadParameter(f"{value}: no home directory is known for that; give a whole path") from None
    if not value:
        raise click.BadParameter("it is empty; give a directory")
    return path.absolute()


@click.command()
@click.option(
    "--data",
    metavar="DIR",
    default=DEFAULT_DATA,
    show_default=True,
    callback=_directory,
    help="Directory that holds all state.",
)
@click.option(
    "--listen",
    metavar="HOST:PORT",
    default="127.0.0.1:7443",
    show_default=True,
    help="Port 0 takes a free one; host 0.0.0.0 or [::] listens on every address.",
)
@click.option("--demo", is_flag=True, help="Add a live example to look at.")
@click.option("--no-loop", "alone", is_flag=True, help="Serve the API only: a loop runs elsewhere, or none does.")
@loop_options
@keeping_options
@log_options
def command(
    data: Path,
    listen: str,
    demo: bool,
    alone: bool,
    allow: tuple[str, ...],
    own: tuple[str, ...],
    enforce: bool,
    alerts: tuple[Alert, ...],
    keeping: Keeping,
    log_format: Format,
    log_level: str,
) -> None:
    """Start a control plane and serve until interrupted.

    \b
    Examples:
      homeostat up
      homeostat up --demo
      homeostat up --data ./state --listen 127.0.0.1:0
      homeostat up --allow file:/etc/app --allow process --enforce
      homeostat up --checkpoint-every 1h --checkpoint-keep 24 --keep-history 90d --keep-history secrets=1d

    Exits with 0 when it is told to stop, 1 when it cannot be run.
    """
    gc.disable()  # until it serves: what is made on the way lasts
    import uvloop

    from homeostat.api.auth.pki import PkiError
    from homeostat.api.server import CannotListen, Listen
    from homeostat.store import Full, StoreError

    if alone and (allow or own or enforce or alerts):
        raise click.UsageError("--no-loop: the other options are for a loop here; leave it out, or them")
    if demo:
        from homeostat.cli.gpu.facts import needs_numpy

        if alone:
            raise click.UsageError("--demo: the example needs the loop; leave --no-loop out")
        needs_numpy()
        allow = tuple(dict.fromkeys([*allow, "gpu"]))
    allowed = None if alone else Allowed.parse(allow, own)
    _hold_standard_streams()
    configure(log_format, log_level)
    try:
        where = Listen.parse(listen)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--listen") from None
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(data, where, demo, allowed, enforce, alerts, keeping))
    except CannotListen as error:
        raise click.ClickException(f"{error}. Where to listen is said with --listen") from None
    except Full:
        raise click.ClickException(_no_space(data)) from None
    except (StoreError, PkiError) as error:
        raise click.ClickException(str(error)) from None
    except OSError as error:
        raise click.ClickException(_explain(error, data)) from None


def _hold_standard_streams() -> None:
    """Fills the numbers 0 to 2 where they are free: a socket that got one of them would be taken for a terminal."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)


async def _serve(
    data: Path,
    where: Listen,
    demo: bool,
    allowed: Allowed | None,
    enforce: bool,
    alerts: tuple[Alert, ...],
    keeping: Keeping,
) -> None:
    from homeostat.api.server import Server

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # nohup keeps it going
            loop.add_signal_handler(number, stop.set)
    server = Server(data, where, **keeping.options(data))
    await server.start()
    from homeostat.web.mount import Dashboard

    dashboard = Dashboard(server)
    # What is here now lives as long as the process, and requests leave few cycles: look for garbage less often.
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLD)
    gc.enable()
    # Who reads that it is ready declares something next. Where a loop ran before its kinds are there, and nobody waits for it; but
    # for kinds of the user's own, which may be new, or not load.
    first = allowed is not None and (bool(allowed.own) or server.plane.registry.get(POLICIES) is None)
    try:
        if not first:
            _greet(server, demo, _loop_line(allowed, enforce, demo), dashboard.admin_link())
        example = None
        if demo:
            from homeostat.cli.demo import Demo

            example = Demo(server)
            await example.prepare()
        loop_inside = None if allowed is None else await _loop(server, allowed, enforce, alerts)
        if first and loop_inside is not None:
            await _served(server, loop_inside.names)
            _greet(server, demo, _loop_line(allowed, enforce, demo), dashboard.admin_link())
        if example is not None:
            example.begin()
        await stop.wait()
        if loop_inside is not None:
            await loop_inside.stop()
        if example is not None:
            await example.stop()
    finally:
        await dashboard.stop()
        await server.stop()


async def _served(server: Server, names: Collection[str]) -> None:
    """Until these kinds are served, or for some seconds: a loop that cannot begin says why, and is no reason to keep silent."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(KINDS_SECONDS):
            while any(server.plane.registry.get(name) is None for name in names):
                await asyncio.sleep(0.01)


async def _loop(server: Server, allowed: Allowed, enforce: bool, alerts: tuple[Alert, ...]) -> Loop:
    """The loop in this process."""
    from homeostat.api.local import local_client
    from homeostat.cli.controllers import Loop, mode_of
    from homeostat.cli.identity import EMBEDDED
    from homeostat.web.children import mount_children

    await asyncio.to_thread(allowed.load)
    client = local_client(server.plane, LOOP_USER)
    kept = allowed.providers(server.data, server.kubeconfig)
    loop = Loop(client, kept, mode_of(enforce), EMBEDDED, alerts)
    mount_children(server.plane, client, kept, mode_of(enforce))
    server.plane.more_metrics.append(loop.metrics.text)
    loop.begin()
    return loop


def _loop_line(allowed: Allowed | None, enforce: bool, demo: bool) -> str:
    if allowed is None:
        return "none here: `homeostat controllers` runs it"
    acts = "acts" if enforce else "acts on GPU workloads, observes all else" if demo else "observes"
    return f"{acts}, and may touch {allowed}; `homeostat drift` shows what it sees"


def _greet(server: Server, demo: bool, loop: str, link: str) -> None:
    try:
        click.echo("\n".join(_greeting(server, demo, loop, link)))
    except OSError as error:  # the reader of a pipe went away, a log file's disk is full: no reason to stop serving
        log.warning("ready at %s; that could not be printed: %s", server.url, error.strerror)
        give_up_output()


def _greeting(server: Server, demo: bool, loop: str, link: str) -> list[str]:
    lines = [
        f"homeostat is ready at {server.url}",
        f"  data        {server.data}",
        f"  kubeconfig  {server.kubeconfig}   (admin; keep it to yourself)",
        f"  loop        {loop}",
        f"  dashboard   {link}   (signs in once, within five minutes; `homeostat ui` makes another)",
    ]
    if server.listen.everywhere:
        others = server.url.replace(server.listen.url_host, socket.gethostname())
        lines.append(f"  listens     on every address of this machine; others reach it as {others}")
    lines += ["", "Try, in another terminal:", f"  export KUBECONFIG={shlex.quote(str(server.kubeconfig))}"]
    if demo and shutil.which("homeostat") is None and (beside := Path(sys.executable).parent / "homeostat").exists():
        lines.append(f'  export PATH={shlex.quote(str(beside.parent))}:"$PATH"')
    lines += [f"  {line}" for line in (["# what comes next is told when the example is there"] if demo else _plain_lines())]
    if shutil.which("kubectl") is None:
        lines += ["", f"kubectl is not on the PATH; how to get it: {KUBECTL}"]
    return [*lines, "", "Ctrl-C stops it; what was declared stays in the data directory."]


def _plain_lines() -> list[str]:
    return [
        "kubectl api-resources",
        "kubectl get namespaces",
        "kubectl create configmap hello --from-literal=who=world",
    ]


def _explain(error: OSError, data: Path) -> str:
    import errno

    where = error.filename2 or error.filename or data
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"{where}: {error.strerror}. Check its owner and permissions, or choose another directory with --data"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return _no_space(data)
    return f"{where}: {error.strerror or error}"


def _no_space(data: Path) -> str:
    return f"no space is left for {data}: free some and start again"
