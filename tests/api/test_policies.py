"""Admission policies as the server keeps them: evidence in the audit log, what nothing bound costs, and what is not asked about."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.conftest import Api, eventually
from tests.conformance.inprocess import Inside, inside

REGISTRY = "/apis/admissionregistration.k8s.io/v1"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
ANYTHING = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"]}


def policy(*validations: dict[str, Any], **spec: Any) -> dict[str, Any]:
    rules = {"resourceRules": [{**ANYTHING, "apiGroups": [""], "resources": ["configmaps"]}]}
    return {"metadata": {"name": "law"}, "spec": {"matchConstraints": rules, "validations": list(validations), **spec}}


def binding(*actions: str, name: str = "law", **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"policyName": "law", "validationActions": list(actions), **spec}}


def test_the_audit_log_has_the_evidence(api: Api, data: Path, namespace: str) -> None:
    only_here = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}
    demands = [{"expression": "object.metadata.name != 'bad'", "message": "no"}, {"expression": "size(object.data) < 2", "message": "many"}]
    notes = [{"key": "size", "valueExpression": "string(size(object.data))"}, {"key": "none", "valueExpression": "''"}]
    api.post(f"{REGISTRY}/validatingadmissionpolicies", policy(*demands, auditAnnotations=notes)).expect(201)
    for name, actions in (("deny", ("Deny",)), ("audit", ("Audit",))):
        body = binding(*actions, name=name, matchResources=only_here)
        api.post(f"{REGISTRY}/validatingadmissionpolicybindings", body).expect(201)
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    api.post(path, {"metadata": {"name": "good"}, "data": {"a": "secret"}}).expect(201)
    api.post(path, {"metadata": {"name": "bad"}, "data": {"a": "secret", "b": ""}}).expect(422)
    for name in ("deny", "audit"):
        api.delete(f"{REGISTRY}/validatingadmissionpolicybindings/{name}").expect(200)
    api.delete(f"{REGISTRY}/validatingadmissionpolicies/law").expect(200)

    def logged() -> list[dict[str, Any]]:
        log = data / "audit.log"
        lines = map(json.loads, log.read_text().splitlines() if log.exists() else ())
        return [line for line in lines if line.get("object", {}).get("namespace") == namespace]

    eventually(lambda: len(logged()) == 2, "the log")
    good, bad = logged()
    assert (good["code"], good["annotations"]) == (201, {"law/size": "1"})
    assert (bad["code"], bad["annotations"]["law/size"]) == (422, "2")
    assert bad["reason"] == "ValidatingAdmissionPolicy 'law' with binding 'deny' denied request"
    failures = json.loads(bad["annotations"]["validation.policy.admission.k8s.io/validation_failure"])
    common = {"policy": "law", "binding": "audit", "validationActions": ["Audit"]}
    assert failures == [{"message": "no", "expressionIndex": 0, **common}, {"message": "many", "expressionIndex": 1, **common}]
    assert "secret" not in json.dumps([good, bad])


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[Inside]:
    async with inside(tmp_path) as running:
        yield running


async def bound(plane: Inside, body: dict[str, Any], *actions: str) -> None:
    assert (await plane.ask("POST", f"{REGISTRY}/validatingadmissionpolicies", body))[0] == 201
    assert (await plane.ask("POST", f"{REGISTRY}/validatingadmissionpolicybindings", binding(*actions or ("Deny",))))[0] == 201


async def test_writes_are_asked_about_while_something_is_bound(plane: Inside) -> None:
    policies = plane.plane.policies
    assert not policies.active
    await plane.ask("POST", f"{REGISTRY}/validatingadmissionpolicies", policy({"expression": "false"}))
    assert not policies.active
    await plane.ask("POST", f"{REGISTRY}/validatingadmissionpolicybindings", binding("Deny"))
    assert policies.active
    assert (await plane.ask("POST", CONFIG_MAPS, {"metadata": {"name": "a"}}))[0] == 422
    await plane.ask("DELETE", f"{REGISTRY}/validatingadmissionpolicies/law")
    assert not policies.active
    assert (await plane.ask("POST", CONFIG_MAPS, {"metadata": {"name": "a"}}))[0] == 201


async def test_policies_hold_after_a_restart(tmp_path: Path) -> None:
    async with inside(tmp_path) as first:
        await bound(first, policy({"expression": "object.metadata.name != 'a'"}))
    async with inside(tmp_path) as second:
        assert (await second.ask("POST", CONFIG_MAPS, {"metadata": {"name": "a"}}))[0] == 422
        assert (await second.ask("POST", CONFIG_MAPS, {"metadata": {"name": "b"}}))[0] == 201


async def test_an_expression_that_costs_too_much_is_ended(plane: Inside) -> None:
    costly = "object.data.all(a, object.data.all(b, object.data.all(c, object.data.all(d, a + b + c + d != ''))))"
    await bound(plane, policy({"expression": costly}))
    status, body = await plane.ask("POST", CONFIG_MAPS, {"metadata": {"name": "a"}, "data": {f"key-{i}": "" for i in range(60)}})
    assert status == 422
    assert "running out of cost budget" in body["message"]


async def test_the_controllers_of_the_server_are_not_asked_about(plane: Inside) -> None:
    assert (await plane.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "room"}}))[0] == 201
    assert (await plane.ask("POST", "/api/v1/namespaces/room/configmaps", {"metadata": {"name": "a"}}))[0] == 201
    await bound(plane, policy({"expression": "request.operation != 'DELETE'"}))
    assert (await plane.ask("DELETE", "/api/v1/namespaces/room/configmaps/a"))[0] == 422
    assert (await plane.ask("DELETE", "/api/v1/namespaces/room"))[0] == 200
    for _ in range(200):
        if (await plane.ask("GET", "/api/v1/namespaces/room"))[0] == 404:
            break
        await asyncio.sleep(0.01)
    assert (await plane.ask("GET", "/api/v1/namespaces/room"))[0] == 404
