"""Ingress, IngressClass and NetworkPolicy: what may come in and go out."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from typing import Any

from homeostat.api.builtin.cells import few, text_at
from homeostat.api.builtin.checks import port_name_problems, port_number, port_number_or_name, subdomain_name, unchanged
from homeostat.api.builtin.declare import SpecAndStatus, fill, kind, section
from homeostat.api.builtin.services import load_balancer_text
from homeostat.api.resource import Column, Object, Resource, Rules, at
from homeostat.api.table import AGE, NAME, NONE
from homeostat.model.errors import FieldError
from homeostat.model.names import dns1035_problems, dns_subdomain_problems
from homeostat.model.selectors import label_selector_errors, selector_text

_PATH_TYPES = ("Exact", "ImplementationSpecific", "Prefix")
_BAD_SEQUENCES = ("//", "/./", "/../", "%2f", "%2F")
_BAD_SUFFIXES = ("/..", "/.")
_PROTOCOLS = ("TCP", "UDP", "SCTP")
_WILDCARD_WORDS = (
    "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of "
    "lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character (e.g. '*.example.com', "
    r"regex used for validation is '\*\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_CLASS = "kubernetes.io/ingress.class"
"""The annotation that named the class of an Ingress before there was a field for it."""


class IngressRules(SpecAndStatus):
    """Hosts and absolute paths, each with one backend."""

    def warnings(self, obj: Object, old: Object | None) -> Sequence[str]:
        named = (obj.get("spec") or {}).get("ingressClassName") is not None
        if old is not None or named or _CLASS not in (obj["metadata"].get("annotations") or {}):
            return ()
        return [f"annotation \"{_CLASS}\" is deprecated, please use 'spec.ingressClassName' instead"]

    def validate(self, obj: Object) -> Sequence[FieldError]:
        spec = obj.get("spec") or {}
        rules = spec.get("rules") or []
        errors: list[FieldError] = []
        if not rules and spec.get("defaultBackend") is None:
            detail = "either `defaultBackend` or `rules` must be specified"
            errors.append(FieldError.invalid("spec", rules, detail))
        if (backend := spec.get("defaultBackend")) is not None:
            errors += _backend_errors(backend, "spec.defaultBackend")
        for index, rule in enumerate(rules):
            path = f"spec.rules[{index}]"
            errors += _host_errors(rule.get("host") or "", f"{path}.host")
            if (http := rule.get("http")) is not None:
                if not http.get("paths"):
                    errors.append(FieldError.required(f"{path}.http.paths"))
                for number, route in enumerate(http.get("paths") or ()):
                    errors += _route_errors(route, f"{path}.http.paths[{number}]")
        if spec.get("ingressClassName"):
            errors += subdomain_name(spec["ingressClassName"], "spec.ingressClassName")
        return errors


def _host_errors(host: str, path: str) -> list[FieldError]:
    if not host:
        return []
    try:
        ipaddress.ip_address(host)
    except ValueError:
        pass
    else:
        return [FieldError.invalid(path, host, "must be a DNS name, not an IP address")]
    if "*" in host:
        good = host.startswith("*.") and not dns_subdomain_problems(host[2:])
        return [] if good else [FieldError.invalid(path, host, _WILDCARD_WORDS)]
    return subdomain_name(host, path)


def _route_errors(route: Mapping[str, Any], path: str) -> list[FieldError]:
    path_type, where = route.get("pathType"), route.get("path") or ""
    if path_type is None:
        return [FieldError.required(f"{path}.pathType", "pathType must be specified")]
    errors: list[FieldError] = []
    if path_type not in _PATH_TYPES:
        errors.append(FieldError.not_supported(f"{path}.pathType", path_type, _PATH_TYPES))
    elif (where or path_type != "ImplementationSpecific") and not where.startswith("/"):
        errors.append(FieldError.invalid(f"{path}.path", where, "must be an absolute path"))
    if path_type in ("Exact", "Prefix"):
        for bad in _BAD_SEQUENCES:
            if bad in where:
                errors.append(FieldError.invalid(f"{path}.path", where, f"must not contain '{bad}'"))
        for bad in _BAD_SUFFIXES:
            if where.endswith(bad):
                errors.append(FieldError.invalid(f"{path}.path", where, f"cannot end with '{bad}'"))
    return errors + _backend_errors(route.get("backend") or {}, f"{path}.backend")


def _backend_errors(backend: Mapping[str, Any], path: str) -> list[FieldError]:
    service, resource = backend.get("service"), backend.get("resource")
    if service is not None and resource is not None:
        return [FieldError.invalid(path, "", "cannot set both resource and service backends")]
    if service is None and resource is None:
        return [FieldError.invalid(path, "", "resource or service backend is required")]
    if service is None:
        missing = (field for field in ("kind", "name") if not (resource or {}).get(field))
        return [FieldError.required(f"{path}.resource.{field}") for field in missing]
    name, port = service.get("name") or "", service.get("port") or {}
    errors = [] if name else [FieldError.required(f"{path}.service.name")]
    if name:
        errors += [FieldError.invalid(f"{path}.service.name", name, p) for p in dns1035_problems(name)]
    if port.get("name") and port.get("number"):
        errors.append(FieldError.invalid(path, "", "cannot set both port name & port number"))
    elif port.get("name"):
        problems = port_name_problems(port["name"])
        errors += [FieldError.invalid(f"{path}.service.port.name", port["name"], p) for p in problems]
    elif port.get("number"):
        errors += port_number(port["number"], f"{path}.service.port.number")
    else:
        errors.append(FieldError.required(path, "port name or number is required"))
    return errors


class IngressClassRules(Rules):
    """The controller that serves the class stays."""

    def default(self, obj: Object) -> None:
        if parameters := at(obj, "spec", "parameters"):
            fill(parameters, scope="Cluster")

    def validate(self, obj: Object) -> Sequence[FieldError]:
        errors: list[FieldError] = []
        controller = at(obj, "spec", "controller") or ""
        if not controller:
            errors.append(FieldError.required("spec.controller"))
        elif len(controller) > 250:
            errors.append(FieldError.too_long("spec.controller", 250))
        elif "/" not in controller:
            detail = 'must be a domain-prefixed path (such as "acme.io/foo")'
            errors.append(FieldError.invalid("spec.controller", controller, detail))
        else:
            errors += subdomain_name(controller.partition("/")[0], "spec.controller")
        for field in ("kind", "name"):
            parameters = at(obj, "spec", "parameters")
            if parameters is not None and not parameters.get(field):
                errors.append(FieldError.required(f"spec.parameters.{field}"))
        return errors

    def validate_update(self, obj: Object, old: Object) -> Sequence[FieldError]:
        return unchanged(at(obj, "spec", "controller"), at(old, "spec", "controller"), "spec.controller")


class NetworkPolicyRules(Rules):
    """Ports and peers of each direction."""

    def default(self, obj: Object) -> None:
        spec = section(obj, "spec")
        if not spec.get("policyTypes"):
            spec["policyTypes"] = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]
        for direction in ("ingress", "egress"):
            for rule in spec.get(direction) or ():
                for port in rule.get("ports") or ():
                    fill(port, protocol="TCP")

    def validate(self, obj: Object) -> Sequence[FieldError]:
        spec = obj.get("spec") or {}
        errors = label_selector_errors(spec.get("podSelector"), "spec.podSelector")
        for direction, side in (("ingress", "from"), ("egress", "to")):
            for index, rule in enumerate(spec.get(direction) or ()):
                path = f"spec.{direction}[{index}]"
                for number, port in enumerate(rule.get("ports") or ()):
                    errors += _policy_port_errors(port, f"{path}.ports[{number}]")
                for number, peer in enumerate(rule.get(side) or ()):
                    errors += _peer_errors(peer, f"{path}.{side}[{number}]")
        types = spec.get("policyTypes") or ()
        if len(types) > 2:
            detail = "may not specify more than two policyTypes"
            return [*errors, FieldError.invalid("spec.policyTypes", types, detail)]
        for index, policy_type in enumerate(types):
            if policy_type not in ("Ingress", "Egress"):
                path = f"spec.policyTypes[{index}]"
                errors.append(FieldError.not_supported(path, policy_type, ("Ingress", "Egress")))
        return errors


def _policy_port_errors(port: Mapping[str, Any], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    if port.get("protocol") not in _PROTOCOLS:
        errors.append(FieldError.not_supported(f"{path}.protocol", port.get("protocol"), _PROTOCOLS))
    first, last = port.get("port"), port.get("endPort")
    if first is not None:
        errors += port_number_or_name(first, f"{path}.port")
    if last is not None:
        if first is None:
            detail = "may not be specified when `port` is not specified"
            errors.append(FieldError.invalid(f"{path}.endPort", last, detail))
        elif isinstance(first, str):
            detail = "may not be specified when `port` is non-numeric"
            errors.append(FieldError.invalid(f"{path}.endPort", last, detail))
        elif last < first:
            errors.append(FieldError.invalid(f"{path}.endPort", last, "must be greater than or equal to `port`"))
    return errors


def _peer_errors(peer: Mapping[str, Any], path: str) -> list[FieldError]:
    given = [field for field in ("podSelector", "namespaceSelector", "ipBlock") if peer.get(field) is not None]
    errors: list[FieldError] = []
    for field in given:
        if field == "ipBlock":
            errors += _block_errors(peer["ipBlock"], f"{path}.ipBlock")
        else:
            errors += label_selector_errors(peer[field], f"{path}.{field}")
    if not given:
        errors.append(FieldError.required(path, "must specify a peer"))
    elif len(given) > 1 and "ipBlock" in given:
        errors.append(FieldError.forbidden(path, "may not specify both ipBlock and another peer"))
    return errors


def _block_errors(block: Mapping[str, Any], path: str) -> list[FieldError]:
    text = block.get("cidr") or ""
    if not text:
        return [FieldError.required(f"{path}.cidr")]
    detail = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
    try:
        network = ipaddress.ip_network(text, strict=False)
    except ValueError:
        return [FieldError.invalid(f"{path}.cidr", text, detail)]
    errors: list[FieldError] = []
    for index, hole in enumerate(block.get("except") or ()):
        where = f"{path}.except[{index}]"
        try:
            inner: Any = ipaddress.ip_network(hole, strict=False)  # of either version, as the other
        except ValueError:
            errors.append(FieldError.invalid(where, hole, detail))
            continue
        inside = inner.version == network.version and inner != network and inner.subnet_of(network)
        if not inside:
            errors.append(FieldError.invalid(where, hole, "must be a strict subset of `cidr`"))
    return errors


def _hosts(obj: Object) -> str:
    hosts = [rule["host"] for rule in at(obj, "spec", "rules") or () if rule.get("host")]
    return few(hosts, 3) if hosts else "*"


def _parameters(obj: Object) -> str:
    parameters = at(obj, "spec", "parameters")
    if not parameters:
        return NONE
    group = f".{parameters['apiGroup']}" if parameters.get("apiGroup") else ""
    return f"{parameters.get('kind', '')}{group}/{parameters.get('name', '')}"


def resources() -> list[Resource]:
    """Ingress, IngressClass and NetworkPolicy."""
    api = "networking.k8s.io/v1"
    return [
        kind(
            api,
            "Ingress",
            "ingresses",
            short=("ing",),
            rules=IngressRules(loadBalancer={}),
            status=True,
            generation=True,
            columns=(
                NAME,
                Column("Class", text_at("spec", "ingressClassName", missing=NONE), description="Who serves it."),
                Column("Hosts", _hosts, description="The names it answers to."),
                Column("Address", load_balancer_text, description="Where it is reached."),
                Column("Ports", lambda o: "80, 443" if at(o, "spec", "tls") else "80", description="On which ports."),
                AGE,
            ),
        ),
        kind(
            api,
            "IngressClass",
            "ingressclasses",
            namespaced=False,
            rules=IngressClassRules(),
            generation=True,
            columns=(
                NAME,
                Column("Controller", text_at("spec", "controller"), description="Who serves the class."),
                Column("Parameters", _parameters, description="Where it is configured."),
                AGE,
            ),
        ),
        kind(
            api,
            "NetworkPolicy",
            "networkpolicies",
            short=("netpol",),
            rules=NetworkPolicyRules(),
            generation=True,
            columns=(
                NAME,
                Column(
                    "Pod-Selector",
                    lambda o: selector_text(at(o, "spec", "podSelector")) or NONE,
                    description="Whose traffic it rules.",
                ),
                AGE,
            ),
        ),
    ]
