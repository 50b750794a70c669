"""Paths that were understood before: what is recalled of one is what would be found out."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from homeostat.api import builtin, route
from homeostat.api.auth import User
from homeostat.api.registry import Registry
from homeostat.api.request import Request, split_path
from homeostat.model.errors import ApiError

ANYBODY = User("anybody")
SEGMENTS = [
    "api", "apis", "v1", "apps", "namespaces", "default", "pods", "deployments", "nodes", "status", "finalize", "scale", "log",
    "watch", "a", "a.b", "..", ".", "%61", "a%2fb", "", "x y",
]  # fmt: skip
COLLECTIONS = [
    "/api/v1/pods", "/api/v1/namespaces", "/api/v1/nodes", "/api/v1/namespaces/default/pods", "/api/v1/namespaces/a/pods",
    "/apis/apps/v1/deployments", "/apis/apps/v1/namespaces/default/deployments",
]  # fmt: skip
methods = st.sampled_from(["GET", "POST", "PUT", "PATCH", "DELETE"])
anywhere = st.lists(st.sampled_from(SEGMENTS), max_size=7).map(lambda parts: "/" + "/".join(parts))
nearby = st.builds(
    lambda collection, parts: "/".join([collection, *parts]), st.sampled_from(COLLECTIONS), st.lists(st.sampled_from(SEGMENTS), max_size=3)
)


def meaning(call: Any) -> Any:
    return (call.verb, call.resource.qualified, call.codec.api_version, call.namespace, call.name, call.subresource)


def understood(registry: Registry, request: Request) -> Any:
    try:
        segments = split_path(request.path)
        if len(segments) <= 2 or segments[0] not in ("api", "apis"):
            return None
        return route.resolve(registry, request, segments, ANYBODY)
    except ApiError:
        return None


@pytest.fixture(scope="module")
def registry() -> Registry:
    known = Registry(builtin.resources())
    for path in COLLECTIONS:
        understood(known, Request("GET", path, []))
    return known


@given(method=methods, path=st.one_of(anywhere, nearby), query=st.sampled_from(["", "?watch=1"]))
@example(method="GET", path="/api/v1/pods//api", query="")
@example(method="GET", path="/api/v1/nodes//status", query="")
@example(method="GET", path="/api/v1/nodes/", query="")
@settings(max_examples=1000)
def test_what_is_recalled_is_what_would_be_found_out(registry: Registry, method: str, path: str, query: str) -> None:
    request = Request(method, path + query, [])
    recalled, found = route.recall(registry, request, ANYBODY), understood(registry, request)
    if recalled is not None:
        assert found is not None
        assert meaning(recalled) == meaning(found)


@pytest.mark.parametrize("tail", ["", "/a", "/a/status"])
def test_what_was_asked_for_before_is_recalled(registry: Registry, tail: str) -> None:
    recalled = route.recall(registry, Request("GET", "/api/v1/namespaces/default/pods" + tail, []), ANYBODY)
    assert recalled is not None
    assert (recalled.namespace, recalled.resource.plural) == ("default", "pods")


def test_a_kind_that_is_gone_is_not_recalled(registry: Registry) -> None:
    own = Registry(builtin.resources())
    understood(own, Request("GET", "/api/v1/nodes", []))
    assert route.recall(own, Request("GET", "/api/v1/nodes/a", []), ANYBODY) is not None
    own.remove("nodes")
    assert route.recall(own, Request("GET", "/api/v1/nodes/a", []), ANYBODY) is None
