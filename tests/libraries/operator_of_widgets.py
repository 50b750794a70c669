"""A small kopf operator: keeps a config map for each widget, counts time, and tidies up in the world when one goes."""

from __future__ import annotations

import os
from typing import Any

import kopf

GROUP = os.environ["WIDGET_GROUP"]
LEDGER = os.environ["LEDGER"]


def note(line: str) -> None:
    """What the operator did to the world outside, for the test to read."""
    with open(LEDGER, "a") as ledger:
        ledger.write(line + "\n")


@kopf.on.startup()
def settle(settings: kopf.OperatorSettings, **_: Any) -> None:
    settings.posting.enabled = True
    settings.persistence.finalizer = f"{GROUP}/tidy"
    settings.execution.max_workers = 2


@kopf.on.create(GROUP, "v1", "widgets")
def create(spec: kopf.Spec, name: str, patch: kopf.Patch, body: kopf.Body, **_: Any) -> dict[str, Any]:
    note(f"create {name} {spec['size']}")
    kopf.info(body, reason="Made", message=f"A widget of size {spec['size']}.")
    patch.status["phase"] = "Ready"
    return {"size": spec["size"]}


@kopf.on.update(GROUP, "v1", "widgets", field="spec.size")
def resize(old: int, new: int, name: str, patch: kopf.Patch, **_: Any) -> None:
    note(f"resize {name} {old} {new}")
    patch.status["phase"] = "Resized"


@kopf.on.delete(GROUP, "v1", "widgets")
def delete(name: str, **_: Any) -> None:
    note(f"delete {name}")


@kopf.timer(GROUP, "v1", "widgets", interval=0.3)
def tick(name: str, patch: kopf.Patch, status: kopf.Status, **_: Any) -> None:
    if status.get("ticks", 0) < 2:
        patch.status["ticks"] = status.get("ticks", 0) + 1


@kopf.on.create("", "v1", "configmaps", labels={"watched": "yes"})
def watched(name: str, **_: Any) -> None:
    note(f"configmap {name}")
