"""URLs, IP addresses and networks."""

from __future__ import annotations

import ipaddress
import re
from functools import lru_cache
from math import ceil
from typing import Any
from urllib.parse import parse_qsl, quote

from homeostat.model.cel.overloads import PER_CHARACTER, overload, per_character, per_character_twice
from homeostat.model.cel.values import CelError, declare_opaque

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Interface | ipaddress.IPv6Interface


class Url:
    """An absolute URL or an absolute path, taken apart."""

    __slots__ = ("host", "path", "query", "scheme", "text")

    def __init__(self, text: str, scheme: str, host: str, path: str, query: str) -> None:
        self.text = text
        self.scheme = scheme
        self.host = host
        self.path = path
        self.query = query

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Url) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __str__(self) -> str:
        return self.text


declare_opaque(Url, "kubernetes.URL")
for _class in (ipaddress.IPv4Address, ipaddress.IPv6Address):
    declare_opaque(_class, "net.IP")
for _interface in (ipaddress.IPv4Interface, ipaddress.IPv6Interface):
    declare_opaque(_interface, "net.CIDR")

_SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*):(.*)", re.DOTALL).fullmatch
_HOST = re.compile(r"(?:\[[0-9a-fA-F:.]+(?:%25[^\]]+)?\]|[^\[\]:\s<>\"%{}|\\^`]*)(?::[0-9]*)?").fullmatch
_BAD_ESCAPE = re.compile(r"%(?![0-9a-fA-F]{2})").search


def _parse_url(text: str) -> Url:
    if not text:
        raise ValueError(f'parse "{text}": empty url')
    if any(ord(c) < 32 or ord(c) == 127 for c in text):
        raise ValueError(f'parse "{text}": net/url: invalid control character in URL')
    found = _SCHEME(text)
    scheme, rest = (found[1].lower(), found[2]) if found else ("", text)
    if not rest.startswith("/") and not scheme:
        raise ValueError(f'parse "{text}": invalid URI for request')
    if not rest.startswith("/"):  # an opaque URL, such as mailto:someone
        return Url(text, scheme, "", "", rest.partition("?")[2])
    body, _, query = rest.partition("?")
    host = ""
    if body.startswith("//") and (scheme or not body.startswith("///")):
        host, slash, path = body[2:].partition("/")
        body = slash + path
        host = host.rpartition("@")[2]
        if not _HOST(host):
            raise ValueError(f'parse "{text}": invalid character in host name')
    if _BAD_ESCAPE(body):
        raise ValueError(f'parse "{text}": invalid URL escape')
    return Url(text, scheme, host, body, query)


@overload("url(string): kubernetes.URL", cost=per_character)
def url(text: str) -> Url:
    try:
        return _parse_url(text)
    except ValueError as error:
        raise CelError(f"URL parse error during conversion from string: {error}") from None


@overload("isURL(string): bool", cost=per_character)
def is_url(text: str) -> bool:
    try:
        _parse_url(text)
    except ValueError:
        return False
    return True


@overload("kubernetes.URL.getScheme(): string")
def get_scheme(u: Url) -> str:
    return u.scheme


@overload("kubernetes.URL.getHost(): string")
def get_host(u: Url) -> str:
    return u.host


@overload("kubernetes.URL.getHostname(): string")
def get_hostname(u: Url) -> str:
    if u.host.startswith("["):
        return u.host[1 : u.host.index("]")]
    return u.host.partition(":")[0]


@overload("kubernetes.URL.getPort(): string")
def get_port(u: Url) -> str:
    rest = u.host[u.host.index("]") :] if u.host.startswith("[") else u.host
    return rest.partition(":")[2]


@overload("kubernetes.URL.getEscapedPath(): string")
def get_escaped_path(u: Url) -> str:
    return quote(u.path, safe="/%!$&'()*+,;=:@~-._")


@overload("kubernetes.URL.getQuery(): map(string, list(string))")
def get_query(u: Url) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for key, value in parse_qsl(u.query, keep_blank_values=True):
        found.setdefault(key, []).append(value)
    return found


# Addresses


@lru_cache(maxsize=1024)
def _address(text: str) -> Address:
    if "%" in text:
        raise ValueError(f'IP address "{text}" with zone value is not allowed')
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        problem = f'ParseAddr("{text}"): unable to parse IP'
        raise ValueError(f'IP Address "{text}" parse error during conversion from string: {problem}') from None
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        raise ValueError(f'IPv4-mapped IPv6 address "{text}" is not allowed')
    return found


@overload("ip(string): net.IP", cost=per_character)
def ip(text: str) -> Address:
    try:
        return _address(text)
    except ValueError as error:
        raise CelError(str(error)) from None


@overload("isIP(string): bool", cost=per_character)
def is_ip(text: str) -> bool:
    try:
        _address(text)
    except ValueError:
        return False
    return True


@overload("ip.isCanonical(string): bool", cost=per_character_twice)
def is_canonical(text: str) -> bool:
    return str(ip(text)) == text


@overload("net.IP.family(): int")
def family(a: Address) -> int:
    return a.version


@overload("net.IP.isUnspecified(): bool")
def is_unspecified(a: Address) -> bool:
    return a.is_unspecified


@overload("net.IP.isLoopback(): bool")
def is_loopback(a: Address) -> bool:
    return a.is_loopback


def _in(a: Address, v4: str, v6: str) -> bool:
    return a in ipaddress.ip_network(v4 if a.version == 4 else v6)


@overload("net.IP.isLinkLocalMulticast(): bool")
def is_link_local_multicast(a: Address) -> bool:
    if a.version == 4:
        return _in(a, "224.0.0.0/24", "::/128")
    return a.packed[0] == 0xFF and a.packed[1] & 0x0F == 2


@overload("net.IP.isLinkLocalUnicast(): bool")
def is_link_local_unicast(a: Address) -> bool:
    return _in(a, "169.254.0.0/16", "fe80::/10")


@overload("net.IP.isGlobalUnicast(): bool")
def is_global_unicast(a: Address) -> bool:
    limited = a.version == 4 and str(a) == "255.255.255.255"
    return not (limited or a.is_unspecified or a.is_loopback or a.is_multicast or is_link_local_unicast(a))


@overload("string(net.IP): string", "string(net.CIDR): string")
def address_text(a: Any) -> str:
    return str(a)


# Networks


@lru_cache(maxsize=1024)
def _network(text: str) -> Network:
    address, slash, bits = text.partition("/")
    if not slash:
        raise _no_network(text, "no '/'")
    try:
        a = ipaddress.ip_address(address)
    except ValueError:
        raise _no_network(text, f'ParseAddr("{address}"): unable to parse IP') from None
    if not (bits.isascii() and bits.isdigit()) or (bits != "0" and bits[0] == "0"):
        raise _no_network(text, f'bad bits after slash: "{bits}"')
    if len(bits) > 3 or int(bits) > a.max_prefixlen:
        raise _no_network(text, "prefix length out of range")
    if isinstance(a, ipaddress.IPv6Address) and a.ipv4_mapped is not None:
        raise ValueError(f'{_NO_NETWORK}: IPv4-mapped IPv6 address "{text}" is not allowed')
    return ipaddress.ip_interface(text)


_NO_NETWORK = "network address parse error during conversion from string"


def _no_network(text: str, why: str) -> ValueError:
    return ValueError(f'{_NO_NETWORK}: {_NO_NETWORK}: netip.ParsePrefix("{text}"): {why}')


@overload("cidr(string): net.CIDR", cost=per_character)
def cidr(text: str) -> Network:
    try:
        return _network(text)
    except ValueError as error:
        raise CelError(str(error)) from None


@overload("isCIDR(string): bool", cost=per_character)
def is_cidr(text: str) -> bool:
    try:
        _network(text)
    except ValueError:
        return False
    return True


def _per_network(args: Any) -> int:
    width: int = args[0].network.prefixlen // 8
    spoken = ceil(len(args[1]) * PER_CHARACTER) if isinstance(args[1], str) else 0
    return ceil(2 * width * PER_CHARACTER) + spoken


@overload("net.CIDR.containsIP(net.IP): bool", "net.CIDR.containsIP(string): bool", cost=_per_network)
def contains_ip(network: Network, address: Any) -> bool:
    a = ip(address) if isinstance(address, str) else address
    return a in network.network


@overload("net.CIDR.containsCIDR(net.CIDR): bool", "net.CIDR.containsCIDR(string): bool",
          cost=lambda args: 2 * _per_network(args) + 1)  # fmt: skip
def contains_cidr(network: Network, other: Any) -> bool:
    inner = cidr(other) if isinstance(other, str) else other
    if inner.version != network.version:
        return False
    return inner.ip in network.network and inner.network.prefixlen >= network.network.prefixlen


@overload("net.CIDR.ip(): net.IP")
def network_ip(network: Network) -> Address:
    return network.ip


@overload("net.CIDR.masked(): net.CIDR")
def masked(network: Network) -> Network:
    return ipaddress.ip_interface(network.network.with_prefixlen)


@overload("net.CIDR.prefixLength(): int")
def prefix_length(network: Network) -> int:
    return int(network.network.prefixlen)
