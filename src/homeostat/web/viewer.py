"""Who looks: an API client in their name, and what RBAC lets them see of what all viewers share."""

from __future__ import annotations

from collections.abc import Callable

from homeostat.api.audit import AuditLog
from homeostat.api.auth.user import User
from homeostat.client import Client
from homeostat.client.kinds import Kind

May = Callable[[User, str, str, str, str], bool]
"""Whether a user may do a verb on a resource (group, plural) in a namespace (empty: in all)."""

Reads = Callable[[User, str], bool]
"""Whether a user may get what stands at a path."""


class Viewer:
    """One person at one stream. `audit` is for topics that ask whether they may read it, first."""

    def __init__(self, user: User, client: Client, may: May, reads: Reads = lambda *_: False, audit: AuditLog | None = None) -> None:
        self.user = user
        self.client = client
        self.audit = audit
        self._may = may
        self._reads = reads
        self._seen: dict[tuple[str, str], bool] = {}
        self.looks = 0
        """How often their rights were looked at anew."""

    def sees(self, kind: Kind, namespace: str = "") -> bool:
        """Whether they may list a kind: everywhere, or in this namespace."""
        return self._lists(kind, "") or (bool(namespace) and self._lists(kind, namespace))

    def _lists(self, kind: Kind, namespace: str) -> bool:
        known = self._seen.get((kind.name, namespace))
        if known is None:
            known = self._seen[kind.name, namespace] = self._may(self.user, "list", kind.group, kind.plural, namespace)
        return known

    def reads(self, path: str) -> bool:
        """Whether they may get what stands at a path that is no kind's."""
        return self._reads(self.user, path)

    def look_again(self) -> None:
        """Rights come and go: what was found out is asked anew."""
        self._seen.clear()
        self.looks += 1
