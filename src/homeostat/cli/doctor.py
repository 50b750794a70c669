"""`homeostat doctor`: what may be wrong around a server and its loop, and what to do about it."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from homeostat.cli.connection import Connection, server_options
from homeostat.cli.show import ago, count, echo_lines, emit, output_option

if TYPE_CHECKING:
    from homeostat.client import Client
    from homeostat.client.kubeconfig import Target

GOOD, NOTE, BAD = "ok", "note", "problem"
_MARKS = {GOOD: ("✓", "green"), NOTE: ("!", "yellow"), BAD: ("✗", "red")}
SKEW_SECONDS = 5.0
TOLD_SECONDS = 2.0
"""The time of an answer has whole seconds, and may be a second old: what is less than this apart may be nothing."""
STUCK_SECONDS = 300.0
EXPIRY_DAYS = 14
LEAST_BYTES = 1 << 30
SLOW_SECONDS = 0.5


class Finding(msgspec.Struct, frozen=True, rename="camel"):
    """One thing that was looked at."""

    level: str
    subject: str
    said: str
    to_do: str = ""


@click.command()
@output_option("text", "json", "yaml")
@server_options(namespace=False)
def command(server: Connection, output: str) -> None:
    """Look at everything that tends to be wrong: the way to the server, its clock, certificates and disk, whether a loop runs, what is
    stuck, which breakers are open.

    \b
    Examples:
      homeostat doctor
      homeostat doctor -o json

    Exits with 0 where nothing is wrong, 1 where something is.
    """
    found: list[Finding] = []

    async def look(client: Client) -> None:
        from homeostat.model.errors import ApiError

        try:
            async for finding in _findings(client, target):
                note(finding)
        except ApiError as error:
            note(Finding(BAD, "server", error.message))

    def note(finding: Finding) -> None:
        found.append(finding)
        if output == "text":
            _say(finding)

    target = _target(server)
    try:
        server.run(look)
    except click.ClickException as error:
        note(Finding(BAD, "server", error.message, _free_port(target)))
    if output != "text":
        emit([msgspec.to_builtins(one) | ({"toDo": ""} if one.level == GOOD else {}) for one in found], output)
    if any(finding.level == BAD for finding in found):
        raise click.exceptions.Exit(1)


def _say(finding: Finding) -> None:
    mark, colour = _MARKS[finding.level]
    echo_lines([f"{click.style(mark, fg=colour)} {finding.subject.ljust(13)} {finding.said}"])
    if finding.to_do and finding.level != GOOD:
        echo_lines([f"  {' ' * 13} {finding.to_do}"])


def _target(server: Connection) -> Target:
    from homeostat.client import ConfigError
    from homeostat.client.kubeconfig import from_kubeconfig

    try:
        return from_kubeconfig(server.place(), server.context)
    except ConfigError as error:
        raise click.ClickException(str(error)) from None


def _free_port(target: Target) -> str:
    """Why nobody answers, as far as this machine can tell."""
    import socket
    from urllib.parse import urlsplit

    where = urlsplit(target.server)
    try:
        with socket.create_connection((where.hostname or "", where.port or 443), timeout=2):
            return f"something listens on {where.netloc}, and does not answer as this server would"
    except OSError as error:
        return f"nothing listens on {where.netloc} ({error.strerror or error}): `homeostat up` starts a server there"


async def _findings(client: Client, target: Target) -> AsyncIterator[Finding]:
    from homeostat.model.errors import ApiError

    for finding in await _server(client, target):
        yield finding
    for finding in await asyncio.to_thread(lambda: list(_certificates(target))):
        yield finding
    for finding in _disk(target):
        yield finding
    for subject, part in (("loop", _loops), ("guards", _guards), ("finalizers", _stuck), ("breakers", _breakers), ("gpu nodes", _nodes)):
        try:
            told = await part(client)
        except ApiError as error:
            told = [Finding(NOTE, subject, f"that cannot be told: {error.message}")]
        for finding in told:
            yield finding


async def _server(client: Client, target: Target) -> list[Finding]:
    from email.utils import parsedate_to_datetime

    from homeostat import __version__

    await client.request("GET", "/version")  # opens the connection
    began = time.perf_counter()
    reply = await client.request("GET", "/version")
    took = time.perf_counter() - began
    version = reply.json()
    said = f"{target.server} answers in {took * 1000:.0f} ms"
    found = [Finding(NOTE if took > SLOW_SECONDS else GOOD, "server", said, "it is slow: is the machine busy, or far?")]
    theirs = str(version.get("gitVersion", "")).partition("homeostat.")[2].lstrip("v") or str(version.get("gitVersion", ""))
    same = __version__ in str(version.get("gitVersion", ""))
    found.append(Finding(GOOD if same else NOTE, "version", f"server {theirs}, this command {__version__}", "they differ: that mostly works; use the same where something is odd"))
    told = {name.lower(): value for name, value in reply.headers.items()}.get("date")
    if told:
        skew = time.time() - parsedate_to_datetime(told).timestamp()
        level = GOOD if abs(skew) <= SKEW_SECONDS else BAD
        apart = f"{abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} the server's" if abs(skew) > TOLD_SECONDS else "agrees with the server's"
        found.append(Finding(level, "clock", apart, "set the clocks of both by NTP: leases, tokens and freezes go by them"))
    return found


def _certificates(target: Target) -> Iterator[Finding]:
    import ssl
    from urllib.parse import urlsplit

    from cryptography import x509

    where = urlsplit(target.server)
    pems: dict[str, bytes] = {}
    try:
        pems["that of the server"] = ssl.get_server_certificate((where.hostname or "", where.port or 443), timeout=5).encode()
    except (OSError, ssl.SSLError) as error:
        yield Finding(NOTE, "certificate", f"the server's cannot be read: {error}")
    if target.authority:
        pems["that of its authority"] = target.authority
    if target.certificate is not None:
        pems["yours"] = target.certificate[0]
    for whose, pem in pems.items():
        ends = x509.load_pem_x509_certificate(pem).not_valid_after_utc.timestamp()
        days = (ends - time.time()) / 86400
        level = BAD if days < 0 else NOTE if days < EXPIRY_DAYS else GOOD
        said = f"{whose} is good for {days:.0f} days" if days >= 0 else f"{whose} expired {-days:.0f} days ago"
        yield Finding(level, "certificate", said, "restart the server: it renews what it made, and writes admin.kubeconfig anew")


def _disk(target: Target) -> Iterator[Finding]:
    """Only where the server's data directory is on this machine, which its kubeconfig lies in."""
    from homeostat.cli.connection import DEFAULT_KUBECONFIG

    for place in filter(None, (target.source, DEFAULT_KUBECONFIG)):
        data = Path(str(place)).expanduser().parent
        if (data / "pki").is_dir() and _is_of(data, target):
            if _read_only(data):
                yield Finding(BAD, "disk", f"the file system of {data} is read-only", "look in the system's log for why: until it is writable nothing is written, and reads go on")
                return
            usage = shutil.disk_usage(data)
            part = usage.free / usage.total
            level = BAD if usage.free < LEAST_BYTES // 8 else NOTE if usage.free < LEAST_BYTES or part < 0.05 else GOOD
            yield Finding(level, "disk", f"{usage.free / (1 << 30):.1f} GiB free for {data} ({part:.0%})", "free some: without space nothing is written, and reads go on")
            return


def _is_of(data: Path, target: Target) -> bool:
    """Whether a data directory belongs to this server, and not to another that also runs here."""
    try:
        return (data / "pki" / "ca.crt").read_bytes().strip() == (target.authority or b"").strip()
    except OSError:
        return False


def _read_only(data: Path) -> bool:
    try:
        os.close(os.open(data / "lock", os.O_WRONLY))
    except OSError as error:
        return error.errno == errno.EROFS
    return False


async def _loops(client: Client) -> list[Finding]:
    from homeostat.cli.kinds import served_kinds
    from homeostat.insight.loops import NOBODY, loops_of
    from homeostat.loop.election import NAMESPACE

    kinds = [kind for kind in await served_kinds(client) if kind.kept]
    now = client.now()
    loops = loops_of(await client.kind("coordination.k8s.io/v1", "Lease").list(namespace=NAMESPACE), now)
    found, alive = [], 0
    for kind in kinds:
        loop = loops.get(kind.name, NOBODY)
        if loop.there:
            alive += 1
        elif loop.trouble:
            found.append(Finding(BAD, "loop", f"the loop cannot keep {kind.name}: {loop.trouble}", "mend what it says; it tries again by itself"))
        else:
            since = "yet" if loop is NOBODY else f"for {ago(now - loop.heard)}"
            found.append(Finding(NOTE, "loop", f"nobody has kept {kind.name} {since}", "`homeostat up --allow …` or `homeostat controllers` runs its provider; or delete its definition"))
    return [Finding(GOOD, "loop", f"{count(alive, 'kind')} kept by a living loop"), *found] if alive or not found else found


async def _guards(client: Client) -> list[Finding]:
    from homeostat.model.conditions import find_condition
    from homeostat.model.errors import ApiError

    try:
        policies = await client.kind("homeostat.dev/v1alpha1", "GuardPolicy").list()
    except ApiError as error:
        if error.code != 404:
            raise
        return [Finding(NOTE, "guards", "there are no policies: no loop has run here yet")]
    found = []
    for policy in policies:
        name, status = policy["metadata"]["name"], policy.get("status") or {}
        for halt in status.get("halts") or ():
            found.append(Finding(BAD, "guards", f"{name} is halted by {halt['guard']}: {halt['reason']}", f"homeostat runbook {name}"))
        ready = find_condition(policy, "Ready") or {}
        if ready.get("reason") == "Unreadable":
            found.append(Finding(BAD, "guards", f"{name}: {ready['message']}", "correct the policy; until then its fleet is only observed"))
        if ready.get("reason") == "Frozen":
            found.append(Finding(NOTE, "guards", f"{name} is {ready['message']}", f"homeostat unfreeze {name}"))
    return found or [Finding(GOOD, "guards", f"none of {len(policies)} policies is halted or frozen")]


async def _stuck(client: Client) -> list[Finding]:
    """What was to be deleted long ago and is still there."""
    from homeostat.cli.kinds import served_kinds
    from homeostat.model.clock import parse_time

    kinds = [kind for kind in await served_kinds(client) if kind.kept or kind.name in ("namespaces", "customresourcedefinitions.apiextensions.k8s.io")]
    found = []
    for kind in kinds:
        for obj in await kind.on(client).list():
            metadata = obj["metadata"]
            if (since := metadata.get("deletionTimestamp")) and client.now() - parse_time(since) > STUCK_SECONDS:
                held = ", ".join(metadata.get("finalizers") or ()) or "nothing that it names"
                where = f"{metadata['namespace']}/" if metadata.get("namespace") else ""
                said = f"{kind.kind} {where}{metadata['name']} should be gone for {ago(client.now() - parse_time(since))}, held by {held}"
                found.append(Finding(BAD, "finalizers", said, f"homeostat explain {kind.plural} {metadata['name']}: its provider may be off, or a guard hold it"))
    return found or [Finding(GOOD, "finalizers", "nothing waits to be deleted for long")]


async def _nodes(client: Client) -> list[Finding]:
    """What the governor says of machines with GPUs: a disk that cannot be written, a clock that is wrong, and so many silent that it does nothing."""
    from homeostat.model.conditions import find_condition
    from homeostat.model.errors import ApiError

    try:
        nodes = await client.kind("gpu.homeostat.dev/v1alpha1", "GpuNode").list()
    except ApiError as error:
        if error.code != 404:
            raise
        return []
    found = await _silence(client)
    for node in nodes:
        for kind in ("DiskPressure", "ClockSkewed"):
            said = find_condition(node, kind) or {}
            if said.get("status") == "True":
                found.append(Finding(BAD, "gpu nodes", f"{node['metadata']['name']}: {said['message']}", f"kubectl describe gpunode {node['metadata']['name']}"))
    return found


async def _silence(client: Client) -> list[Finding]:
    try:
        from homeostat.insight.gpu import NoGpus, gather, stands_still
    except ImportError:  # without numpy nobody decides here, and nobody can tell
        return []
    try:
        facts = await gather(client)
    except NoGpus as error:
        return [Finding(BAD, "gpu nodes", str(error), "homeostat gpu top")]
    return [Finding(BAD, "gpu nodes", said, "homeostat gpu top") for said in stands_still(facts.plan)]


async def _breakers(client: Client) -> list[Finding]:
    """What the loop in the server says of them; one elsewhere has figures of its own."""
    from homeostat.model.errors import ApiError

    try:
        text = (await client.request("GET", "/metrics")).body.decode()
    except ApiError:
        return [Finding(NOTE, "breakers", "you may not read /metrics, which tells")]
    opened = [line for line in text.splitlines() if line.startswith("homeostat_breakers{") and 'state="open"' in line and not line.endswith((" 0", " 0.0"))]
    if opened:
        return [Finding(BAD, "breakers", line.partition("{")[2].partition("}")[0], "what it protects failed again and again; it is tried again by itself") for line in opened]
    return [Finding(GOOD, "breakers", "none is open")]
