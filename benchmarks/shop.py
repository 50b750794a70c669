"""The controller under test: a shop is one ConfigMap and a status. `homeostat up --provider benchmarks/shop.py --enforce`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from homeostat import Composer, Spec


class ShopSpec(Spec):
    till: str = "open"


class Shop(Composer[ShopSpec], group="bench.example.com"):
    """A shop, which is a ConfigMap."""

    def compose(self, spec: ShopSpec, parent: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
        name = parent["metadata"]["name"]
        yield {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"till": spec.till}}
