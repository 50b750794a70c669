"""JSONPaths of printer columns, scale and selectable fields."""

from __future__ import annotations

from typing import Any

import pytest

from homeostat.api.schema import BadPath, compile_path

OBJ: dict[str, Any] = {
    "metadata": {"name": "w", "labels": {"app.io/name": "x", "plain": "p"}},
    "spec": {"replicas": 3, "ports": [{"port": 1, "name": "a"}, {"port": 2, "name": "b"}, {"port": 3, "name": "c"}]},
    "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Old", "status": "False"}], "empty": None},
}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (".spec.replicas", [3]),
        ("{.spec.replicas}", [3]),
        ("$.spec.replicas", [3]),
        (".spec.missing.deeper", []),
        (".metadata.name.deeper", []),
        (".status.empty", [None]),
        (".metadata.labels['app.io/name']", ["x"]),
        ('.metadata.labels["app.io/name"]', ["x"]),
        (r".metadata.labels.app\.io/name", ["x"]),
        (".metadata.labels['plain','app.io/name']", ["p", "x"]),
        (".spec.ports[0].port", [1]),
        (".spec.ports[-1].port", [3]),
        (".spec.ports[9].port", []),
        (".spec.ports[0,2].port", [1, 3]),
        (".spec.ports[1:].port", [2, 3]),
        (".spec.ports[:2].port", [1, 2]),
        (".spec.ports[::2].port", [1, 3]),
        (".spec.ports[*].name", ["a", "b", "c"]),
        (".spec.ports.*.name", ["a", "b", "c"]),
        ("..port", [1, 2, 3]),
        ('.status.conditions[?(@.type=="Ready")].status', ["True"]),
        (".status.conditions[?(@.type == 'Ready')].status", ["True"]),
        (".status.conditions[?(@.type!='Ready')].status", ["False"]),
        (".spec.ports[?(@.port>1)].name", ["b", "c"]),
        (".spec.ports[?(@.port<=1)].name", ["a"]),
        (".spec.ports[?(@.missing)].name", []),
        (".spec.ports[?(@.name > 1)].name", []),
        (".", [OBJ]),
    ],
)
def test_a_path_finds(path: str, expected: list[Any]) -> None:
    assert compile_path(path)(OBJ) == expected


@pytest.mark.parametrize(
    "path", [".a[", ".a[b]", ".a[?(@.x==zz)]", ".a b", ".a[?x]", ".x" * 100 + "[0]", "a..[", ".['a"]
)
def test_what_is_no_path_is_refused(path: str) -> None:
    with pytest.raises(BadPath):
        compile_path(path)


@pytest.mark.parametrize("value", [None, 1, "x", [], [[]], {}])
def test_a_path_over_anything_gives_a_list(value: Any) -> None:
    for path in (".a.b", ".a[0]", "..x", ".a[?(@.b==1)]", ".*"):
        assert isinstance(compile_path(path)(value), list)
