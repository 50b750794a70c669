"""Cluster roles that are made of others: those whose labels an aggregation rule selects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from homeostat.model.selectors import label_selector_from

Object = Mapping[str, Any]

_LISTS = ("verbs", "apiGroups", "resources", "resourceNames", "nonResourceURLs")


def aggregate(clusterroles: Iterable[Object]) -> list[dict[str, Any]]:
    """The cluster roles whose `rules` must be written anew, with those rules in place; empty where all is well.

    A role may gather roles that gather others, so the rules are followed until nothing moves. Stored roles are left as
    they are; what comes back are copies.
    """
    roles = {role["metadata"]["name"]: role for role in clusterroles}
    ordered = sorted(roles)
    gathering = [name for name in ordered if roles[name].get("aggregationRule")]
    members = {name: _members(roles, ordered, name) for name in gathering}
    rules: dict[str, list[Object]] = {name: list(roles[name].get("rules") or ()) for name in roles}
    changed: set[str] = set()
    for _ in range(len(gathering) + 1):
        moved = False
        for name in gathering:
            gathered = _union(rule for member in members[name] for rule in rules[member])
            if [_canonical(r) for r in gathered] != [_canonical(r) for r in rules[name]]:
                rules[name] = gathered
                changed.add(name)
                moved = True
        if not moved:
            break
    return [{**roles[name], "rules": rules[name]} for name in sorted(changed)]


def _members(roles: Mapping[str, Object], ordered: list[str], owner: str) -> list[str]:
    selectors = map(label_selector_from, roles[owner]["aggregationRule"].get("clusterRoleSelectors") or ())
    return [
        name
        for selector in selectors
        for name in ordered
        if selector is not None and name != owner and selector.matches(roles[name]["metadata"].get("labels"))
    ]


def _union(rules: Iterable[Object]) -> list[Object]:
    return list({_canonical(rule): rule for rule in reversed(list(rules))}.values())[::-1]


def _canonical(rule: Object) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(rule.get(key) or ()) for key in _LISTS)
