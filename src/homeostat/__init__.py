"""Homeostat: a reconciliation control plane that thinks before it acts, and speaks the Kubernetes API.

What a provider's author needs is here; it is imported when first used, so that `import homeostat` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from homeostat.client import Client
    from homeostat.loop.compose import Composer
    from homeostat.loop.diff import Change, Diff
    from homeostat.loop.fleet import Ref
    from homeostat.loop.observation import ABSENT, Absent, Unknown
    from homeostat.loop.provider import Provider, current
    from homeostat.model.errors import ApiError
    from homeostat.model.kinds import Atomic, Column, ListMap, ListSet, MapAtomic, Rule, Sensitive, Spec

__version__ = "0.1.0"

__all__ = [
    "ABSENT",
    "Absent",
    "ApiError",
    "Atomic",
    "Change",
    "Client",
    "Column",
    "Composer",
    "Diff",
    "ListMap",
    "ListSet",
    "MapAtomic",
    "Provider",
    "Ref",
    "Rule",
    "Sensitive",
    "Spec",
    "Unknown",
    "__version__",
    "current",
]

_HOMES = {
    "homeostat.client": ("Client",),
    "homeostat.loop.compose": ("Composer",),
    "homeostat.loop.diff": ("Change", "Diff"),
    "homeostat.loop.fleet": ("Ref",),
    "homeostat.loop.observation": ("ABSENT", "Absent", "Unknown"),
    "homeostat.loop.provider": ("Provider", "current"),
    "homeostat.model.errors": ("ApiError",),
    "homeostat.model.kinds": ("Atomic", "Column", "ListMap", "ListSet", "MapAtomic", "Rule", "Sensitive", "Spec"),
}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(home), name)
    raise AttributeError(f"module 'homeostat' has no attribute {name!r}")
