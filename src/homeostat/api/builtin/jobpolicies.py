"""What the end of a pod means for its job: what fails it, what is let be, and when it has done enough."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from homeostat.api.builtin.checks import not_negative
from homeostat.api.resource import at
from homeostat.model.errors import FieldError
from homeostat.model.names import dns_subdomain_problems

_ACTIONS = ("Count", "FailIndex", "FailJob", "Ignore")
_OPERATORS = ("In", "NotIn")
_REPLACED = ("Failed", "TerminatingOrFailed")
_MOST_RULES, _MOST_CODES, _MOST_INDEXED = 20, 255, 100_000
_INDEXED_ALONE = "requires indexed completion mode"

Part = Mapping[str, Any]


def policy_errors(spec: Part, path: str) -> list[FieldError]:
    """What is wrong with the policies of a job."""
    errors = [
        error
        for field in ("backoffLimitPerIndex", "maxFailedIndexes")
        for error in not_negative(spec.get(field), f"{path}.{field}")
    ]
    failed, per_index = spec.get("maxFailedIndexes"), spec.get("backoffLimitPerIndex")
    if failed is not None and per_index is None:
        errors.append(FieldError.required(f"{path}.backoffLimitPerIndex", "when maxFailedIndexes is specified"))
    if spec.get("completionMode") == "Indexed":
        if (spec.get("parallelism") or 0) > _MOST_INDEXED:
            detail = f"must be less than or equal to {_MOST_INDEXED} when completion mode is Indexed"
            errors.append(FieldError.invalid(f"{path}.parallelism", spec["parallelism"], detail))
    else:
        for field in ("backoffLimitPerIndex", "maxFailedIndexes", "successPolicy"):
            if spec.get(field) is not None:
                errors.append(FieldError.invalid(f"{path}.{field}", spec[field], _INDEXED_ALONE))
    if (success := spec.get("successPolicy")) is not None and not success.get("rules"):
        detail = "at least one rules must be specified when the successPolicy is specified"
        errors.append(FieldError.required(f"{path}.successPolicy.rules", detail))
    if manager := spec.get("managedBy"):
        errors += _path_errors(manager, f"{path}.managedBy")
    replaced, policy = spec.get("podReplacementPolicy"), spec.get("podFailurePolicy")
    allowed = _REPLACED if policy is None else _REPLACED[:1]
    if replaced is not None and replaced not in allowed:
        errors.append(FieldError.not_supported(f"{path}.podReplacementPolicy", replaced, allowed))
    return errors if policy is None else errors + _failure_errors(spec, policy, path)


def _path_errors(value: str, path: str) -> list[FieldError]:
    domain, _, rest = value.partition("/")
    if not domain or not rest:
        return [FieldError.invalid(path, value, 'must be a domain-prefixed path (such as "acme.io/foo")')]
    return [FieldError.invalid(path, domain, problem) for problem in dns_subdomain_problems(domain)]


def _failure_errors(spec: Part, policy: Part, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    restarts = at(spec, "template", "spec", "restartPolicy")
    if restarts == "OnFailure":
        detail = 'only "Never" is supported when podFailurePolicy is specified'
        errors.append(FieldError.invalid(f"{path}.template.spec.restartPolicy", restarts, detail))
    where, rules = f"{path}.podFailurePolicy.rules", policy.get("rules") or ()
    if len(rules) > _MOST_RULES:
        errors.append(FieldError.too_many(where, len(rules), _MOST_RULES))
    for index, rule in enumerate(rules):
        errors += _rule_errors(spec, rule, f"{where}[{index}]")
    return errors


def _rule_errors(spec: Part, rule: Part, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    action, codes, conditions = rule.get("action") or "", rule.get("onExitCodes"), rule.get("onPodConditions")
    if not action:
        errors.append(FieldError.required(f"{path}.action", f"valid values: {_quoted(_ACTIONS)}"))
    elif action not in _ACTIONS:
        errors.append(FieldError.not_supported(f"{path}.action", action, _ACTIONS))
    elif action == "FailIndex" and spec.get("backoffLimitPerIndex") is None:
        detail = "requires the backoffLimitPerIndex to be set"
        errors.append(FieldError.invalid(f"{path}.action", action, detail))
    if codes is not None:
        errors += _code_errors(spec, codes, f"{path}.onExitCodes")
    if codes is not None and conditions:
        detail = "specifying both OnExitCodes and OnPodConditions is not supported"
        errors.append(FieldError("FieldValueInvalid", path, f"Invalid value: {detail}"))
    elif codes is None and not conditions:
        detail = "specifying one of OnExitCodes and OnPodConditions is required"
        errors.append(FieldError("FieldValueInvalid", path, f"Invalid value: {detail}"))
    return errors


def _code_errors(spec: Part, codes: Part, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    operator, values, container = codes.get("operator") or "", codes.get("values") or [], codes.get("containerName")
    if not operator:
        errors.append(FieldError.required(f"{path}.operator", f"valid values: {_quoted(_OPERATORS)}"))
    elif operator not in _OPERATORS:
        errors.append(FieldError.not_supported(f"{path}.operator", operator, _OPERATORS))
    groups = ("containers", "initContainers")
    names = [c.get("name") for group in groups for c in at(spec, "template", "spec", group) or ()]
    if container is not None and container not in names:
        detail = "must be one of the container or initContainer names in the pod template"
        errors.append(FieldError.invalid(f"{path}.containerName", container, detail))
    if not values:
        errors.append(FieldError.invalid(f"{path}.values", values, "at least one value is required"))
    elif len(values) > _MOST_CODES:
        errors.append(FieldError.too_many(f"{path}.values", len(values), _MOST_CODES))
    for index, value in enumerate(values):
        if value == 0 and operator == "In":
            errors.append(FieldError.invalid(f"{path}.values[{index}]", 0, "must not be 0 for the In operator"))
        if value in values[:index]:
            errors.append(FieldError.duplicate(f"{path}.values[{index}]", value))
    if values != sorted(values):
        errors.append(FieldError.invalid(f"{path}.values", values, "must be ordered"))
    return errors


def _quoted(words: tuple[str, ...]) -> str:
    return "[" + " ".join(f'"{word}"' for word in words) + "]"
