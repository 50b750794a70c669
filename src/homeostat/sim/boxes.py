"""A box: a composer, whose labels are its children. They are objects of the API server itself, which others may write to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from homeostat.loop.compose import WAVE, Composer
from homeostat.model.kinds import Spec
from homeostat.sim.world import GROUP


class BoxSpec(Spec):
    """The labels of a box, by a name of their own. Two at a time are put on, in the order of their names."""

    labels: dict[str, str] = {}


class Boxes(Composer[BoxSpec], group=GROUP, kind="Box", plural="boxes"):
    """A box with labels: a ConfigMap each."""

    def compose(self, spec: BoxSpec, parent: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
        for place, (name, text) in enumerate(sorted(spec.labels.items())):
            yield {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": label(parent["metadata"]["name"], name), "annotations": {WAVE: str(place // 2)}},
                "data": {"text": text},
            }


def label(box: str, name: str) -> str:
    """What the object is called that is a label of a box."""
    return f"{box}-{name}"


def wanted_labels(box: Mapping[str, Any]) -> dict[str, str]:
    """The text of each label that a box should have, by the name of its object."""
    labels = (box.get("spec") or {}).get("labels") or {}
    return {label(box["metadata"]["name"], name): text for name, text in labels.items()}
