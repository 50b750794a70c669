"""A control plane in a test: what operator authors get."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from homeostat import ABSENT, Absent, Diff, Provider, Spec, current
from homeostat.model.conditions import condition_is
from homeostat.model.errors import ApiError
from homeostat.testing import TestPlane, control_plane

WIDGETS = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Widget, plural: widgets}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {size: {type: integer}}}}}}
---
apiVersion: example.com/v1
kind: Widget
metadata: {name: lamp, namespace: default}
spec: {size: 3}
"""


async def test_it_is_used_from_the_event_loop_of_the_test(homeostat: TestPlane) -> None:
    async with homeostat.client() as client:
        made = await client.kind("v1", "ConfigMap").create({"metadata": {"name": "a"}})
        assert made["metadata"]["uid"]


def test_it_is_used_without_an_event_loop(homeostat: TestPlane) -> None:
    definition, lamp = homeostat.apply(WIDGETS)
    assert definition["kind"] == "CustomResourceDefinition"
    assert homeostat.get("example.com/v1", "Widget", "lamp") == lamp
    with pytest.raises(ApiError, match="not found"):
        homeostat.get("example.com/v1", "Widget", "none")


@pytest.mark.parametrize("document", ["kind: ConfigMap", "[{apiVersion: v1, kind: ConfigMap}]", "hello"])
def test_a_document_that_is_no_object_is_named(homeostat: TestPlane, document: str) -> None:
    with pytest.raises(ValueError, match="document 2 is no object: it needs apiVersion and kind"):
        homeostat.apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}\n---\n" + document)
    with pytest.raises(ApiError, match="not found"):
        homeostat.get("v1", "ConfigMap", "a")


def test_it_waits_for_what_should_become(homeostat: TestPlane) -> None:
    homeostat.apply(WIDGETS)
    later = threading.Timer(
        0.05, homeostat.apply, ["{apiVersion: example.com/v1, kind: Widget, metadata: {name: lamp}, spec: {size: 5}}"]
    )
    later.start()
    found = homeostat.wait_for("example.com/v1", "Widget", "lamp", lambda o: o is not None and o["spec"]["size"] == 5)
    later.join()
    assert found is not None
    with pytest.raises(TimeoutError, match="Widget none is not as awaited"):
        homeostat.wait_for("example.com/v1", "Widget", "none", timeout=0.05)


def test_each_test_has_its_own(homeostat: TestPlane, homeostat_session: TestPlane) -> None:
    assert homeostat.url != homeostat_session.url
    with pytest.raises(ApiError):
        homeostat.get("v1", "ConfigMap", "a")


def test_only_the_bearer_of_the_kubeconfig_gets_in(homeostat: TestPlane) -> None:
    import ssl

    context = ssl.create_default_context(cafile=str(homeostat.kubeconfig.parent / "pki" / "ca.crt"))
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"{homeostat.url}/api", context=context)
    assert refused.value.code == 401
    refused.value.close()


def test_nothing_is_left_of_it() -> None:
    before = set(threading.enumerate())
    with control_plane() as plane:
        data = plane.kubeconfig.parent
        watching = threading.Thread(target=asyncio.run, args=(_watch(plane),))
        watching.start()
        plane.apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: default}}")
        watching.join()
    assert not data.exists()
    assert set(threading.enumerate()) == before


async def _watch(plane: TestPlane) -> None:
    async with plane.client() as client, client.kind("v1", "ConfigMap").watch() as events:
        async for event in events:
            if event.object["metadata"]["name"] == "a":
                return


def test_loading_the_plugin_costs_nothing() -> None:
    code = "import sys, homeostat.testing.plugin; print([m for m in sys.modules if m.startswith('homeostat.api')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_example_operator_works(homeostat: TestPlane, tmp_path: Path) -> None:
    from kopf.testing import KopfRunner

    operator = tmp_path / "greeter.py"
    operator.write_text(
        "import kopf\n"
        "@kopf.on.create('example.com', 'v1', 'widgets')\n"
        "def greet(name, patch, **_):\n"
        "    patch.metadata.annotations['greeting'] = f'hello {name}'\n"
    )
    homeostat.apply(WIDGETS)
    with homeostat.as_default(), KopfRunner(["run", "--all-namespaces", "--standalone", str(operator)], timeout=30):
        found = homeostat.wait_for(
            "example.com/v1",
            "Widget",
            "lamp",
            lambda o: o is not None and o["metadata"].get("annotations", {}).get("greeting") == "hello lamp",
            timeout=20,
        )
    assert found is not None


class ToySpec(Spec):
    colour: str


class ToyState(Spec):
    colour: str


class Toy(Provider[ToySpec, ToyState], group="toys.example.com"):
    """A toy, which is an entry in a dictionary."""

    def __init__(self) -> None:
        self.box: dict[str, str] = {}

    async def observe(self, spec: ToySpec) -> ToyState | Absent:
        found = self.box.get(current().ref.name)
        return ABSENT if found is None else ToyState(colour=found)

    async def apply(self, spec: ToySpec, diff: Diff) -> None:
        self.box[current().ref.name] = spec.colour

    async def delete(self, spec: ToySpec) -> None:
        self.box.pop(current().ref.name, None)


BALL = "{apiVersion: toys.example.com/v1, kind: Toy, metadata: {name: ball, namespace: default}, spec: {colour: red}}"


def ready(toy: dict[str, Any] | None) -> bool:
    return toy is not None and condition_is(toy, "Ready")


def test_a_provider_is_run_by_the_real_loop_while_the_with_lasts(homeostat: TestPlane) -> None:
    toys = Toy()
    with homeostat.loop(toys):
        homeostat.apply(BALL)
        homeostat.wait_for("toys.example.com/v1", "Toy", "ball", ready)
        assert toys.box == {"ball": "red"}
    homeostat.apply(BALL.replace("red", "blue"))
    assert toys.box == {"ball": "red"}
    with homeostat.loop(toys):
        homeostat.wait_for("toys.example.com/v1", "Toy", "ball", lambda toy: toys.box == {"ball": "blue"} and ready(toy))


def test_a_loop_can_be_had_that_only_observes(homeostat: TestPlane) -> None:
    toys = Toy()
    with homeostat.loop(toys, enforce=False):
        homeostat.apply(BALL)
        homeostat.wait_for("toys.example.com/v1", "Toy", "ball", lambda toy: "observe-only" in str(toy))
    assert toys.box == {}
