"""Holds writes against the policies that are bound, and does what their bindings say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from homeostat.api.auth.rbac import Attributes
from homeostat.api.auth.user import User, service_account_name
from homeostat.api.call import Call
from homeostat.api.codec import Codec
from homeostat.api.policies.matching import GROUP, Form, Matching, Write
from homeostat.api.policies.params import Misconfigured, collect, served_kind
from homeostat.api.resource import Object, Resource
from homeostat.api.scale import as_scale
from homeostat.model.errors import Denied
from homeostat.store import Event

if TYPE_CHECKING:
    from homeostat.api.plane import ControlPlane
    from homeostat.api.policies.policy import Objection, Policy, Verdict

POLICIES, BINDINGS = "validatingadmissionpolicies", "validatingadmissionpolicybindings"
FAILURE_ANNOTATION = "validation.policy.admission.k8s.io/validation_failure"
_SCALE = {"group": "autoscaling", "version": "v1", "kind": "Scale"}
_CODES = {"Forbidden": 403, "Unauthorized": 401, "RequestEntityTooLarge": 413}
_OPTIONS = {"CREATE": "CreateOptions", "UPDATE": "UpdateOptions", "DELETE": "DeleteOptions"}


class Binding:
    """One ValidatingAdmissionPolicyBinding."""

    def __init__(self, obj: Object) -> None:
        spec = obj.get("spec") or {}
        self.name: str = obj["metadata"]["name"]
        self.policy: str = spec.get("policyName") or ""
        self.param_ref: dict[str, Any] | None = spec.get("paramRef")
        self.resources = Matching(spec.get("matchResources") or {})
        self.actions: list[str] = spec.get("validationActions") or []


class Policies:
    """All policies and bindings there are. `active`: something is bound, so writes must be asked about."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._policies: dict[str, Policy] = {}
        self._bindings: dict[str, Binding] = {}
        self._bound: list[tuple[Policy, list[Binding]]] = []
        self.active = False

    async def start(self) -> None:
        """Learns what there is, and follows it from then on."""
        await self._plane.follower.follow(f"{POLICIES}.{GROUP}/", self._policy_changed)
        await self._plane.follower.follow(f"{BINDINGS}.{GROUP}/", self._binding_changed)

    def known(self, name: str) -> Policy | None:
        """A policy by its name."""
        return self._policies.get(name)

    def _policy_changed(self, event: Event) -> None:
        name = event.key.partition("/")[2]
        if event.value is None:
            self._policies.pop(name, None)
        else:
            from homeostat.api.policies.policy import Policy  # which brings the whole language along

            new = Policy(orjson.loads(event.value))
            known = self._policies.get(name)
            if known is None or known.spec != new.spec:  # compiled once, whatever else is written
                self._policies[name] = new
        self._bind()

    def _binding_changed(self, event: Event) -> None:
        name = event.key.partition("/")[2]
        if event.value is None:
            self._bindings.pop(name, None)
        else:
            self._bindings[name] = Binding(orjson.loads(event.value))
        self._bind()

    def _bind(self) -> None:
        found: dict[str, list[Binding]] = {}
        for _, binding in sorted(self._bindings.items()):
            if binding.policy in self._policies:
                found.setdefault(binding.policy, []).append(binding)
        self._bound = [(self._policies[name], bindings) for name, bindings in sorted(found.items())]
        self.active = bool(self._bound)

    async def admit(self, call: Call, operation: str, obj: Object | None, old: Object | None, *, dry_run: bool) -> None:
        """Refuses a write that a policy denies. `obj` is None for a deletion, `old` for a creation."""
        if call.resource.group == GROUP:
            return  # whoever is locked out by a policy can still take it back
        write = self._write(call, operation, obj, old, dry_run)
        denials: list[tuple[Policy, Binding | None, Objection]] = []
        failures: list[dict[str, Any]] = []
        for policy, bindings in self._bound:
            form = policy.constraints.match(write)
            if form is None:
                continue
            noted: dict[str, list[str]] = {}
            kind: tuple[Resource, Codec] | None = None
            try:
                kind = served_kind(self._plane, policy.param_kind) if policy.param_kind else None
            except Misconfigured as error:
                _fail(denials, policy, None, f"failed to configure policy: {error}")
                continue
            for binding in bindings:
                if binding.resources.match(write) is None:
                    continue
                try:
                    params = await collect(self._plane, kind, binding.param_ref, write.namespace)
                except Misconfigured as error:
                    _fail(denials, policy, binding, f"failed to configure binding: {error}")
                    continue
                for param in params:
                    verdict = policy.judge(self._variables(write, form, param))
                    _enforce(call, policy, binding, verdict, denials, failures)
                    for key, value in verdict.annotations:
                        values = noted.setdefault(key, [])
                        if value not in values:
                            values.append(value)
            for key, values in noted.items():
                call.annotate(f"{policy.name}/{key}", ", ".join(values))
        if failures:
            call.annotate(FAILURE_ANNOTATION, orjson.dumps(failures).decode())
        if denials:
            raise _refusal(call, write, *denials[0])

    def _write(self, call: Call, operation: str, obj: Object | None, old: Object | None, dry_run: bool) -> Write:
        resource, codec = call.resource, call.codec
        name = call.name or (obj or {"metadata": {}})["metadata"].get("name", "")
        namespace = call.namespace or (name if resource.qualified == "namespaces" else "")
        room = self._plane.admission.namespaces.get(namespace) if namespace else None
        params = call.request.params if call.request.query else {}
        said = {key: params[key] for key in ("fieldManager", "fieldValidation") if params.get(key)}
        options = {"kind": _OPTIONS[operation], "apiVersion": "meta.k8s.io/v1", **said}
        return Write(
            operation=operation,
            form=Form(resource.group, codec.version.name, resource.plural, resource.kind),
            equivalents=self._equivalents(resource, codec.version.name),
            subresource=call.subresource,
            namespace=namespace,
            name=name,
            obj=_shown(call, obj),
            old=_shown(call, old),
            user=call.user,
            dry_run=dry_run,
            options={**options, "dryRun": ["All"]} if dry_run else options,
            room=room,
        )

    def _equivalents(self, resource: Resource, version: str) -> tuple[Form, ...]:
        """The other versions of the kind, and other kinds that show the same objects."""
        same = [r for r in self._plane.registry if r.prefix == resource.prefix]
        return tuple(
            Form(r.group, v.name, r.plural, r.kind)
            for r in same
            for v in r.versions.values()
            if v.served and (r is not resource or v.name != version)
        )

    def _variables(self, write: Write, form: Form, param: Object | None) -> dict[str, Any]:
        """What the expressions of a policy see of a write that it knows by one of its forms."""
        from homeostat.model.cel.authorizers import Asked, Authorizer, Decision

        def ask(asked: Asked) -> Decision:
            user = write.user if asked.account is None else _account(*asked.account)
            wanted = Attributes(
                user,
                asked.verb,
                asked.group,
                "*",
                asked.resource,
                asked.subresource,
                asked.namespace,
                asked.name,
                asked.path,
            )
            return Decision(*self._plane.rbac.authorize(wanted))

        own = write.form
        about = Asked("", "", own.group, own.resource, write.subresource, write.namespace, write.name)
        return {
            "object": self._in_form(write.obj, write.form, form),
            "oldObject": self._in_form(write.old, write.form, form),
            "request": _request(write, form),
            "namespaceObject": None if write.of_namespaces else write.room,
            "params": param,
            "authorizer": Authorizer(ask, about),
        }

    def _in_form(self, obj: Object | None, own: Form, wanted: Form) -> Object | None:
        """An object in the version, or the kind, that a policy knows."""
        if obj is None or own == wanted or obj.get("kind") == "Scale":
            return obj
        found = self._plane.registry.find(wanted.group, wanted.version, wanted.resource)
        source = self._plane.registry.find(own.group, own.version, own.resource)
        if found is None or source is None:
            return obj
        stored = source[1].version.decode(obj) if source[1].version.decode is not None else obj
        version = stored["metadata"].get("resourceVersion")
        shown = found[1].load(found[1].encode(stored), int(version or 0))
        if not version:
            shown["metadata"].pop("resourceVersion", None)
        return shown


def _shown(call: Call, obj: Object | None) -> Object | None:
    """An object as the request shows it."""
    if obj is None:
        return None
    if call.subresource == "scale":
        return as_scale(call, obj)
    codec = call.codec
    shown = codec.version.encode(obj) if codec.version.encode is not None else obj
    return {**shown, "apiVersion": codec.api_version, "kind": codec.kind}


def _account(namespace: str, name: str) -> User:
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")
    return User(service_account_name(namespace, name), "", groups)


def _request(write: Write, form: Form) -> dict[str, Any]:
    said = {"name": write.name, "namespace": write.namespace}
    if write.subresource:
        said |= {"subResource": write.subresource, "requestSubResource": write.subresource}
    scaled = write.subresource == "scale"
    return {
        "kind": _SCALE if scaled else form.as_kind(),
        "resource": form.as_resource(),
        "requestKind": _SCALE if scaled else write.form.as_kind(),
        "requestResource": write.form.as_resource(),
        "operation": write.operation,
        "userInfo": write.user.info(),
        "dryRun": write.dry_run,
        "options": write.options,
        **{key: value for key, value in said.items() if value},
    }


def _fail(
    denials: list[tuple[Policy, Binding | None, Objection]], policy: Policy, binding: Binding | None, why: str
) -> None:
    from homeostat.api.policies.policy import Objection

    if not policy.ignores_failure:
        denials.append((policy, binding, Objection(why)))


def _enforce(
    call: Call,
    policy: Policy,
    binding: Binding,
    verdict: Verdict,
    denials: list[tuple[Policy, Binding | None, Objection]],
    failures: list[dict[str, Any]],
) -> None:
    """Does what the binding says about a verdict."""
    for objection in verdict.objections:
        if "Deny" in binding.actions:
            denials.append((policy, binding, objection))
        if "Warn" in binding.actions:
            who = f"ValidatingAdmissionPolicy '{policy.name}' with binding '{binding.name}'"
            call.warnings.append(f"Validation failed for {who}: {objection.message}")
        if "Audit" in binding.actions:
            failures.append(
                {
                    "message": objection.message,
                    "policy": policy.name,
                    "binding": binding.name,
                    "expressionIndex": objection.index,
                    "validationActions": binding.actions,
                }
            )
    denials += [(policy, binding, error) for error in verdict.errors]


def _refusal(call: Call, write: Write, policy: Policy, binding: Binding | None, objection: Objection) -> Denied:
    bound = f" with binding '{binding.name}'" if binding is not None else ""
    summary = f"ValidatingAdmissionPolicy '{policy.name}'{bound} denied request"
    said = (write.obj or write.old or {"metadata": {}})["metadata"]
    name = write.name or said.get("name") or "Unknown"
    reason = objection.reason or "Invalid"
    message = f"{summary}: {objection.message}"
    error = Denied(
        _CODES.get(reason, 422),
        reason,
        f'{call.resource.qualified} "{name}" is forbidden: {message}',
        group=call.resource.group,
        kind=call.resource.plural,
        name=name,
        causes=[{"message": message}],
    )
    error.summary = summary
    return error
