"""The public surface is a decision, kept in one place."""

from __future__ import annotations

import subprocess
import sys

import homeostat


def test_the_sdk_exports_exactly_this() -> None:
    assert homeostat.__all__ == [
        "ABSENT",
        "Absent",
        "ApiError",
        "Atomic",
        "Change",
        "Client",
        "Column",
        "Composer",
        "Diff",
        "ListMap",
        "ListSet",
        "MapAtomic",
        "Provider",
        "Ref",
        "Rule",
        "Sensitive",
        "Spec",
        "Unknown",
        "__version__",
        "current",
    ]


def test_every_exported_name_is_there() -> None:
    for name in homeostat.__all__:
        assert getattr(homeostat, name) is not None


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = "import sys, homeostat; print([m for m in ('msgspec', 'aiohttp', 'apsw', 'click') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
