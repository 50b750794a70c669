"""Admission policies and their bindings, as data; `api.policies` holds writes against them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from homeostat.api.builtin.admissionrules import constraint_errors, default_constraints
from homeostat.api.builtin.declare import SpecAndStatus, fill, kind, section
from homeostat.api.cel.declare import RESERVED
from homeostat.api.resource import Column, Object, Resource, Rules, at
from homeostat.api.table import AGE, NAME
from homeostat.model.errors import FieldError
from homeostat.model.names import (
    dns1035_problems,
    dns_subdomain_problems,
    path_segment_problems,
    qualified_name_problems,
)
from homeostat.model.selectors import label_selector_errors, selector_text

if TYPE_CHECKING:
    from homeostat.api.policies.environment import Environment, Expression

_API = "admissionregistration.k8s.io/v1"
_ACTIONS = ("Audit", "Deny", "Warn")
_REASONS = ("Forbidden", "Invalid", "RequestEntityTooLarge")
_MOST_CONDITIONS, _MOST_ANNOTATIONS, _LONGEST_ANNOTATION = 64, 20, 5 * 1024
_UNSET = "<unset>"
_IDENTIFIER = re.compile(r"[_a-zA-Z][_a-zA-Z0-9]*").fullmatch


class PolicyRules(SpecAndStatus):
    """ValidatingAdmissionPolicy. Its status says at once that it was seen: there is nothing to wait for."""

    kept_by_status = None

    def default(self, obj: Object) -> None:
        spec = section(obj, "spec")
        fill(spec, failurePolicy="Fail")
        default_constraints(spec.get("matchConstraints"))

    def prepare_create(self, obj: Object) -> None:
        obj["status"] = {"observedGeneration": 1, "typeChecking": {}}

    def prepare_update(self, obj: Object, old: Object) -> None:
        super().prepare_update(obj, old)
        if obj.get("spec") != old.get("spec"):
            obj["status"] = {**(obj.get("status") or {}), "observedGeneration": old["metadata"].get("generation", 0) + 1}

    def validate(self, obj: Object) -> Sequence[FieldError]:
        spec, errors = obj.get("spec") or {}, []
        if spec.get("failurePolicy") not in ("Fail", "Ignore"):
            errors.append(FieldError.not_supported("spec.failurePolicy", spec.get("failurePolicy"), ("Fail", "Ignore")))
        if spec.get("paramKind") is not None:
            errors += _param_kind_errors(spec["paramKind"], "spec.paramKind")
        constraints = spec.get("matchConstraints")
        if constraints is None:
            errors.append(FieldError.required("spec.matchConstraints"))
        else:
            errors += constraint_errors(constraints, "spec.matchConstraints")
            if not constraints.get("resourceRules"):
                errors.append(FieldError.required("spec.matchConstraints.resourceRules"))
        return [*errors, *_expression_errors(obj["metadata"].get("name") or "", spec)]


def _expression_errors(name: str, spec: dict[str, Any]) -> list[FieldError]:
    from homeostat.api.policies.environment import Environment

    env = Environment(params=bool(spec.get("paramKind")))
    errors = _condition_errors(env, spec.get("matchConditions") or ())
    for index, variable in enumerate(spec.get("variables") or ()):
        errors += _variable_errors(env, variable, f"spec.variables[{index}]")
    validations, annotations = spec.get("validations") or (), spec.get("auditAnnotations") or ()
    if not validations and not annotations:
        why = "validations or auditAnnotations must contain at least one item"
        errors += [FieldError.required("spec.validations", why), FieldError.required("spec.auditAnnotations", why)]
    for index, validation in enumerate(validations):
        errors += _validation_errors(env, validation, f"spec.validations[{index}]")
    if len(annotations) > _MOST_ANNOTATIONS:
        why = f"must not have more than {_MOST_ANNOTATIONS} auditAnnotations"
        errors.append(FieldError.invalid("spec.auditAnnotations", annotations, why))
    for index, annotation in enumerate(annotations):
        errors += _annotation_errors(env, name, annotation, f"spec.auditAnnotations[{index}]")
    return errors + _duplicates(annotations, "key", "spec.auditAnnotations")


def _duplicates(items: Iterable[dict[str, Any]], field: str, path: str) -> list[FieldError]:
    seen: set[str] = set()
    errors = []
    for index, item in enumerate(items):
        value = item.get(field) or ""
        if value and value in seen:
            errors.append(FieldError.duplicate(f"{path}[{index}].{field}", value))
        seen.add(value)
    return errors


def _compiled(path: str, text: str, compile_it: Callable[[str], Expression], empty: str = "") -> list[FieldError]:
    """What is wrong with an expression that must be there."""
    if not text.strip():
        return [FieldError.required(path, empty)]
    error = compile_it(text).error
    return [FieldError.invalid(path, text, error)] if error else []


def _condition_errors(env: Environment, conditions: Sequence[dict[str, Any]]) -> list[FieldError]:
    from homeostat.model.cel.types import BOOL

    path, errors = "spec.matchConditions", []
    if len(conditions) > _MOST_CONDITIONS:
        errors.append(FieldError.too_many(path, len(conditions), _MOST_CONDITIONS))
    for index, condition in enumerate(conditions):
        here = f"{path}[{index}]"
        text = (condition.get("expression") or "").strip()
        errors += _compiled(f"{here}.expression", text, lambda t: env.compile(t, (BOOL,), composed=False))
        name = condition.get("name") or ""
        if not name:
            errors.append(FieldError.required(f"{here}.name"))
        else:
            errors += [FieldError.invalid(f"{here}.name", name, p) for p in qualified_name_problems(name)]
    return errors + _duplicates(conditions, "name", path)


def _variable_errors(env: Environment, variable: dict[str, Any], path: str) -> list[FieldError]:
    name, text, errors = variable.get("name") or "", variable.get("expression") or "", []
    if not name.strip():
        errors.append(FieldError.required(f"{path}.name", "name is not specified"))
    elif not _IDENTIFIER(name) or name in RESERVED:
        errors.append(FieldError.invalid(f"{path}.name", name, "name is not a valid CEL identifier"))
    missing = "expression is not specified"
    return errors + _compiled(f"{path}.expression", text, lambda t: env.define(name, t), missing)


def _validation_errors(env: Environment, raw: dict[str, Any], path: str) -> list[FieldError]:
    from homeostat.model.cel.types import BOOL, STRING

    missing = "expression is not specified"
    errors = _compiled(f"{path}.expression", raw.get("expression") or "", lambda t: env.compile(t, (BOOL,)), missing)
    made, message, reason = raw.get("messageExpression") or "", raw.get("message") or "", raw.get("reason")
    if made and not made.strip():
        errors.append(FieldError.invalid(f"{path}.messageExpression", made, "must be non-empty if specified"))
    elif made:
        compile_it = env.compile(made, (STRING,), authorizer=False)
        if compile_it.error:
            errors.append(FieldError.invalid(f"{path}.messageExpression", made, compile_it.error))
    if message and not message.strip():
        errors.append(FieldError.invalid(f"{path}.message", message, "message must be non-empty if specified"))
    elif re.search(r"[\n\r]", message.strip()):
        errors.append(FieldError.invalid(f"{path}.message", message, "message must not contain line breaks"))
    if reason is not None and reason not in _REASONS:
        errors.append(FieldError.not_supported(f"{path}.reason", reason, _REASONS))
    return errors


def _annotation_errors(env: Environment, name: str, raw: dict[str, Any], path: str) -> list[FieldError]:
    from homeostat.model.cel.types import NULL, STRING

    key, text = raw.get("key") or "", raw.get("valueExpression") or ""
    if name:
        errors = [FieldError.invalid(f"{path}.key", f"{name}/{key}", p) for p in qualified_name_problems(f"{name}/{key}")]
    else:
        errors = [FieldError.invalid(f"{path}.key", key, "requires metadata.name be non-empty")]
    if len(text.strip().encode()) > _LONGEST_ANNOTATION:
        why = f"must not exceed {_LONGEST_ANNOTATION} bytes in length"
        return [*errors, FieldError.required(f"{path}.valueExpression", why)]
    missing = "valueExpression is not specified"
    return errors + _compiled(f"{path}.valueExpression", text, lambda t: env.compile(t, (STRING, NULL)), missing)


def _param_kind_errors(raw: dict[str, Any], path: str) -> list[FieldError]:
    version, name, errors = raw.get("apiVersion") or "", raw.get("kind") or "", []
    if not version:
        errors.append(FieldError.required(f"{path}.apiVersion"))
    elif version.count("/") > 1:
        errors.append(FieldError.invalid(f"{path}.apiVersion", version, f"unexpected GroupVersion string: {version}"))
    else:
        group, _, of_group = version.rpartition("/")
        if group and (problems := dns_subdomain_problems(group)):
            errors.append(FieldError.invalid(f"{path}.apiVersion", group, ",".join(problems)))
        if not of_group:
            errors.append(FieldError.invalid(f"{path}.apiVersion", version, "version must be specified"))
        elif problems := dns1035_problems(of_group):
            errors.append(FieldError.invalid(f"{path}.apiVersion", of_group, ",".join(problems)))
    if not name:
        errors.append(FieldError.required(f"{path}.kind"))
    elif problems := dns1035_problems(name.lower()):
        why = f"may have mixed case, but should otherwise match: {','.join(problems)}"
        errors.append(FieldError.invalid(f"{path}.kind", name, why))
    return errors


class BindingRules(Rules):
    """ValidatingAdmissionPolicyBinding."""

    def default(self, obj: Object) -> None:
        default_constraints(section(obj, "spec").get("matchResources"))

    def validate(self, obj: Object) -> Sequence[FieldError]:
        spec, errors = obj.get("spec") or {}, []
        policy = spec.get("policyName") or ""
        if not policy:
            errors.append(FieldError.required("spec.policyName"))
        else:
            errors += [FieldError.invalid("spec.policyName", policy, p) for p in dns_subdomain_problems(policy)]
        if spec.get("paramRef") is not None:
            errors += _param_ref_errors(spec["paramRef"], "spec.paramRef")
        if spec.get("matchResources") is not None:
            errors += constraint_errors(spec["matchResources"], "spec.matchResouces")  # as upstream spells it
        return [*errors, *_action_errors(spec.get("validationActions") or [], "spec.validationActions")]


def _param_ref_errors(ref: dict[str, Any], path: str) -> list[FieldError]:
    name, selector, action = ref.get("name") or "", ref.get("selector"), ref.get("parameterNotFoundAction") or ""
    exclusive = "name and selector are mutually exclusive"
    errors = [FieldError.invalid(f"{path}.name", name, p) for p in path_segment_problems(name)] if name else []
    if name and selector is not None:
        errors.append(FieldError.forbidden(f"{path}.name", exclusive))
    if selector is not None:
        errors += label_selector_errors(selector, f"{path}.selector")
        if name:
            errors.append(FieldError.forbidden(f"{path}.selector", exclusive))
    if not name and selector is None:
        errors.append(FieldError.required(path, "one of name or selector must be specified"))
    if not action:
        errors.append(FieldError.required(f"{path}.parameterNotFoundAction"))
    elif action not in ("Deny", "Allow"):
        errors.append(FieldError.not_supported(f"{path}.parameterNotFoundAction", action, ("Deny", "Allow")))
    return errors


def _action_errors(actions: list[str], path: str) -> list[FieldError]:
    errors = []
    for index, action in enumerate(actions):
        if action not in _ACTIONS:
            errors.append(FieldError.not_supported(f"{path}[{index}]", action, _ACTIONS))
        if action in actions[:index]:
            errors.append(FieldError.duplicate(f"{path}[{index}]", action))
    if "Deny" in actions and "Warn" in actions:
        why = (
            "must not contain both Deny and Warn (repeating the same validation failure information in the API response "
            "and headers serves no purpose)"
        )
        errors.append(FieldError.invalid(path, actions, why))
    if not actions:
        errors.append(FieldError.required(path, "at least one validation action is required"))
    return errors


def _validations(obj: Object) -> int:
    return len(at(obj, "spec", "validations") or ())


def _param_kind(obj: Object) -> str:
    found = at(obj, "spec", "paramKind")
    return f"{found.get('apiVersion', '')}/{found.get('kind', '')}" if found else _UNSET


def _param_ref(obj: Object) -> str:
    ref = at(obj, "spec", "paramRef")
    if not ref:
        return _UNSET
    name = ref.get("name") or (selector_text(ref["selector"]) if ref.get("selector") is not None else "")
    return f"{ref['namespace']}/{name}" if ref.get("namespace") and ref.get("name") else name


def resources() -> list[Resource]:
    """ValidatingAdmissionPolicy and its binding."""
    return [
        kind(
            _API,
            "ValidatingAdmissionPolicy",
            "validatingadmissionpolicies",
            namespaced=False,
            categories=("api-extensions",),
            rules=PolicyRules(),
            status=True,
            generation=True,
            columns=(
                NAME,
                Column("Validations", _validations, "integer", description="How many demands it makes."),
                Column("ParamKind", _param_kind, description="The kind of its parameters."),
                AGE,
            ),
        ),
        kind(
            _API,
            "ValidatingAdmissionPolicyBinding",
            "validatingadmissionpolicybindings",
            namespaced=False,
            categories=("api-extensions",),
            rules=BindingRules(),
            generation=True,
            columns=(
                NAME,
                Column("PolicyName", lambda o: at(o, "spec", "policyName") or "", description="The policy that is bound."),
                Column("ParamRef", _param_ref, description="The parameters it is bound with."),
                AGE,
            ),
        ),
    ]
