"""Leases are renewed every few seconds, for ever: that is not worth a line each. Everything else about them is."""

from __future__ import annotations

import json
from pathlib import Path

from tests.conformance.conftest import Api, eventually


def test_a_mere_renewal_is_not_in_the_audit_log_and_a_change_of_hands_is(api: Api, namespace: str, data: Path) -> None:
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    spec = {"holderIdentity": "one", "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:00.000000Z"}
    lease = {"kind": "Lease", "apiVersion": "coordination.k8s.io/v1", "metadata": {"name": "a"}, "spec": spec}
    lease = api.post(leases, lease).expect(201)
    lease = api.put(f"{leases}/a", {**lease, "spec": {**spec, "renewTime": "2026-01-01T00:00:05.000000Z"}}).expect(200)
    api.patch(f"{leases}/a", {"spec": {"renewTime": "2026-01-01T00:00:10.000000Z"}}).expect(200)
    api.patch(f"{leases}/a", {"spec": {"holderIdentity": "two"}}).expect(200)
    api.delete(f"{leases}/a").expect(200)

    def logged() -> list[str]:
        log = data / "audit.log"
        lines = map(json.loads, log.read_text().splitlines() if log.exists() else ())
        return [line["verb"] for line in lines if line.get("object", {}).get("namespace") == namespace]

    eventually(lambda: "delete" in logged(), "the last of it is written down")
    assert logged() == ["create", "patch", "delete"]
