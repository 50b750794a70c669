"""An operator written with kopf, as a process of its own: it watches, patches, posts events and holds finalizers."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conformance.conftest import Api, Kind, eventually

OPERATOR = Path(__file__).with_name("operator_of_widgets.py")


class Operator:
    """The operator at work in one namespace."""

    def __init__(self, api: Api, kind: Kind, namespace: str, ledger: Path) -> None:
        self.api, self.kind, self.namespace, self.ledger = api, kind, namespace, ledger

    def did(self, line: str) -> None:
        """Waits until the operator has done something to the world."""
        eventually(lambda: line in self.ledger.read_text().splitlines(), f"the operator to {line}")

    def widget(self, name: str) -> dict[str, Any]:
        body: dict[str, Any] = self.api.get(self.kind.path(self.namespace, name)).expect(200)
        return body

    def create(self, name: str, size: int) -> None:
        self.api.post(self.kind.path(self.namespace), self.kind.new(name, spec={"size": size})).expect(201)


@pytest.fixture
def operator(api: Api, kubeconfig: Path, widgets: Kind, namespace: str, tmp_path: Path) -> Iterator[Operator]:
    ledger = tmp_path / "ledger"
    ledger.touch()
    command = [sys.executable, "-m", "kopf", "run", "--standalone", "--namespace", namespace, str(OPERATOR)]
    env = {**os.environ, "KUBECONFIG": str(kubeconfig), "WIDGET_GROUP": widgets.group, "LEDGER": str(ledger)}
    log = tmp_path / "log"
    with log.open("w") as output, subprocess.Popen(command, env=env, stdout=output, stderr=output) as process:
        try:
            yield Operator(api, widgets, namespace, ledger)
        finally:
            process.terminate()
            process.wait(20)
    said = log.read_text()
    assert "Traceback" not in said, said
    assert process.returncode == 0, said


def test_the_life_of_a_widget(operator: Operator) -> None:
    operator.create("one", 3)
    operator.did("create one 3")
    made = eventually(lambda: (w := operator.widget("one")).get("status", {}).get("phase") and w, "the status")
    assert made["status"]["phase"] == "Ready"
    assert made["status"]["create"] == {"size": 3}
    assert made["metadata"]["finalizers"] == [f"{operator.kind.group}/tidy"]
    assert made["metadata"]["generation"] == 1
    eventually(lambda: operator.widget("one")["status"].get("ticks") == 2, "the timer")

    path = operator.kind.path(operator.namespace, "one")
    operator.api.patch(path, {"spec": {"size": 5}}).expect(200)
    operator.did("resize one 3 5")
    eventually(lambda: operator.widget("one")["status"]["phase"] == "Resized", "the new status")

    listed = eventually(lambda: events_about(operator, "one"), "an event")
    assert "A widget of size 3." in listed

    operator.api.delete(path).expect(200)
    operator.did("delete one")
    eventually(lambda: operator.api.get(path).status == 404, "the widget to go")


def events_about(operator: Operator, name: str) -> list[str]:
    path = f"/api/v1/namespaces/{operator.namespace}/events"
    listed = operator.api.get(path, fieldSelector=f"involvedObject.name={name}").expect(200)
    return [event["message"] for event in listed["items"] if event["reason"] == "Made"]


def test_what_was_there_before_the_operator_is_found(operator: Operator) -> None:
    """Creations that happen while the operator starts are neither lost nor seen twice."""
    for n in range(5):
        operator.create(f"w{n}", n + 1)
    for n in range(5):
        operator.did(f"create w{n} {n + 1}")
    lines = operator.ledger.read_text().splitlines()
    assert len(lines) == len(set(lines))
    for n in range(5):
        operator.api.delete(operator.kind.path(operator.namespace, f"w{n}"))
        operator.did(f"delete w{n}")


def test_built_in_kinds_are_handled_by_label(operator: Operator) -> None:
    path = f"/api/v1/namespaces/{operator.namespace}/configmaps"
    for name, labels in (("ignored", {}), ("seen", {"watched": "yes"})):
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": labels}}
        operator.api.post(path, body).expect(201)
    operator.did("configmap seen")
    assert "configmap ignored" not in operator.ledger.read_text()
