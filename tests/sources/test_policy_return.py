"""A GuardPolicy that says Return, over a Sync: the Sync goes back to its last good commit, and nobody writes over what it applies."""

from __future__ import annotations

from tests.sources.conftest import Bench
from tests.sources.repo import config_map


async def test_a_commit_that_fails_under_such_a_policy_is_taken_back_by_its_sync_alone(bench: Bench) -> None:
    policy = {
        "metadata": {"name": "maps"},
        "spec": {
            "fleet": {"kinds": ["configmaps"]},
            "mode": "Enforce",
            "canary": {"verifyWithin": "1s", "onFailure": "Return"},
            "health": [{"name": "sane", "expression": "state.manifest.data.value != 'bad'", "message": "it is bad"}],
        },
    }
    policies = bench.client.kind("homeostat.dev/v1alpha1", "GuardPolicy")
    await policies.create(policy)
    good = bench.repo.commit({"a.yaml": config_map("a"), "b.yaml": config_map("b")}, "good")
    await bench.begin()
    await bench.push({"a.yaml": config_map("a", "bad"), "b.yaml": config_map("b", "bad")}, "bad")
    sync = await bench.until(lambda obj: "hold" in obj["spec"])
    assert sync["spec"]["hold"]["commit"] == good
    await bench.at(good)
    assert await bench.values() == {"a": "1", "b": "1"}
    assert not ((await policies.get("maps")).get("status") or {}).get("returns")
    maps = await bench.client.kind("v1", "ConfigMap", namespace="default").list()
    managers = {entry["manager"] for one in maps for entry in one["metadata"].get("managedFields") or ()}
    assert "homeostat-return" not in managers
