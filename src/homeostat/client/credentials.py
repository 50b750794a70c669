"""What proves who we are, fresh: tokens from files are read again, exec plugins are asked again before they expire."""

from __future__ import annotations

import asyncio
import base64
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import msgspec
import orjson

from homeostat.client.kubeconfig import ConfigError, Exec, Target
from homeostat.client.transport import Headers
from homeostat.model.clock import format_time, parse_time

FILE_SECONDS = 60.0
"""How long a token that was read from a file is used before it is read again: kubelets renew them in place."""
EXPIRY_MARGIN = 10.0
"""Seconds before its end at which a plugin's credential is renewed."""
PLUGIN_SECONDS = 60.0
"""How long a plugin may take."""


class Proof(msgspec.Struct, frozen=True):
    """Headers for a request, and the client certificate for its connection."""

    headers: Headers = ()
    certificate: tuple[bytes, bytes] | None = None


class Credentials:
    """The present proof for a target. `now` gives seconds since 1970."""

    def __init__(self, target: Target, now: Callable[[], float] = time.time) -> None:
        self._target = target
        self._now = now
        self._proof: Proof | None = None
        self._until = 0.0
        self._asking = asyncio.Lock()

    @property
    def renewable(self) -> bool:
        """Whether asking again could give something else."""
        return self._target.token_file is not None or self._target.exec is not None

    def forget(self) -> None:
        """The server refused it: ask anew for the next request."""
        self._until = 0.0

    def refused(self, now: float) -> str:
        """Why the server may not have taken the present proof, and what to do. `now` is the server's time."""
        target = self._target
        headers = dict(self._proof.headers) if self._proof is not None else {}
        kind, _, token = headers.get("Authorization", "").partition(" ")
        if target.exec is not None:
            return f"what the exec plugin {target.exec.command} gave is not taken: log in anew with it"
        if kind == "Bearer":
            whose = f"the token in {target.token_file or target.source}"
            ends = expiry(token)
            if ends is not None and ends <= now:
                return f"{whose} expired at {format_time(ends)}: make another, such as by `kubectl create token`"
            return f"{whose} is not taken: it expired, was revoked or is for another server; `homeostat token create` makes another"
        if target.certificate is not None:
            return f"the client certificate in {target.source} is not taken: it expired or is for another server"
        return f"{target.source} has no token and no client certificate for this server" if not kind else f"the password in {target.source} is not taken"

    async def current(self) -> Proof:
        """What to prove with now. Raises `ConfigError` where a file or plugin fails."""
        if self._proof is not None and self._now() < self._until:
            return self._proof
        async with self._asking:
            if self._proof is None or self._now() >= self._until:
                self._proof, self._until = await self._renew()
        return self._proof

    async def _renew(self) -> tuple[Proof, float]:
        target = self._target
        headers = list(target.act_as)
        certificate = target.certificate
        until = float("inf")
        token = target.token
        if target.token_file is not None:
            try:
                token = target.token_file.read_text().strip()
            except OSError as error:
                raise ConfigError(f"{target.token_file}: {error.strerror}") from None
            until = self._now() + FILE_SECONDS
        elif target.exec is not None:
            token, given, until = await ask_plugin(target.exec, target)
            certificate = given or certificate
        if token:
            headers.append(("Authorization", f"Bearer {token}"))
        elif target.basic is not None:
            pair = f"{target.basic[0]}:{target.basic[1]}".encode()
            headers.append(("Authorization", "Basic " + base64.b64encode(pair).decode()))
        return Proof(headers, certificate), until


def expiry(token: str) -> float | None:
    """Until when a token is good (seconds since 1970), where its form tells: a JWT does, ours for people does not."""
    try:
        payload = token.split(".")[1]
        ends = orjson.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))["exp"]
        return float(ends)
    except (IndexError, ValueError, KeyError, TypeError):
        return None


async def ask_plugin(plugin: Exec, target: Target) -> tuple[str, tuple[bytes, bytes] | None, float]:
    """Runs an exec plugin; gives token, certificate and until when (seconds since 1970, less a margin) they hold."""
    request: dict[str, object] = {"interactive": False}
    if plugin.provide_cluster_info:
        cluster: dict[str, object] = {"server": target.server, "insecure-skip-tls-verify": target.insecure}
        if target.authority:
            cluster["certificate-authority-data"] = base64.b64encode(target.authority).decode()
        if target.tls_server_name:
            cluster["tls-server-name"] = target.tls_server_name
        request["cluster"] = cluster
    info = {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": request}
    environment = {**os.environ, **plugin.environment, "KUBERNETES_EXEC_INFO": orjson.dumps(info).decode()}
    try:
        process = await asyncio.create_subprocess_exec(
            plugin.command,
            *plugin.arguments,
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=sys.stderr if _has_descriptor(sys.stderr) else asyncio.subprocess.DEVNULL,
        )
    except OSError as error:
        hint = f"\n{plugin.install_hint}" if plugin.install_hint else ""
        raise ConfigError(f"the exec plugin {plugin.command} cannot be run: {error.strerror}{hint}") from None
    try:
        async with asyncio.timeout(PLUGIN_SECONDS):
            output, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        raise ConfigError(f"the exec plugin {plugin.command} took longer than {PLUGIN_SECONDS:.0f} s") from None
    if process.returncode:
        raise ConfigError(f"the exec plugin {plugin.command} failed with exit status {process.returncode}")
    return _read_credential(plugin, output)


def _read_credential(plugin: Exec, output: bytes) -> tuple[str, tuple[bytes, bytes] | None, float]:
    try:
        answer = orjson.loads(output)
        status = answer["status"]
        token = status.get("token") or ""
        certificate, key = status.get("clientCertificateData"), status.get("clientKeyData")
        expires = status.get("expirationTimestamp")
        until = parse_time(expires) - EXPIRY_MARGIN if expires else float("inf")
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError, ValueError) as error:
        raise ConfigError(f"the exec plugin {plugin.command} did not print an ExecCredential: {error}") from None
    if answer.get("apiVersion") != plugin.api_version:
        version = answer.get("apiVersion")
        raise ConfigError(f"the exec plugin {plugin.command} answered in {version}, not in {plugin.api_version}")
    if bool(certificate) != bool(key) or not (token or certificate):
        raise ConfigError(f"the exec plugin {plugin.command} gave neither a token nor a certificate with its key")
    return token, (certificate.encode(), key.encode()) if certificate else None, until


def _has_descriptor(stream: Any) -> bool:
    try:
        stream.fileno()
    except (AttributeError, OSError, ValueError):
        return False
    return True
