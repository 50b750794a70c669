"""Limit ranges: what containers get that say nothing, and what is too small or too large for a namespace."""

from __future__ import annotations

from typing import Any

import pytest

from .conftest import Api, Object, eventually


@pytest.fixture(autouse=True)
def whole_cluster(api: Api) -> None:
    if not api.serves("v1", "limitranges"):
        pytest.skip("an extension server has no limit ranges")


class Room:
    """One namespace with a limit range."""

    def __init__(self, api: Api, namespace: str) -> None:
        self.api, self.path = api, f"/api/v1/namespaces/{namespace}"
        api.post(f"{self.path}/serviceaccounts", {"metadata": {"name": "default"}})

    def limit(self, **limit: Any) -> None:
        self.api.post(f"{self.path}/limitranges", {"metadata": {"name": "range"}, "spec": {"limits": [limit]}}).expect(201)

    def pod(self, name: str = "p", *more: Object, **resources: Any) -> Any:
        containers = [{"name": "main", "image": "i", "resources": resources}, *more]
        return self.api.post(f"{self.path}/pods", {"metadata": {"name": name}, "spec": {"containers": containers}})

    def known(self) -> None:
        """Waits until the server knows the range: a cluster learns of it a little later."""
        dry = {"metadata": {"name": "dry"}, "spec": {"containers": [{"name": "main", "image": "i"}]}}

        def judged() -> bool:
            answer = self.api.post(f"{self.path}/pods", dry, dryRun="All")
            return answer.status == 403 or bool(answer.expect(201)["spec"]["containers"][0]["resources"])

        eventually(judged, "the range to be known")

    def refusal(self, *more: Object, **resources: Any) -> str:
        return str(self.pod("p", *more, **resources).expect(403)["message"]).removeprefix('pods "p" is forbidden: ')


@pytest.fixture
def room(api: Api, namespace: str) -> Room:
    return Room(api, namespace)


def test_a_container_that_says_nothing_gets_what_is_usual(room: Room) -> None:
    room.limit(type="Container", default={"cpu": "1", "memory": "1Gi"}, defaultRequest={"cpu": "500m"})
    room.known()
    pod = room.pod("p", {"name": "other", "image": "i", "resources": {"limits": {"cpu": "2"}}}).expect(201)
    main, other = (container["resources"] for container in pod["spec"]["containers"])
    assert main == {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m", "memory": "1Gi"}}
    assert other == {"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "2", "memory": "1Gi"}}
    assert pod["metadata"]["annotations"]["kubernetes.io/limit-ranger"] == (
        "LimitRanger plugin set: cpu, memory request for container main; cpu, memory limit for container main; "
        "memory request for container other; memory limit for container other"
    )
    assert pod["status"]["qosClass"] == "Burstable"
    [entry] = pod["metadata"]["managedFields"]
    owned = entry["fieldsV1"]["f:spec"]["f:containers"]['k:{"name":"main"}']["f:resources"]
    assert owned == {}  # nobody owns what the server added


@pytest.mark.parametrize(
    ("limit", "resources", "why"),
    [
        (
            {"max": {"memory": "1Gi"}},
            {"limits": {"memory": "2Gi"}},
            "maximum memory usage per Container is 1Gi, but limit is 2Gi",
        ),
        (
            {"min": {"cpu": "100m"}},
            {"requests": {"cpu": "50m"}},
            "minimum cpu usage per Container is 100m, but request is 50m",
        ),
        (
            {"maxLimitRequestRatio": {"cpu": "2"}},
            {"requests": {"cpu": "100m"}, "limits": {"cpu": "300m"}},
            "cpu max limit to request ratio per Container is 2, but provided ratio is 3.000000",
        ),
        (
            {"maxLimitRequestRatio": {"cpu": "2"}},
            {},
            "cpu max limit to request ratio per Container is 2, but no request is specified or request is 0",
        ),
    ],
)
def test_a_container_is_neither_too_small_nor_too_large(room: Room, limit: Object, resources: Object, why: str) -> None:
    room.limit(type="Container", **limit)
    room.known()
    assert room.refusal(**resources) == why


def test_the_containers_of_a_pod_count_together(room: Room) -> None:
    room.limit(type="Pod", max={"cpu": "1"}, min={"memory": "1Mi"})
    room.known()
    assert room.refusal() == (
        "[minimum memory usage per Pod is 1Mi.  No request is specified, maximum cpu usage per Pod is 1.  "
        "No limit is specified]"
    )
    half = {"limits": {"cpu": "600m", "memory": "1Mi"}}
    second = {"name": "second", "image": "i", "resources": half}
    assert room.refusal(second, **half) == "maximum cpu usage per Pod is 1, but limit is 1200m"
    room.pod("p", **half).expect(201)


def test_a_claim_is_within_the_limits_when_it_is_made(room: Room) -> None:
    room.limit(type="PersistentVolumeClaim", min={"storage": "1Gi"}, max={"storage": "2Gi"})

    def claim(name: str, size: str) -> Any:
        spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
        return room.api.post(f"{room.path}/persistentvolumeclaims", {"metadata": {"name": name}, "spec": spec})

    eventually(lambda: claim("small", "1Mi").status == 403, "the range to be known")
    refusal = claim("large", "3Gi").expect(403)
    assert refusal["message"].endswith(
        "maximum storage usage per PersistentVolumeClaim is 2Gi, but request is 3Gi"
    )
    claim("right", "2Gi").expect(201)
    path = f"{room.path}/persistentvolumeclaims/right"
    api, ranges = room.api, f"{room.path}/limitranges/range"
    api.patch(path, {"metadata": {"finalizers": ["example.com/f"]}}).expect(200)
    limits = [{"type": "PersistentVolumeClaim", "max": {"storage": "1Gi"}}]
    api.patch(ranges, {"spec": {"limits": limits}}).expect(200)
    eventually(lambda: api.patch(path, {"metadata": {"labels": {"a": "b"}}}).status == 403, "the range to be known")
    api.delete(path).expect(200)
    api.patch(path, {"metadata": {"finalizers": None}}).expect(200)  # what goes is not held by its size


def test_a_pod_is_not_resized_out_of_its_limits(room: Room) -> None:
    if not room.api.serves("v1", "pods/resize"):
        pytest.skip("this server does not resize pods")
    room.limit(type="Container", max={"cpu": "1"})
    room.known()
    room.pod("p", requests={"cpu": "100m"}, limits={"cpu": "500m"}).expect(201)
    spec = {"containers": [{"name": "main", "resources": {"limits": {"cpu": "2"}}}]}
    refusal = room.api.patch(f"{room.path}/pods/p/resize", {"spec": spec}, "application/strategic-merge-patch+json")
    assert refusal.expect(403)["message"].endswith("maximum cpu usage per Container is 1, but limit is 2")
