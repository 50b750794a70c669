"""Where a provider may connect to. What is declared may be declared by anybody with a namespace: it must not become a way
to what only this machine should reach, such as the metadata service of a cloud that hands out its credentials.

Link-local, unspecified, multicast and reserved addresses are refused however they are written, and whatever name resolves to
them, at the moment of connecting. A host that is allowed by name is allowed whatever its address.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aiohttp.abc import ResolveResult

_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_METADATA = frozenset(map(ipaddress.ip_address, ("169.254.169.254", "fd00:ec2::254", "168.63.129.16")))

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class Forbidden(Exception):
    """A host that must not be connected to. The message says why, and who could allow it."""


class Hosts:
    """Which hosts are allowed. None: all but those that the top of this module names. Else only those named: `api.example.com`,
    `api.example.com:8443`, `*.example.com` for all below it."""

    def __init__(self, allowed: Collection[str] | None = None) -> None:
        self._allowed = None if allowed is None else frozenset(name.lower() for name in allowed)

    def check(self, host: str, port: int) -> None:
        """Raises `Forbidden` where the host is not allowed by its name, or is an address that is not."""
        if self.named(host, port):
            return
        if self._allowed is not None:
            raise Forbidden(f"{host}:{port} is not among the hosts that the administrator allows")
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            return  # a name: its addresses are checked when it is resolved
        self.check_address(host, address)

    def named(self, host: str, port: int) -> bool:
        """Whether an administrator allowed this host explicitly."""
        host = host.lower().rstrip(".")
        above = host.split(".")
        names = {host, f"{host}:{port}", *("*." + ".".join(above[n:]) for n in range(1, len(above)))}
        return self._allowed is not None and not names.isdisjoint(self._allowed)

    def check_address(self, host: str, address: Address) -> None:
        """Raises `Forbidden` for an address that nobody allowed by name."""
        if why := off_limits(address):
            shown = host if host == str(address) else f"{host} ({address})"
            raise Forbidden(f"{shown} is {why}; only an administrator can allow it, by name")

    async def check_all(self, host: str, port: int) -> None:
        """Resolves the host and checks what comes out. For clients that resolve by themselves; ours use `Resolver`."""
        self.check(host, port)
        if self.named(host, port):
            return
        try:
            found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError:
            return  # connecting will fail as well, and say so
        for entry in found:
            self.check_address(host, ipaddress.ip_address(str(entry[4][0]).partition("%")[0]))

    def resolver(self) -> Resolver:
        """For aiohttp's connector: a name is connected to only at addresses that pass."""
        return Resolver(self)


class Resolver:
    """Resolves names by the system and lets only allowed addresses through, so that no name can lead anywhere else."""

    def __init__(self, hosts: Hosts) -> None:
        self._hosts = hosts

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, family=family, flags=socket.AI_ADDRCONFIG)
        allowed: list[ResolveResult] = []
        named = self._hosts.named(host, port)
        for kind, _, protocol, _, where in found:
            text = str(where[0])
            if not named:
                self._hosts.check_address(host, ipaddress.ip_address(text.partition("%")[0]))
            allowed.append(
                {
                    "hostname": host,
                    "host": text,
                    "port": port,
                    "family": kind,
                    "proto": protocol,
                    "flags": socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
                }
            )
        return allowed

    async def close(self) -> None:
        """Nothing is held."""


def off_limits(address: Address) -> str:
    """Why nobody should connect there; empty where one may."""
    plain = _inner(address)
    if plain in _METADATA:
        return "the metadata service of the machine"
    if plain.is_link_local:
        return "a link-local address"
    if plain.is_unspecified or plain.is_multicast or (plain.is_reserved and not plain.is_loopback):
        return "not the address of a host"
    return ""


def _inner(address: Address) -> Address:
    """The IPv4 address that an IPv6 address carries, where it carries one; else itself."""
    if isinstance(address, ipaddress.IPv6Address):
        if address in _NAT64:
            return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        return address.ipv4_mapped or address.sixtofour or address
    return address
