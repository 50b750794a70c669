"""Cells that several kinds show in `kubectl get`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from homeostat.api.resource import Column, Object, at
from homeostat.api.table import NONE
from homeostat.model.selectors import selector_text


def count_at(*path: str) -> Callable[[Object], int]:
    """A number, zero where it is not there yet."""
    return lambda obj: at(obj, *path) or 0


def text_at(*path: str, missing: str = "") -> Callable[[Object], str]:
    """A text, or what stands for a missing one."""
    return lambda obj: at(obj, *path) or missing


def pairs(labels: Mapping[str, str] | None) -> str:
    """Labels in order of their names, `<none>` where there are none."""
    return ",".join(f"{k}={v}" for k, v in sorted(labels.items())) if labels else NONE


def few(items: list[str], most: int, separator: str = ",") -> str:
    """The first few of many, and how many more there are."""
    if not items:
        return NONE
    if len(items) <= most:
        return separator.join(items)
    return f"{separator.join(items[:most])} + {len(items) - most} more..."


def container_columns(*template: str) -> tuple[Column, Column]:
    """Names and images of the containers in the pod template at a path; shown with `-o wide`."""

    def of(field: str) -> Callable[[Object], str]:
        return lambda obj: ",".join(c.get(field) or "" for c in at(obj, *template, "spec", "containers") or ())

    return (
        Column("Containers", of("name"), priority=1, description="The containers of the template."),
        Column("Images", of("image"), priority=1, description="The images they run."),
    )


def selector_column(*path: str) -> Column:
    """The selector at a path, plain or structured; shown with `-o wide`."""
    return Column(
        "Selector", lambda obj: selector_text(at(obj, *path)) or NONE, priority=1, description="What belongs to it."
    )
