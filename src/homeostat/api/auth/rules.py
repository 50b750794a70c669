"""Policy rules: what one allows, and whether some cover others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from homeostat.api.wording import quoted_list

ATOMS_LIMIT = 10_000
"""How many single permissions a role may break down into where somebody without full power writes it."""


class TooManyAtoms(Exception):
    """The rules multiply out into more permissions than can be checked in the time of a request."""


class Rule:
    """One policy rule with its lists as sets. The version of an API never matters to a rule, as upstream."""

    __slots__ = ("_url_prefixes", "_urls", "groups", "names", "raw", "resources", "verbs")

    def __init__(self, raw: Mapping[str, Any]) -> None:
        self.raw = raw
        self.verbs = frozenset(raw.get("verbs") or ())
        self.groups = frozenset(raw.get("apiGroups") or ())
        self.resources = frozenset(raw.get("resources") or ())
        self.names = frozenset(raw.get("resourceNames") or ())
        urls: Sequence[str] = raw.get("nonResourceURLs") or ()
        self._urls = frozenset(urls)
        self._url_prefixes = tuple(url.rstrip("*") for url in urls if url.endswith("*"))

    def allows_kind(self, verb: str, group: str, resource: str, subresource: str) -> bool:
        """Everything but the object's name, which `names` limits where it is not empty."""
        if verb not in self.verbs and "*" not in self.verbs:
            return False
        if group not in self.groups and "*" not in self.groups:
            return False
        resources = self.resources
        if "*" in resources:
            return True
        if not subresource:
            return resource in resources
        return f"{resource}/{subresource}" in resources or f"*/{subresource}" in resources

    def allows_path(self, verb: str, path: str) -> bool:
        if verb not in self.verbs and "*" not in self.verbs:
            return False
        return self._covers_url(path)

    def _covers_url(self, path: str) -> bool:
        return path in self._urls or path.startswith(self._url_prefixes)

    def covers(self, atom: Atom) -> bool:
        """Whether a single permission is within this rule."""
        group, resource, url, name, verb = atom
        if verb not in self.verbs and "*" not in self.verbs:
            return False
        if url is not None:
            return not self.names and self._covers_url(url)
        if group not in self.groups and "*" not in self.groups:
            return False
        if self.names and name not in self.names:
            return False
        if "*" in self.resources or resource in self.resources:
            return True
        _, slash, subresource = (resource or "").partition("/")
        return bool(slash) and f"*/{subresource}" in self.resources


Atom = tuple[str | None, str | None, str | None, str | None, str]
"""A permission that cannot be divided: group, resource, non-resource URL, object name (None: any), verb."""


def atoms(raw: Mapping[str, Any]) -> Iterator[Atom]:
    """A rule broken down into single permissions, in the order the rule lists them."""
    verbs: Sequence[str] = raw.get("verbs") or ()
    names: Sequence[str | None] = raw.get("resourceNames") or (None,)
    for group in raw.get("apiGroups") or ():
        for resource in raw.get("resources") or ():
            for verb in verbs:
                for name in names:
                    yield group, resource, None, name, verb
    for url in raw.get("nonResourceURLs") or ():
        for verb in verbs:
            yield None, None, url, None, verb


def _size(raw: Mapping[str, Any]) -> int:
    def count(key: str) -> int:
        return len(raw.get(key) or ())

    return count("verbs") * (
        count("apiGroups") * count("resources") * max(1, count("resourceNames")) + count("nonResourceURLs")
    )


def uncovered(held: Sequence[Rule], wanted: Iterable[Mapping[str, Any]]) -> list[Atom]:
    """The permissions among `wanted` that no single rule of `held` covers; empty where all are held.

    Raises `TooManyAtoms` before it would work for longer than a request may take.
    """
    wanted = list(wanted)
    if sum(map(_size, wanted)) > ATOMS_LIMIT:
        raise TooManyAtoms
    missing: list[Atom] = []
    for raw in wanted:
        for atom in atoms(raw):
            for rule in held:
                if rule.covers(atom):
                    break
            else:
                missing.append(atom)
    return missing


def describe(missing: Iterable[Atom]) -> list[str]:
    """Missing permissions as upstream prints them: one line each, verbs of the same resource together."""
    verbs: dict[tuple[str, str], list[str]] = {}
    lines: set[str] = set()
    for group, resource, url, name, verb in missing:
        if url is not None:
            lines.add(f"{{NonResourceURLs:{quoted_list([url])}, Verbs:{quoted_list([verb])}}}")
        elif name is not None:
            lines.add(
                f"{{APIGroups:{quoted_list([group or ''])}, Resources:{quoted_list([resource or ''])}, "
                f"ResourceNames:{quoted_list([name])}, Verbs:{quoted_list([verb])}}}"
            )
        else:
            verbs.setdefault((group or "", resource or ""), []).append(verb)
    for (group, resource), together in verbs.items():
        kind = f"APIGroups:{quoted_list([group])}, Resources:{quoted_list([resource])}"
        lines.add(f"{{{kind}, Verbs:{quoted_list(together)}}}")
    return sorted(lines)
