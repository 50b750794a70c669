"""Checks that several kinds share, in upstream's words. Each gives the errors it found."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from homeostat.api.schema import IMMUTABLE
from homeostat.model.errors import FieldError, bad_request
from homeostat.model.names import dns_label_problems, dns_subdomain_problems, qualified_name_problems
from homeostat.model.quantity import Quantity, parse_quantity

NOT_NEGATIVE = "must be greater than or equal to 0"
POSITIVE = "must be greater than 0"
INT32_MAX = 2**31 - 1
PROTOCOLS = ("SCTP", "TCP", "UDP")
TAINT_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
SELECTOR_MISMATCH = "`selector` does not match template `labels`"
COUNTED_KINDS = (
    "pods", "resourcequotas", "services", "replicationcontrollers", "secrets", "configmaps", "persistentvolumeclaims",
)  # fmt: skip
"""Kinds that a quota may count by their plural alone."""
PORT_RANGE = "must be between 1 and 65535, inclusive"
BAD_IP = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"

_CONFIG_KEY = re.compile(r"[-._a-zA-Z0-9]+").fullmatch
_CONFIG_KEY_WORDS = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or "
    "'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)
_PORT_NAME = re.compile(r"[-a-z0-9]+").fullmatch
_PERCENT = re.compile(r"[0-9]+%").fullmatch
_PERCENT_WORDS = (
    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for "
    "validation is '[0-9]+%')"
)

_COUNTED = (*COUNTED_KINDS, "services.nodeports", "services.loadbalancers")
_WHOLE_RESOURCES = frozenset(_COUNTED)
_STANDARD_RESOURCES = frozenset(
    (
        *_COUNTED, "cpu", "memory", "ephemeral-storage", "requests.cpu", "requests.memory",
        "requests.ephemeral-storage", "limits.cpu", "limits.memory", "limits.ephemeral-storage", "storage",
        "requests.storage",
    )
)  # fmt: skip
_STANDARD_CONTAINER_RESOURCES = frozenset(("cpu", "memory", "ephemeral-storage"))


def not_negative(value: Any, path: str) -> list[FieldError]:
    """A number, where there is one, is zero or more."""
    return [FieldError.invalid(path, value, NOT_NEGATIVE)] if value is not None and value < 0 else []


def positive(value: Any, path: str) -> list[FieldError]:
    """A number, where there is one, is more than zero."""
    return [FieldError.invalid(path, value, POSITIVE)] if value is not None and value <= 0 else []


def one_of(value: Any, allowed: Sequence[str], path: str) -> list[FieldError]:
    """Required, and one of a few words."""
    if not value:
        return [FieldError.required(path)]
    return [] if value in allowed else [FieldError.not_supported(path, value, allowed)]


def unchanged(new: Any, old: Any, path: str) -> list[FieldError]:
    """A field that stays as it was made."""
    return [] if new == old else [FieldError.invalid(path, new, IMMUTABLE)]


def label_name(value: str, path: str) -> list[FieldError]:
    """A DNS-1123 label."""
    return [FieldError.invalid(path, value, p) for p in dns_label_problems(value)]


def subdomain_name(value: str, path: str) -> list[FieldError]:
    """A DNS-1123 subdomain."""
    return [FieldError.invalid(path, value, p) for p in dns_subdomain_problems(value)]


def config_key_problems(key: str) -> list[str]:
    """Why this is no key of a ConfigMap or Secret."""
    problems = []
    if len(key) > 253:
        problems.append("must be no more than 253 bytes")
    if not _CONFIG_KEY(key):
        problems.append(_CONFIG_KEY_WORDS)
    elif key == ".":
        problems.append("must not be '.'")
    elif key == "..":
        problems.append("must not be '..'")
    elif key.startswith(".."):
        problems.append("must not start with '..'")
    return problems


def port_number(value: Any, path: str) -> list[FieldError]:
    """1 to 65535."""
    if isinstance(value, int) and 1 <= value <= 65535:
        return []
    return [FieldError.invalid(path, value, PORT_RANGE)]


def port_name_problems(name: str) -> list[str]:
    """Why this is no name of a port (IANA service name)."""
    problems = []
    if len(name) > 15:
        problems.append("must be no more than 15 characters")
    if not _PORT_NAME(name):
        problems.append("must contain only alphanumeric characters (a-z, 0-9), and hyphens ('-')")
    if not any("a" <= c <= "z" for c in name):
        problems.append("must contain at least one letter (a-z)")
    if "--" in name:
        problems.append("must not contain consecutive hyphens")
    if name.startswith("-") or name.endswith("-"):
        problems.append("must not begin or end with a hyphen")
    return problems


def port_number_or_name(value: Any, path: str) -> list[FieldError]:
    """A port by its number or by its name."""
    if isinstance(value, str):
        return [FieldError.invalid(path, value, p) for p in port_name_problems(value)]
    return port_number(0 if value is None else value, path)


def ip_address(value: str, path: str) -> list[FieldError]:
    """An IPv4 or IPv6 address."""
    try:
        ipaddress.ip_address(value)
    except ValueError:
        return [FieldError.invalid(path, value, BAD_IP)]
    return []


def no_way_back(path: str, where: str) -> list[FieldError]:
    """A path of files that leads nowhere but down."""
    return [FieldError.invalid(where, path, "must not contain '..'")] if ".." in path.split("/") else []


def relative_path(path: str, where: str) -> list[FieldError]:
    """A path of files within a directory."""
    errors = [FieldError.invalid(where, path, "must be a relative path")] if path.startswith("/") else []
    return errors + no_way_back(path, where)


def percent_or_count(value: Any, path: str) -> list[FieldError]:
    """A count that is not negative, or a percentage."""
    if isinstance(value, str):
        return [] if _PERCENT(value) else [FieldError.invalid(path, value, _PERCENT_WORDS)]
    return not_negative(value, path)


def at_most_100_percent(value: Any, path: str) -> list[FieldError]:
    """A percentage, where it is one, is not more than the whole."""
    if isinstance(value, str) and _PERCENT(value) and int(value[:-1]) > 100:
        return [FieldError.invalid(path, value, "must not be greater than 100%")]
    return []


def share(value: Any) -> int:
    """The number of a count or percentage, as upstream compares them with zero."""
    if isinstance(value, str):
        return int(value[:-1]) if _PERCENT(value) else 0
    return value or 0


def cannot_decode(kind: str, version: str, problem: str) -> Exception:
    """What upstream's decoder says before any validation."""
    return bad_request(f'{kind} in version "{version}" cannot be handled as a {kind}: {problem}')


def resource_amounts(
    amounts: Mapping[str, Any] | None, path: str, name_problems: Callable[[str, str], list[FieldError]]
) -> tuple[dict[str, Quantity], list[FieldError]]:
    """Reads a map of resource names to amounts; names are judged by `name_problems`, negative amounts are errors."""
    read: dict[str, Quantity] = {}
    errors: list[FieldError] = []
    for name, value in (amounts or {}).items():
        where = f"{path}[{name}]"
        errors.extend(name_problems(name, where))
        amount = read[name] = parse_quantity(value)
        if amount.nanos < 0:
            errors.append(FieldError.invalid(where, value, NOT_NEGATIVE))
        elif (name in _WHOLE_RESOURCES or _is_extended(name)) and amount.nanos % 10**9:
            errors.append(FieldError.invalid(where, value, "must be an integer"))
    return read, errors


def resource_name(name: str, path: str) -> list[FieldError]:
    """A resource by one of upstream's names, or fully qualified."""
    errors = [FieldError.invalid(path, name, p) for p in qualified_name_problems(name)]
    if not errors and "/" not in name and name not in _STANDARD_RESOURCES and not _is_native(name):
        errors.append(FieldError.invalid(path, name, "must be a standard resource type or fully qualified"))
    return errors


def container_resource_name(name: str, path: str) -> list[FieldError]:
    """A resource that a container may ask for."""
    errors = resource_name(name, path)
    standard = name in _STANDARD_CONTAINER_RESOURCES or name.startswith("hugepages-")
    if "/" not in name and not standard:
        errors.append(FieldError.invalid(path, name, "must be a standard resource for containers"))
    return errors


def quota_resource_name(name: str, path: str) -> list[FieldError]:
    """A resource that a quota may limit."""
    errors = resource_name(name, path)
    if "/" not in name and name not in _STANDARD_RESOURCES and not _is_native(name):
        errors.append(FieldError.invalid(path, name, "must be a standard resource for quota"))
    return errors


def _is_extended(name: str) -> bool:
    """Of things that cannot be divided: GPUs and their like."""
    domain, slash, _ = name.partition("/")
    ours = domain == "kubernetes.io" or domain.endswith(".kubernetes.io")
    return bool(slash) and not ours and not name.startswith("requests.") and ".storageclass.storage.k8s.io" not in domain


def _is_native(name: str) -> bool:
    return name.startswith(("hugepages-", "requests.hugepages-", "limits.hugepages-", "count/"))
