"""Objects that were stored before the server judged them as it does now."""

from __future__ import annotations

from pathlib import Path

import orjson
from tests.conformance.inprocess import inside

from homeostat.store import Put


async def test_what_was_stored_before_it_was_refused_can_be_labelled_and_let_go(tmp_path: Path) -> None:
    pods, key = "/api/v1/namespaces/default/pods", "pods/default/p"
    async with inside(tmp_path) as server:
        body = {"metadata": {"name": "p", "finalizers": ["example.com/f"]}, "spec": {"containers": [{"name": "a", "image": "b"}]}}
        assert (await server.ask("POST", pods, body))[0] == 201
        entry = await server.plane.store.get(key)
        assert entry is not None
        stored = orjson.loads(entry.value)
        stored["spec"]["os"] = {"name": "plan9"}
        await server.plane.store.txn([], [Put(key, orjson.dumps(stored))])

        _, pod = await server.ask("GET", f"{pods}/p")
        pod["metadata"]["labels"] = {"a": "b"}
        status, pod = await server.ask("PUT", f"{pods}/p", pod)
        assert (status, pod["metadata"]["labels"]) == (200, {"a": "b"})
        changed = {**pod, "spec": {**pod["spec"], "activeDeadlineSeconds": 5}}
        assert (await server.ask("PUT", f"{pods}/p", changed))[0] == 422
        assert (await server.ask("DELETE", f"{pods}/p"))[0] == 200
        _, pod = await server.ask("GET", f"{pods}/p")
        pod["metadata"]["finalizers"] = []
        assert (await server.ask("PUT", f"{pods}/p", pod))[0] == 200
        assert (await server.ask("GET", f"{pods}/p"))[0] == 404
