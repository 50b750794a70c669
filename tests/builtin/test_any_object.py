"""Whatever decodes as a built-in kind is judged and printed, never stumbled over."""

from __future__ import annotations

import random
from copy import deepcopy

import pytest

from homeostat.api.builtin import resources
from homeostat.api.schema import decode_errors
from homeostat.api.table import Printer
from homeostat.model.errors import ApiError

WORDS = (
    "", "a", "A_", "x y", "default", "Always", "RollingUpdate", "Recreate", "ClientIP", "NodePort", "LoadBalancer",
    "ExternalName", "Container", "Pod", "10", "1Gi", "25%", "AAAA", "Indexed", "None", "In", "Exists", "Resource",
    "cpu", "kubernetes.io/tls", "User", "* * * * *", "::1", "1.2.3.4", "2024-01-01T00:00:00Z",
)  # fmt: skip


class Maker:
    """Makes objects of a type at random, by seed; deep down it makes less and less."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def make(self, schema, depth=0):
        pick = self.random.choice
        if schema.int_or_string:
            return pick((0, 1, -1, 80, "25%", "http"))
        if schema.type == "object" or schema.properties:
            chance = 0.75 if depth < 3 else 0.35 if depth < 6 else 0.1
            made = {
                name: self.make(field, depth + 1)
                for name, field in schema.properties.items()
                if self.random.random() < chance
            }
            if schema.additional is not None:
                made.update((pick((*WORDS, "storage")), self.make(schema.additional, depth + 1)) for _ in range(2))
            return made
        if schema.type == "array":
            return [self.make(schema.items, depth + 1) for _ in range(pick((0, 1, 1, 2)))]
        values = {"string": WORDS, "integer": (0, 1, -1, 80, 70000), "boolean": (True, False), "number": (1.5,)}
        return pick(values.get(schema.type, ("1", "500m", 3)))


@pytest.mark.parametrize("seed", range(10))
def test_any_object_is_judged_and_printed(seed):
    maker = Maker(seed)
    judged = 0
    for resource in resources():
        for version in resource.versions.values():
            obj = maker.make(version.schema)
            obj["kind"], obj["apiVersion"] = resource.kind, resource.api_version(version.name)
            obj["metadata"] = {"name": "x", "namespace": "default", "uid": "u"}
            if decode_errors(version.schema, obj)[1]:
                continue
            judged += judge(resource, version, obj)
    assert judged > 0


def judge(resource, version, obj):
    """Takes the object the way of a create and an update; True where nobody refused to decode it."""
    rules = resource.rules
    try:
        stored = version.decode(obj) if version.decode else obj
        old = deepcopy(stored)
        rules.default(stored)
        rules.prepare_create(stored)
        rules.default(old)
        rules.prepare_update(old, stored)
        assert all(str(error) for error in (*rules.validate(stored), *rules.validate_update(old, stored)))
        assert all(isinstance(value, str) for value in rules.fields(stored).values())
        Printer(version.columns).row(version.encode(stored) if version.encode else stored, 0.0)
    except ApiError:
        return False
    return True
