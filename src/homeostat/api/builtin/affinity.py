"""Where a pod may go, and near whom: the checks of its affinities and gates, and what of them may change while it waits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from homeostat.api.builtin.checks import label_name
from homeostat.api.resource import at
from homeostat.model.errors import FieldError
from homeostat.model.names import qualified_name_problems
from homeostat.model.selectors import label_selector_errors

_REQUIRED, _PREFERRED = "requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution"
_NO_OPERATOR = "not a valid selector operator"

Part = Mapping[str, Any]


def qualified_name(value: str, path: str) -> list[FieldError]:
    """A name with an optional prefix, as the keys of labels are."""
    return [FieldError.invalid(path, value, problem) for problem in qualified_name_problems(value)]


def affinity_errors(affinity: Part, path: str) -> list[FieldError]:
    """What is wrong with the affinities of a pod."""
    errors: list[FieldError] = []
    if (nodes := affinity.get("nodeAffinity")) is not None:
        where = f"{path}.nodeAffinity"
        if (required := nodes.get(_REQUIRED)) is not None:
            errors += node_selector_errors(required, f"{where}.{_REQUIRED}")
        for index, preferred in enumerate(nodes.get(_PREFERRED) or ()):
            errors += _weight_errors(preferred, f"{where}.{_PREFERRED}[{index}]")
            errors += _node_term_errors(preferred.get("preference") or {}, f"{where}.{_PREFERRED}[{index}].preference")
    for kind in ("podAffinity", "podAntiAffinity"):
        pods = affinity.get(kind) or {}
        for index, term in enumerate(pods.get(_REQUIRED) or ()):
            errors += _pod_term_errors(term, f"{path}.{kind}.{_REQUIRED}[{index}]")
        for index, preferred in enumerate(pods.get(_PREFERRED) or ()):
            where = f"{path}.{kind}.{_PREFERRED}[{index}]"
            errors += _weight_errors(preferred, where)
            errors += _pod_term_errors(preferred.get("podAffinityTerm") or {}, f"{where}.podAffinityTerm")
    return errors


def node_selector_errors(selector: Part, path: str) -> list[FieldError]:
    """What is wrong with a choice of nodes."""
    terms = selector.get("nodeSelectorTerms") or ()
    if not terms:
        return [FieldError.required(f"{path}.nodeSelectorTerms", "must have at least one node selector term")]
    return [
        error
        for index, term in enumerate(terms)
        for error in _node_term_errors(term, f"{path}.nodeSelectorTerms[{index}]")
    ]


def _weight_errors(preferred: Part, path: str) -> list[FieldError]:
    weight = preferred.get("weight") or 0
    return [] if 1 <= weight <= 100 else [FieldError.invalid(f"{path}.weight", weight, "must be in the range 1-100")]


def _node_term_errors(term: Part, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for index, wanted in enumerate(term.get("matchExpressions") or ()):
        where, operator, values = f"{path}.matchExpressions[{index}]", wanted.get("operator", ""), wanted.get("values")
        if operator in ("In", "NotIn"):
            if not values:
                detail = "must be specified when `operator` is 'In' or 'NotIn'"
                errors.append(FieldError.required(f"{where}.values", detail))
        elif operator in ("Exists", "DoesNotExist"):
            if values:
                detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                errors.append(FieldError.forbidden(f"{where}.values", detail))
        elif operator in ("Gt", "Lt"):
            if len(values or ()) != 1:
                detail = "must be specified single value when `operator` is 'Lt' or 'Gt'"
                errors.append(FieldError.required(f"{where}.values", detail))
        else:
            errors.append(FieldError.invalid(f"{where}.operator", operator, _NO_OPERATOR))
        errors += qualified_name(wanted.get("key") or "", f"{where}.key")
    for index, wanted in enumerate(term.get("matchFields") or ()):
        where, operator, key = f"{path}.matchFields[{index}]", wanted.get("operator", ""), wanted.get("key") or ""
        if operator not in ("In", "NotIn"):
            errors.append(FieldError.invalid(f"{where}.operator", operator, _NO_OPERATOR))
        elif len(wanted.get("values") or ()) != 1:
            detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
            errors.append(FieldError.required(f"{where}.values", detail))
        if key != "metadata.name":
            errors.append(FieldError.invalid(f"{where}.key", key, "not a valid field selector key"))
    return errors


def _pod_term_errors(term: Part, path: str) -> list[FieldError]:
    errors = label_selector_errors(term.get("labelSelector"), f"{path}.labelSelector")
    errors += label_selector_errors(term.get("namespaceSelector"), f"{path}.namespaceSelector")
    for namespace in term.get("namespaces") or ():
        errors += label_name(namespace, f"{path}.namespace")
    key = term.get("topologyKey") or ""
    if not key:
        errors.append(FieldError.required(f"{path}.topologyKey", "can not be empty"))
    return errors + qualified_name(key, f"{path}.topologyKey")


def gate_errors(gates: Sequence[Part], path: str) -> list[FieldError]:
    """What is wrong with the gates that a pod waits at."""
    errors: list[FieldError] = []
    seen: set[str] = set()
    for index, gate in enumerate(gates):
        name = gate.get("name") or ""
        errors += qualified_name(name, f"{path}[{index}]")
        if name in seen:
            errors.append(FieldError.duplicate(f"{path}[{index}]", name))
        seen.add(name)
    return errors


def narrowed(new: Part, old: Part) -> list[FieldError]:
    """Why a pod spec does not narrow the choice of nodes that the old one left: where it left all, anything may be said."""
    where = f"spec.affinity.nodeAffinity.{_REQUIRED}.nodeSelectorTerms"
    before, after = (at(spec, "affinity", "nodeAffinity", _REQUIRED, "nodeSelectorTerms") or [] for spec in (old, new))
    if before and len(before) != len(after):
        detail = "no additions/deletions to non-empty NodeSelectorTerms list are allowed"
        return [FieldError.invalid(where, after, detail)]
    detail = "only additions are allowed (no mutations or deletions)"
    return [
        FieldError.invalid(f"{where}[{index}]", after[index], detail)
        for index, term in enumerate(before)
        if not _only_adds(after[index], term)
    ]


def _only_adds(new: Part, old: Part) -> bool:
    if not any(old.get(part) for part in ("matchExpressions", "matchFields")):
        return new == old
    return all(
        (new.get(part) or [])[: len(old.get(part) or ())] == (old.get(part) or [])
        for part in ("matchExpressions", "matchFields")
    )
