"""What an `Accept` header says."""

from __future__ import annotations

from homeostat.model.protocol import JSON, YAML_TYPES

JSON_TYPES = frozenset({JSON, "application/*", "*/*"})
"""Names by which JSON may be asked for."""


def choices(accept: str) -> list[tuple[str, dict[str, str]]]:
    """The media types that are named, each with its options, the most wanted first."""
    found = []
    for choice in accept.split(","):
        media, _, rest = choice.partition(";")
        options = dict(p.strip().partition("=")[::2] for p in rest.split(";")) if rest else {}
        found.append((media.strip(), options))
    return sorted(found, key=_unwanted) if ";q=" in accept.replace(" ", "") else found


def _unwanted(choice: tuple[str, dict[str, str]]) -> float:
    try:
        return -float(choice[1].get("q", 1))
    except ValueError:
        return 0.0


def prefers_yaml(accept: str) -> bool:
    """Of JSON and YAML, YAML is wanted more, or named first."""
    for media, _ in choices(accept):
        if media in YAML_TYPES:
            return True
        if media in ("*/*", JSON):
            return False
    return False
