"""ServiceAccount: who a program is."""

from __future__ import annotations

from homeostat.api.builtin.declare import kind
from homeostat.api.resource import Resource


def resources() -> list[Resource]:
    """ServiceAccount; its tokens come from the `token` subresource."""
    return [kind("v1", "ServiceAccount", "serviceaccounts", short=("sa",), subresources=("token",))]
