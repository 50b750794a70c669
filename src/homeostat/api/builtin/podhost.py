"""What a pod wants of the machine it runs on: whose rights it has, which names it looks up where, what it shares."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from homeostat.api.builtin.checks import INT32_MAX, ip_address, subdomain_name
from homeostat.api.builtin.containers import identity_errors, profile_errors
from homeostat.model.errors import FieldError

_SYSCTL_SHAPE = r"^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$"
_SYSCTL = re.compile(_SYSCTL_SHAPE).match
_LONGEST_SYSCTL = 253
_GROUP_CHANGES = ("Always", "OnRootMismatch")
_SYSTEMS = ("linux", "windows")
_MOST_SERVERS, _MOST_SEARCHES = 3, 32

Part = Mapping[str, Any]


def host_errors(spec: Part, path: str) -> list[FieldError]:
    """What is wrong with what a pod wants of its machine."""
    where, context = f"{path}.securityContext", spec.get("securityContext") or {}
    errors = _security_errors(context, where)
    if spec.get("hostPID") and spec.get("shareProcessNamespace"):
        detail = "ShareProcessNamespace and HostPID cannot both be enabled"
        errors.append(FieldError.invalid(f"{where}.shareProcessNamespace", True, detail))
    if spec.get("hostUsers") is False:
        errors += [
            FieldError.forbidden(f"{path}.{field}", "when `hostUsers` is false")
            for field in ("hostNetwork", "hostPID", "hostIPC")
            if spec.get(field)
        ]
    errors += _port_errors(spec, path)
    if (system := spec.get("os")) is not None:
        name = system.get("name") or ""
        if not name:
            errors.append(FieldError.required(f"{path}.os.name", "cannot be empty"))
        elif name not in _SYSTEMS:
            errors.append(FieldError.not_supported(f"{path}.os", name, _SYSTEMS))
    return errors + _dns_errors(spec.get("dnsConfig"), spec.get("dnsPolicy"), f"{path}.dnsConfig")


def _port_errors(spec: Part, path: str) -> list[FieldError]:
    """No two containers have the same port of the machine; on the machine's own network there is no other."""
    errors: list[FieldError] = []
    seen: set[str] = set()
    for index, container in enumerate(spec.get("containers") or ()):
        for number, port in enumerate(container.get("ports") or ()):
            where, wanted = f"{path}.containers[{index}].ports[{number}]", port.get("hostPort") or 0
            if wanted:
                taken = f"{port.get('protocol', '')}/{port.get('hostIP') or ''}/{wanted}"
                if taken in seen:
                    errors.append(FieldError.duplicate(f"{where}.hostPort", taken))
                seen.add(taken)
            if spec.get("hostNetwork") and wanted != port.get("containerPort"):
                detail = "must match `hostPort` when `hostNetwork` is true"
                errors.append(FieldError.invalid(f"{where}.containerPort", port.get("containerPort"), detail))
    return errors


def _security_errors(context: Part, path: str) -> list[FieldError]:
    errors = identity_errors(context, path)
    groups = [(f"supplementalGroups[{i}]", group) for i, group in enumerate(context.get("supplementalGroups") or ())]
    for field, group in [("fsGroup", context.get("fsGroup")), *groups]:
        if group is not None and not 0 <= group <= INT32_MAX:
            errors.append(FieldError.invalid(f"{path}.{field}", group, f"must be between 0 and {INT32_MAX}, inclusive"))
    policy = context.get("fsGroupChangePolicy")
    if policy and policy not in _GROUP_CHANGES:
        errors.append(FieldError.not_supported(f"{path}.fsGroupChangePolicy", policy, _GROUP_CHANGES))
    seen: set[str] = set()
    for index, sysctl in enumerate(context.get("sysctls") or ()):
        where, name = f"{path}.sysctls[{index}].name", sysctl.get("name") or ""
        if not name:
            errors.append(FieldError.required(where))
        elif len(name) > _LONGEST_SYSCTL or not _SYSCTL(name):
            detail = f"must have at most {_LONGEST_SYSCTL} characters and match regex {_SYSCTL_SHAPE}"
            errors.append(FieldError.invalid(where, name, detail))
        elif name in seen:
            errors.append(FieldError.duplicate(where, name))
        seen.add(name)
    return errors + profile_errors(context, path)


def _dns_errors(config: Part | None, policy: str | None, path: str) -> list[FieldError]:
    if config is None:
        detail = "must provide `dnsConfig` when `dnsPolicy` is None"
        return [FieldError.required(path, detail)] if policy == "None" else []
    errors: list[FieldError] = []
    servers, searches = config.get("nameservers") or [], config.get("searches") or []
    if policy == "None" and not servers:
        detail = "must provide at least one DNS nameserver when `dnsPolicy` is None"
        errors.append(FieldError.required(f"{path}.nameservers", detail))
    if len(servers) > _MOST_SERVERS:
        detail = f"must not have more than {_MOST_SERVERS} nameservers"
        errors.append(FieldError.invalid(f"{path}.nameservers", servers, detail))
    for index, server in enumerate(servers):
        errors += ip_address(server, f"{path}.nameservers[{index}]")
    if len(searches) > _MOST_SEARCHES:
        detail = f"must not have more than {_MOST_SEARCHES} search paths"
        errors.append(FieldError.invalid(f"{path}.searches", searches, detail))
    for index, search in enumerate(searches):
        if search != ".":
            errors += subdomain_name(search.removesuffix("."), f"{path}.searches[{index}]")
    for index, option in enumerate(config.get("options") or ()):
        if not option.get("name"):
            errors.append(FieldError.required(f"{path}.options[{index}]", "must not be empty"))
    return errors
