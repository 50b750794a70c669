"""A container: its defaults and what upstream checks of it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from homeostat.api.builtin.checks import (
    INT32_MAX,
    PROTOCOLS,
    container_resource_name,
    label_name,
    not_negative,
    one_of,
    port_name_problems,
    port_number,
    port_number_or_name,
    relative_path,
    resource_amounts,
)
from homeostat.api.builtin.declare import fill
from homeostat.api.builtin.downward import env_errors, env_from_errors
from homeostat.model.errors import FieldError

Container = dict[str, Any]

_PULL = ("Always", "IfNotPresent", "Never")
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc")
_LIFECYCLE_HANDLERS = ("exec", "httpGet", "tcpSocket", "sleep")
_RESTART = ("Always", "Never", "OnFailure")
_RESIZED, _RESIZE_POLICIES = ("cpu", "memory"), ("NotRequired", "RestartContainer")
_PROPAGATION = ("Bidirectional", "HostToContainer", "None")
_PROFILES = ("Localhost", "RuntimeDefault", "Unconfined")
_HEADER = re.compile(r"[-A-Za-z0-9]+").fullmatch
_HEADER_WORDS = (
    "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used for "
    "validation is '[-A-Za-z0-9]+')"
)
_MESSAGE_POLICIES = ("File", "FallbackToLogsOnError")


def default_container(container: Container) -> None:
    """Fills in what upstream fills in for a container."""
    fill(
        container,
        terminationMessagePath="/dev/termination-log",
        terminationMessagePolicy="File",
        imagePullPolicy=pull_policy(container.get("image") or ""),
        resources={},
    )
    for port in container.get("ports") or ():
        fill(port, protocol="TCP")
    for variable in container.get("env") or ():
        if reference := (variable.get("valueFrom") or {}).get("fieldRef"):
            fill(reference, apiVersion="v1")
    for name in _PROBES:
        if (probe := container.get(name)) is not None:
            _default_probe(probe)
    for hook in ("postStart", "preStop"):
        _default_http((container.get("lifecycle") or {}).get(hook) or {})


def _default_probe(probe: dict[str, Any]) -> None:
    for field, value in (
        ("timeoutSeconds", 1),
        ("periodSeconds", 10),
        ("successThreshold", 1),
        ("failureThreshold", 3),
    ):
        if not probe.get(field):
            probe[field] = value
    _default_http(probe)


def _default_http(handler: dict[str, Any]) -> None:
    if (request := handler.get("httpGet")) is not None:
        fill(request, path="/", scheme="HTTP")


def pull_policy(image: str) -> str:
    """Always for what may move (`:latest` or no tag), else IfNotPresent; a digest never moves."""
    if "@" in image:
        return "IfNotPresent"
    _, colon, tag = image.rpartition("/")[2].partition(":")
    return "Always" if not colon or tag == "latest" else "IfNotPresent"


def container_errors(
    container: Mapping[str, Any], path: str, names: set[str], volumes: frozenset[str], *, init: bool
) -> list[FieldError]:
    """What is wrong with one container. `names` are those taken so far, and grow; `volumes` can be mounted."""
    errors: list[FieldError] = []
    name = container.get("name") or ""
    errors += label_name(name, f"{path}.name") if name else [FieldError.required(f"{path}.name")]
    if name in names:
        errors.append(FieldError.duplicate(f"{path}.name", name))
    names.add(name)
    if not container.get("image"):
        errors.append(FieldError.required(f"{path}.image"))
    restarts = container.get("restartPolicy")
    if restarts and restarts not in _RESTART:
        errors.append(FieldError.not_supported(f"{path}.restartPolicy", restarts, _RESTART))
    restartable = init and restarts == "Always"
    if init and not restartable and container.get("lifecycle"):
        errors.append(FieldError.forbidden(f"{path}.lifecycle", _ONLY_SIDECARS))
    for hook, handler in (container.get("lifecycle") or {}).items():
        if hook in ("postStart", "preStop") and handler is not None:
            errors += _handler_errors(handler, f"{path}.lifecycle.{hook}", _LIFECYCLE_HANDLERS)
    for probe_name in _PROBES:
        if (probe := container.get(probe_name)) is not None:
            errors += _probe_errors(probe, f"{path}.{probe_name}", once=probe_name != "readinessProbe")
            if init and not restartable:
                errors.append(FieldError.forbidden(f"{path}.{probe_name}", _ONLY_SIDECARS))
            if probe_name == "readinessProbe" and probe.get("terminationGracePeriodSeconds") is not None:
                where, given = f"{path}.{probe_name}.terminationGracePeriodSeconds", probe["terminationGracePeriodSeconds"]
                errors.append(FieldError.invalid(where, given, "must not be set for readinessProbes"))
    if container.get("terminationMessagePolicy") not in _MESSAGE_POLICIES:
        detail = "must be 'File' or 'FallbackToLogsOnError'"
        policy = container.get("terminationMessagePolicy")
        errors.append(FieldError.invalid(f"{path}.terminationMessagePolicy", policy, detail))
    errors += context_errors(container.get("securityContext") or {}, f"{path}.securityContext")
    errors += _port_errors(container.get("ports") or (), f"{path}.ports")
    errors += env_errors(container.get("env") or (), f"{path}.env")
    errors += env_from_errors(container.get("envFrom") or (), f"{path}.envFrom")
    privileged = bool((container.get("securityContext") or {}).get("privileged"))
    mounts = container.get("volumeMounts") or ()
    errors += _mount_errors(mounts, f"{path}.volumeMounts", volumes, privileged=privileged)
    errors += _resize_policy_errors(container.get("resizePolicy") or (), f"{path}.resizePolicy")
    policy = container.get("imagePullPolicy")
    if policy not in _PULL:
        errors.append(FieldError.not_supported(f"{path}.imagePullPolicy", policy, _PULL))
    return errors + resource_errors(container.get("resources") or {}, f"{path}.resources")


_ONLY_SIDECARS = "may not be set for init containers without restartPolicy=Always"


def identity_errors(context: Mapping[str, Any], path: str) -> list[FieldError]:
    """What is wrong with the user and group that a security context names."""
    return [
        FieldError.invalid(f"{path}.{field}", context[field], f"must be between 0 and {INT32_MAX}, inclusive")
        for field in ("runAsUser", "runAsGroup")
        if context.get(field) is not None and not 0 <= context[field] <= INT32_MAX
    ]


def context_errors(context: Mapping[str, Any], path: str) -> list[FieldError]:
    """What is wrong with the rights of a container."""
    errors = identity_errors(context, path) + profile_errors(context, path)
    mounted = context.get("procMount")
    if mounted and mounted not in ("Default", "Unmasked"):
        errors.append(FieldError.not_supported(f"{path}.procMount", mounted, ("Default", "Unmasked")))
    if context.get("allowPrivilegeEscalation") is False:
        begins = "cannot set `allowPrivilegeEscalation` to false and"
        if context.get("privileged"):
            errors.append(FieldError.invalid(path, context, f"{begins} `privileged` to true"))
        if "CAP_SYS_ADMIN" in ((context.get("capabilities") or {}).get("add") or ()):
            errors.append(FieldError.invalid(path, context, f"{begins} `capabilities.Add` CAP_SYS_ADMIN"))
    return errors


def profile_errors(context: Mapping[str, Any], path: str) -> list[FieldError]:
    """What is wrong with the profiles of system calls and of access that a security context names."""
    errors: list[FieldError] = []
    for field, noun in (("seccompProfile", "seccomp"), ("appArmorProfile", "AppArmor")):
        profile, where = context.get(field), f"{path}.{field}"
        if profile is None:
            continue
        kind, local = profile.get("type") or "", profile.get("localhostProfile")
        if not kind:
            errors.append(FieldError.required(f"{where}.type", f"type is required when {field} is set"))
        elif kind not in _PROFILES:
            errors.append(FieldError.not_supported(f"{where}.type", kind, _PROFILES))
        elif kind == "Localhost" and not local:
            errors.append(FieldError.required(f"{where}.localhostProfile", f"must be set when {noun} type is Localhost"))
        elif kind != "Localhost" and local:
            detail = f"can only be set when {noun} type is Localhost"
            errors.append(FieldError.invalid(f"{where}.localhostProfile", local, detail))
    return errors


def _resize_policy_errors(policies: Sequence[Mapping[str, Any]], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    seen: set[str] = set()
    for index, policy in enumerate(policies):
        name = policy.get("resourceName") or ""
        if name in seen:
            errors.append(FieldError.duplicate(f"{path}[{index}]", name))
        seen.add(name)
        errors += one_of(name, _RESIZED, path) + one_of(policy.get("restartPolicy"), _RESIZE_POLICIES, path)
    return errors


def resource_errors(resources: Mapping[str, Any], path: str) -> list[FieldError]:
    """What is wrong with limits and requests: unknown names, negative amounts, a request above its limit."""
    limits, errors = resource_amounts(resources.get("limits"), f"{path}.limits", container_resource_name)
    requests, more = resource_amounts(resources.get("requests"), f"{path}.requests", container_resource_name)
    errors += more
    named = limits.keys() | requests.keys()
    if any(name.startswith("hugepages-") for name in named) and not named & {"cpu", "memory"}:
        errors.append(FieldError.forbidden(path, "HugePages require cpu or memory"))
    for name, wanted in requests.items():
        limit = limits.get(name)
        extended = "/" in name and not name.startswith("kubernetes.io/")
        if limit is None:
            if extended:
                errors.append(
                    FieldError.required(f"{path}.limits", "Limit must be set for non overcommitable resources")
                )
        elif extended and wanted != limit:
            errors.append(
                FieldError.invalid(f"{path}.requests", str(wanted), f"must be equal to {name} limit of {limit}")
            )
        elif wanted > limit:
            detail = f"must be less than or equal to {name} limit of {limit}"
            errors.append(FieldError.invalid(f"{path}.requests", str(wanted), detail))
    return errors


def _port_errors(ports: Sequence[Mapping[str, Any]], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    names: set[str] = set()
    for index, port in enumerate(ports):
        where = f"{path}[{index}]"
        if name := port.get("name"):
            if problems := port_name_problems(name):
                errors += [FieldError.invalid(f"{where}.name", name, p) for p in problems]
            elif name in names:
                errors.append(FieldError.duplicate(f"{where}.name", name))
            names.add(name)
        if not port.get("containerPort"):
            errors.append(FieldError.required(f"{where}.containerPort"))
        else:
            errors += port_number(port["containerPort"], f"{where}.containerPort")
        if port.get("hostPort"):
            errors += port_number(port["hostPort"], f"{where}.hostPort")
        if port.get("protocol") not in PROTOCOLS:
            errors.append(FieldError.not_supported(f"{where}.protocol", port.get("protocol"), PROTOCOLS))
    return errors


def _mount_errors(
    mounts: Sequence[Mapping[str, Any]], path: str, volumes: frozenset[str], *, privileged: bool
) -> list[FieldError]:
    errors: list[FieldError] = []
    places: set[str] = set()
    for index, mount in enumerate(mounts):
        where = f"{path}[{index}]"
        name, place = mount.get("name") or "", mount.get("mountPath") or ""
        if not name:
            errors.append(FieldError.required(f"{where}.name"))
        if name not in volumes:
            errors.append(FieldError.not_found(f"{where}.name", name))
        if not place:
            errors.append(FieldError.required(f"{where}.mountPath"))
        if place in places:
            errors.append(FieldError.invalid(f"{where}.mountPath", place, "must be unique"))
        places.add(place)
        below, expression = mount.get("subPath") or "", mount.get("subPathExpr") or ""
        if below and expression:
            detail = "subPathExpr and subPath are mutually exclusive"
            errors.append(FieldError.invalid(f"{where}.subPathExpr", expression, detail))
        errors += relative_path(below, f"{where}.subPath") + relative_path(expression, f"{where}.subPathExpr")
        propagation = mount.get("mountPropagation")
        if propagation and propagation not in _PROPAGATION:
            errors.append(FieldError.not_supported(f"{where}.mountPropagation", propagation, _PROPAGATION))
        elif propagation == "Bidirectional" and not privileged:
            detail = "Bidirectional mount propagation is available only to privileged containers"
            errors.append(FieldError.forbidden(f"{where}.mountPropagation", detail))
    return errors


def _probe_errors(probe: Mapping[str, Any], path: str, *, once: bool) -> list[FieldError]:
    errors = _handler_errors(probe, path, _HANDLERS)
    for field in ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"):
        errors += not_negative(probe.get(field), f"{path}.{field}")
    grace = probe.get("terminationGracePeriodSeconds")
    if grace is not None and grace <= 0:
        errors.append(FieldError.invalid(f"{path}.terminationGracePeriodSeconds", grace, "must be greater than 0"))
    if once and probe.get("successThreshold") != 1:
        errors.append(FieldError.invalid(f"{path}.successThreshold", probe.get("successThreshold"), "must be 1"))
    return errors


def _handler_errors(handler: Mapping[str, Any], path: str, kinds: Sequence[str]) -> list[FieldError]:
    given = [name for name in kinds if handler.get(name) is not None]
    if not given:
        return [FieldError.required(path, "must specify a handler type")]
    first, *others = given
    action = handler[first]
    errors = [FieldError.forbidden(f"{path}.{name}", "may not specify more than 1 handler type") for name in others]
    if first == "exec" and not action.get("command"):
        errors.append(FieldError.required(f"{path}.exec.command"))
    elif first in ("httpGet", "tcpSocket"):
        errors += port_number_or_name(action.get("port"), f"{path}.{first}.port")
        if first == "httpGet" and action.get("scheme") not in ("HTTP", "HTTPS"):
            errors.append(FieldError.not_supported(f"{path}.httpGet.scheme", action.get("scheme"), ("HTTP", "HTTPS")))
        for header in action.get("httpHeaders") or ():
            if not _HEADER(header.get("name") or ""):
                where = f"{path}.httpGet.httpHeaders"
                errors.append(FieldError.invalid(where, header.get("name") or "", _HEADER_WORDS))
    elif first == "grpc":
        errors += port_number(action.get("port") or 0, f"{path}.grpc.port")
    return errors
