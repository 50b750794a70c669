"""Service, Endpoints and EndpointSlice: names for what listens somewhere.

Nothing routes here. A service still gets the cluster address (and node ports) that clients expect to find, derived
from its namespace and name: stable, and never routed to.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from typing import Any

import xxhash

from homeostat.api.builtin.affinity import qualified_name
from homeostat.api.builtin.cells import few, pairs, text_at
from homeostat.api.builtin.checks import (
    PROTOCOLS,
    ip_address,
    label_name,
    one_of,
    port_number,
    port_number_or_name,
    subdomain_name,
    unchanged,
)
from homeostat.api.builtin.declare import SpecAndStatus, fill, kind, section
from homeostat.api.resource import Column, Object, Resource, Rules, at
from homeostat.api.table import AGE, NAME, NONE
from homeostat.model.errors import FieldError
from homeostat.model.names import dns1035_problems, label_errors

Spec = dict[str, Any]

_TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
_AFFINITY = ("ClientIP", "None")
_POLICIES = ("Cluster", "Local")
_FAMILIES = ("IPv4", "IPv6")
_FAMILY_POLICIES = ("PreferDualStack", "RequireDualStack", "SingleStack")
_DISTRIBUTIONS = ("PreferClose", "PreferSameNode", "PreferSameZone")
_NETWORK = int(ipaddress.IPv4Address("10.96.0.0"))
_ADDRESSES = 2**20
_NODE_PORTS = range(30000, 32768)
_EXPOSED = ("NodePort", "LoadBalancer")
"""Types that have a port on every node."""
_CLIENT_IP_TIMEOUT = 10800
_MAX_TIMEOUT = 86400


def _headless(spec: Mapping[str, Any]) -> bool:
    return spec.get("clusterIP") == "None"


class ServiceRules(SpecAndStatus):
    """Ports, type and addresses fit together; an address once given stays."""

    def default(self, obj: Object) -> None:
        spec = section(obj, "spec")
        fill(spec, sessionAffinity="None", type="ClusterIP")
        if spec["sessionAffinity"] == "ClientIP":
            fill(section(section(spec, "sessionAffinityConfig"), "clientIP"), timeoutSeconds=_CLIENT_IP_TIMEOUT)
        if spec["type"] in _EXPOSED:
            fill(spec, externalTrafficPolicy="Cluster")
        if spec["type"] == "LoadBalancer":
            fill(spec, allocateLoadBalancerNodePorts=True)
        if spec["type"] != "ExternalName":
            fill(spec, internalTrafficPolicy="Cluster")
        for port in spec.get("ports") or ():
            fill(port, protocol="TCP")
            if port.get("targetPort") in (None, 0, ""):
                port["targetPort"] = port.get("port", 0)

    def prepare_create(self, obj: Object) -> None:
        super().prepare_create(obj)
        _give_addresses(obj)

    def prepare_update(self, obj: Object, old: Object) -> None:
        super().prepare_update(obj, old)
        spec, before = section(obj, "spec"), old.get("spec") or {}
        _drop_unneeded(obj, spec, before)
        if spec.get("type") == "ExternalName":
            return
        # What was given once is kept where the client does not mention it.
        for field in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"):
            if not spec.get(field) and before.get(field):
                spec[field] = before[field]
        if spec.get("type") in _EXPOSED:
            given = {(p.get("protocol"), p.get("port")): p.get("nodePort") for p in before.get("ports") or ()}
            for port in spec.get("ports") or ():
                if not port.get("nodePort") and (kept := given.get((port.get("protocol"), port.get("port")))):
                    port["nodePort"] = kept
        _give_addresses(obj)

    def validate(self, obj: Object) -> Sequence[FieldError]:
        spec = obj.get("spec") or {}
        service_type = spec.get("type") or ""
        ports = spec.get("ports") or ()
        errors: list[FieldError] = []
        if not ports and not _headless(spec) and service_type != "ExternalName":
            errors.append(FieldError.required("spec.ports"))
        errors += _type_errors(spec, service_type)
        names: set[str] = set()
        for index, port in enumerate(ports):
            errors += _port_errors(port, f"spec.ports[{index}]", names, name_required=len(ports) > 1)
        errors += label_errors(spec.get("selector") or {}, "spec.selector")
        errors += _affinity_errors(spec)
        for index, address in enumerate(spec.get("clusterIPs") or ()):
            errors += ip_address(address, f"spec.clusterIPs[{index}]") if address != "None" else []
        for index, address in enumerate(spec.get("externalIPs") or ()):
            where = f"spec.externalIPs[{index}]"
            errors += ip_address(address, where) or _special_address_errors(address, where)
        errors += one_of(service_type, _TYPES, "spec.type")
        errors += _port_conflicts(ports, service_type)
        if spec.get("loadBalancerSourceRanges") and service_type != "LoadBalancer":
            detail = "may only be used when `type` is 'LoadBalancer'"
            errors.append(FieldError.forbidden("spec.LoadBalancerSourceRanges", detail))
        return errors + _traffic_errors(spec, service_type)

    def validate_update(self, obj: Object, old: Object) -> Sequence[FieldError]:
        spec, before = obj.get("spec") or {}, old.get("spec") or {}
        address, given = spec.get("clusterIP") or "", before.get("clusterIP") or ""
        if "ExternalName" in (spec.get("type"), before.get("type")) or not given or address == given:
            return ()
        shown = spec.get("clusterIPs") or [address]
        return [FieldError.invalid("spec.clusterIPs[0]", shown, "may not change once set")]

    def fields(self, obj: Object) -> Mapping[str, str]:
        spec = obj.get("spec") or {}
        return {"spec.clusterIP": spec.get("clusterIP") or "", "spec.type": spec.get("type") or ""}

    def name_problems(self, name: str) -> Sequence[str]:
        return dns1035_problems(name)


def _drop_unneeded(service: Object, spec: Spec, before: Mapping[str, Any]) -> None:
    """Takes away what the new type has no use for, where it was given and not asked for: what a client changed beside is refused."""
    now, was = spec.get("type"), before.get("type")

    def drop(*fields: str) -> None:
        if all(spec.get(field) == before.get(field) for field in fields):
            for field in fields:
                spec.pop(field, None)

    if now == "ExternalName" != was:
        drop("clusterIP", "clusterIPs")
        drop("ipFamilies")
        drop("ipFamilyPolicy")
    if was in _EXPOSED and now not in _EXPOSED:
        drop("externalTrafficPolicy")
        given = {port.get("nodePort") for port in before.get("ports") or ()}
        if all(port.get("nodePort") in {*given, None} for port in spec.get("ports") or ()):
            for port in spec.get("ports") or ():
                port.pop("nodePort", None)
    if was == "LoadBalancer" != now:
        for field in ("allocateLoadBalancerNodePorts", "loadBalancerClass", "healthCheckNodePort"):
            drop(field)
        if at(service, "status", "loadBalancer"):
            service["status"] = {**service["status"], "loadBalancer": {}}


def _give_addresses(service: Object) -> None:
    """The addresses and node ports that clients expect, where they left them open."""
    spec = section(service, "spec")
    if spec.get("type") == "ExternalName":
        return
    identity = f"{at(service, 'metadata', 'namespace')}/{at(service, 'metadata', 'name')}"
    if not spec.get("clusterIP"):
        offset = 1 + xxhash.xxh3_64_intdigest(identity.encode()) % (_ADDRESSES - 2)
        chosen = (spec.get("clusterIPs") or [str(ipaddress.IPv4Address(_NETWORK + offset))])[0]
        spec["clusterIP"] = chosen
    if not spec.get("clusterIPs"):
        spec["clusterIPs"] = [spec["clusterIP"]]
    fill(spec, ipFamilies=["IPv6" if ":" in spec["clusterIP"] else "IPv4"], ipFamilyPolicy="SingleStack")
    if spec.get("type") == "NodePort" or (
        spec.get("type") == "LoadBalancer" and spec.get("allocateLoadBalancerNodePorts")
    ):
        taken = {port.get("nodePort") for port in spec.get("ports") or ()}
        for port in spec.get("ports") or ():
            if not port.get("nodePort"):
                start = xxhash.xxh3_64_intdigest(f"{identity}:{port.get('port')}/{port.get('protocol')}".encode())
                free = (_NODE_PORTS[(start + step) % len(_NODE_PORTS)] for step in range(len(_NODE_PORTS)))
                port["nodePort"] = next(number for number in free if number not in taken)
                taken.add(port["nodePort"])


def _type_errors(spec: Spec, service_type: str) -> list[FieldError]:
    if service_type in ("LoadBalancer", "NodePort") and _headless(spec):
        detail = f"may not be set to 'None' for {service_type} services"
        return [FieldError.invalid("spec.clusterIPs[0]", "None", detail)]
    if service_type != "ExternalName":
        return []
    errors = []
    for field in ("clusterIPs", "ipFamilies", "ipFamilyPolicy"):
        if spec.get(field):
            errors.append(FieldError.forbidden(f"spec.{field}", "may not be set for ExternalName services"))
    name = (spec.get("externalName") or "").removesuffix(".")
    return errors + (subdomain_name(name, "spec.externalName") if name else [FieldError.required("spec.externalName")])


def _port_errors(port: Mapping[str, Any], path: str, names: set[str], *, name_required: bool) -> list[FieldError]:
    errors: list[FieldError] = []
    name = port.get("name") or ""
    if name:
        errors += label_name(name, f"{path}.name")
        if name in names:
            errors.append(FieldError.duplicate(f"{path}.name", name))
        names.add(name)
    elif name_required:
        errors.append(FieldError.required(f"{path}.name"))
    errors += port_number(port.get("port") or 0, f"{path}.port")
    errors += one_of(port.get("protocol"), PROTOCOLS, f"{path}.protocol")
    if protocol := port.get("appProtocol"):
        errors += qualified_name(protocol, f"{path}.appProtocol")
    if (number := port.get("nodePort") or 0) and number not in _NODE_PORTS:
        first, last = _NODE_PORTS[0], _NODE_PORTS[-1]
        detail = f"provided port is not in the valid range. The range of valid ports is {first}-{last}"
        errors.append(FieldError.invalid(f"{path}.nodePort", number, detail))
    return errors + port_number_or_name(port.get("targetPort"), f"{path}.targetPort")


def _affinity_errors(spec: Spec) -> list[FieldError]:
    affinity, config = spec.get("sessionAffinity"), spec.get("sessionAffinityConfig")
    errors = one_of(affinity, _AFFINITY, "spec.sessionAffinity")
    if affinity == "ClientIP":
        timeout = at(config or {}, "clientIP", "timeoutSeconds") or 0
        if not 0 < timeout <= _MAX_TIMEOUT:
            path = "spec.sessionAffinityConfig.clientIP.timeoutSeconds"
            errors.append(FieldError.invalid(path, timeout, f"must be greater than 0 and less than {_MAX_TIMEOUT}"))
    elif affinity == "None" and config is not None:
        detail = "must not be set when session affinity is None"
        errors.append(FieldError.forbidden("spec.sessionAffinityConfig", detail))
    return errors


def _port_conflicts(ports: Sequence[Mapping[str, Any]], service_type: str) -> list[FieldError]:
    errors: list[FieldError] = []
    node_ports: set[tuple[Any, Any]] = set()
    open_ports: set[tuple[Any, Any]] = set()
    for index, port in enumerate(ports):
        path, protocol, node_port = f"spec.ports[{index}]", port.get("protocol"), port.get("nodePort")
        if node_port:
            if service_type == "ClusterIP":
                detail = "may not be used when `type` is 'ClusterIP'"
                errors.append(FieldError.forbidden(f"{path}.nodePort", detail))
            if (protocol, node_port) in node_ports:
                errors.append(FieldError.duplicate(f"{path}.nodePort", node_port))
            node_ports.add((protocol, node_port))
        if (protocol, port.get("port")) in open_ports:
            errors.append(FieldError.duplicate(path, {"protocol": protocol, "port": port.get("port")}))
        open_ports.add((protocol, port.get("port")))
    return errors


def _traffic_errors(spec: Spec, service_type: str) -> list[FieldError]:
    errors: list[FieldError] = []
    external, internal = spec.get("externalTrafficPolicy"), spec.get("internalTrafficPolicy")
    if external and service_type in ("ClusterIP", "ExternalName") and not spec.get("externalIPs"):
        detail = "may only be set for externally-accessible services"
        errors.append(FieldError.invalid("spec.externalTrafficPolicy", external, detail))
    elif external and external not in _POLICIES:
        errors.append(FieldError.not_supported("spec.externalTrafficPolicy", external, _POLICIES))
    if internal and internal not in _POLICIES:
        errors.append(FieldError.not_supported("spec.internalTrafficPolicy", internal, _POLICIES))
    if spec.get("healthCheckNodePort") and (service_type, external) != ("LoadBalancer", "Local"):
        detail = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"
        errors.append(FieldError.invalid("spec.healthCheckNodePort", spec["healthCheckNodePort"], detail))
    for field, allowed in (("ipFamilyPolicy", _FAMILY_POLICIES), ("trafficDistribution", _DISTRIBUTIONS)):
        if (given := spec.get(field)) and given not in allowed:
            errors.append(FieldError.not_supported(f"spec.{field}", given, allowed))
    return errors + [
        FieldError.not_supported(f"spec.ipFamilies[{index}]", family, _FAMILIES)
        for index, family in enumerate(spec.get("ipFamilies") or ())
        if family not in _FAMILIES
    ]


class EndpointsRules(Rules):
    """Addresses of other machines, with named ports where there are several."""

    def default(self, obj: Object) -> None:
        for subset in obj.get("subsets") or ():
            for port in subset.get("ports") or ():
                fill(port, protocol="TCP")

    def validate(self, obj: Object) -> Sequence[FieldError]:
        errors: list[FieldError] = []
        for index, subset in enumerate(obj.get("subsets") or ()):
            path = f"subsets[{index}]"
            if not subset.get("addresses") and not subset.get("notReadyAddresses"):
                errors.append(FieldError.required(path, "must specify `addresses` or `notReadyAddresses`"))
            for group in ("addresses", "notReadyAddresses"):
                for number, address in enumerate(subset.get(group) or ()):
                    errors += _endpoint_address_errors(address, f"{path}.{group}[{number}]")
            ports = subset.get("ports") or ()
            for number, port in enumerate(ports):
                where = f"{path}.ports[{number}]"
                if port.get("name"):
                    errors += label_name(port["name"], f"{where}.name")
                elif len(ports) > 1:
                    errors.append(FieldError.required(f"{where}.name"))
                errors += port_number(port.get("port") or 0, f"{where}.port")
                errors += one_of(port.get("protocol"), PROTOCOLS, f"{where}.protocol")
        return errors


def _endpoint_address_errors(address: Mapping[str, Any], path: str) -> list[FieldError]:
    text = address.get("ip") or ""
    errors = ip_address(text, f"{path}.ip")
    if address.get("hostname"):
        errors += label_name(address["hostname"], f"{path}.hostname")
    return errors or _special_address_errors(text, f"{path}.ip")


def _special_address_errors(text: str, path: str) -> list[FieldError]:
    """An endpoint is another machine: not this one, not everyone, not nobody."""
    address = ipaddress.ip_address(text)
    if address.is_unspecified:
        return [FieldError.invalid(path, text, f"may not be unspecified ({text})")]
    if address.is_loopback:
        return [FieldError.invalid(path, text, "may not be in the loopback range (127.0.0.0/8, ::1/128)")]
    if address.is_link_local:
        return [FieldError.invalid(path, text, "may not be in the link-local range (169.254.0.0/16, fe80::/10)")]
    if address.is_multicast and str(address).startswith(("224.0.0.", "ff02:")):
        detail = "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"
        return [FieldError.invalid(path, text, detail)]
    return []


def _of_family_errors(text: str, family: str, path: str) -> list[FieldError]:
    if family not in ("IPv4", "IPv6"):
        return []
    errors = ip_address(text, path)
    if not errors and f"IPv{ipaddress.ip_address(text).version}" != family:
        errors = [FieldError.invalid(path, text, f"must be an {family} address")]
    return errors or _special_address_errors(text, path)


class EndpointSliceRules(Rules):
    """Addresses of one type, which stays."""

    def default(self, obj: Object) -> None:
        for port in obj.get("ports") or ():
            fill(port, protocol="TCP")
            if port.get("name") is None:
                port["name"] = ""

    def validate(self, obj: Object) -> Sequence[FieldError]:
        errors = one_of(obj.get("addressType"), ("FQDN", "IPv4", "IPv6"), "addressType")
        endpoints = obj.get("endpoints") or ()
        if len(endpoints) > 1000:
            return [*errors, FieldError.too_many("endpoints", len(endpoints), 1000)]
        for index, endpoint in enumerate(endpoints):
            path = f"endpoints[{index}].addresses"
            addresses = endpoint.get("addresses") or ()
            if not addresses:
                errors.append(FieldError.required(path, "must contain at least 1 address"))
            elif len(addresses) > 100:
                errors.append(FieldError.too_many(path, len(addresses), 100))
            for number, address in enumerate(addresses):
                errors += _of_family_errors(address, obj.get("addressType") or "", f"{path}[{number}]")
        names: set[str] = set()
        for index, port in enumerate(obj.get("ports") or ()):
            name = port.get("name") or ""
            if name:
                errors += label_name(name, f"ports[{index}].name")
            if name in names:
                errors.append(FieldError.duplicate(f"ports[{index}].name", name))
            names.add(name)
            errors += one_of(port.get("protocol"), PROTOCOLS, f"ports[{index}].protocol")
        return errors

    def validate_update(self, obj: Object, old: Object) -> Sequence[FieldError]:
        return unchanged(obj.get("addressType"), old.get("addressType"), "addressType")


def load_balancer_text(obj: Object) -> str:
    """The addresses that a load balancer reported."""
    found = {i.get("ip") or i.get("hostname") or "" for i in at(obj, "status", "loadBalancer", "ingress") or ()}
    return ",".join(sorted(found - {""}))


def _external_ip(service: Object) -> str:
    spec = service.get("spec") or {}
    addresses = ",".join(spec.get("externalIPs") or ())
    match spec.get("type"):
        case "LoadBalancer":
            return ",".join(filter(None, (load_balancer_text(service), addresses))) or "<pending>"
        case "ExternalName":
            return spec.get("externalName") or ""
        case "ClusterIP" | "NodePort":
            return addresses or NONE
    return "<unknown>"


def _ports(service: Object) -> str:
    shown = []
    for port in at(service, "spec", "ports") or ():
        node = f":{port['nodePort']}" if port.get("nodePort") else ""
        shown.append(f"{port.get('port')}{node}/{port.get('protocol')}")
    return ",".join(shown) or NONE


def _join(address: str, port: Any) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def _endpoints(obj: Object) -> str:
    shown: list[str] = []
    for subset in obj.get("subsets") or ():
        addresses = [a.get("ip") or "" for a in subset.get("addresses") or ()]
        ports = subset.get("ports") or ()
        shown += [_join(a, p.get("port")) for p in ports for a in addresses] if ports else addresses
    return few(shown, 3)


def _slice_ports(obj: Object) -> str:
    return (
        few([str(p.get("port") or p.get("name") or "*") for p in obj.get("ports") or ()], 3)
        if obj.get("ports")
        else "<unset>"
    )


def resources() -> list[Resource]:
    """Service, Endpoints and EndpointSlice."""
    return [
        kind(
            "v1",
            "Service",
            "services",
            short=("svc",),
            categories=("all",),
            rules=ServiceRules(loadBalancer={}),
            status=True,
            columns=(
                NAME,
                Column("Type", text_at("spec", "type"), description="How it is reached."),
                Column("Cluster-IP", text_at("spec", "clusterIP", missing=NONE), description="Its address inside."),
                Column("External-IP", _external_ip, description="Its address outside."),
                Column("Port(s)", _ports, description="Where it listens."),
                AGE,
                Column("Selector", lambda o: pairs(at(o, "spec", "selector")), priority=1, description="Who answers."),
            ),
        ),
        kind(
            "v1",
            "Endpoints",
            "endpoints",
            short=("ep",),
            rules=EndpointsRules(),
            columns=(NAME, Column("Endpoints", _endpoints, description="Who answers, and where."), AGE),
        ),
        kind(
            "discovery.k8s.io/v1",
            "EndpointSlice",
            "endpointslices",
            rules=EndpointSliceRules(),
            generation=True,
            columns=(
                NAME,
                Column("AddressType", text_at("addressType"), description="What its addresses are."),
                Column("Ports", _slice_ports, description="Where they listen."),
                Column(
                    "Endpoints",
                    lambda o: (
                        few([a for e in o.get("endpoints") or () for a in e.get("addresses") or ()], 3)
                        if o.get("endpoints")
                        else "<unset>"
                    ),
                    description="Who answers.",
                ),
                AGE,
            ),
        ),
    ]
