"""How figures went, on the disk: so that a day is a day, also where the server was started again in it.

One line a sample, with those figures that are others than before: `{"at": 1763236612.0, "policies": {"files": [12, 3, 0, 0, 0]}}`.
A file that is damaged, or cannot be written, costs the past and nothing else.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson

from homeostat.web.series import EVERY_SECONDS, KEPT, Series

log = logging.getLogger("homeostat.web")

KEPT_SECONDS = KEPT * EVERY_SECONDS
ROOM = 2 * KEPT
"""Lines after which those that are too old are taken out of the file."""

Figures = Mapping[str, float]


class Family:
    """Series of the same figures, by name."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        self.series: dict[str, Series] = {}
        self._last: dict[str, tuple[float, ...]] = {}

    def add(self, at: float, found: Mapping[str, Figures]) -> dict[str, Any]:
        """A sample of each; those that are not in it are gone. Gives what changed, for the record: null is gone."""
        changed: dict[str, Any] = {}
        for name, figures in found.items():
            values = tuple(figures.get(one, 0.0) for one in self.names)
            self.series.setdefault(name, Series(self.names)).add(at, figures)
            if repr(self._last.get(name)) != repr(values):  # by their words: what is not known (nan) is not another each time
                self._last[name] = values
                changed[name] = values
        for name in self._last.keys() - found.keys():
            del self._last[name]
            self.series.pop(name, None)
            changed[name] = None
        return changed

    def take(self, at: float, changed: Mapping[str, Any]) -> None:
        """The other way round: a line of the record."""
        now: dict[str, Any] = {**self._last, **changed}
        self.add(at, {name: dict(zip(self.names, map(_figure, values), strict=True)) for name, values in now.items() if values is not None})


def _figure(value: float | None) -> float:
    return math.nan if value is None else float(value)


class Record:
    """Families in one file. Without a path nothing is kept."""

    def __init__(self, path: Path | None, families: Mapping[str, Family]) -> None:
        self._path, self._families = path, families
        self._lines = 0
        self._trouble = ""  # why it could not be kept last

    def restore(self, now: float) -> None:
        """Reads what was kept of the last day. Call it once, before the first `add`."""
        for line in self._read():
            at = line.pop("at")
            for name, changed in line.items():
                if name in self._families:
                    self._families[name].take(at, changed)
            if line and at < now - KEPT_SECONDS:
                self._lines = ROOM  # older than a day: it goes out of the file with the next
        for family in self._families.values():
            for series in family.series.values():
                series.forget(now - KEPT_SECONDS)

    def _read(self) -> Iterator[dict[str, Any]]:
        try:
            text = b"" if self._path is None else self._path.read_bytes()
        except FileNotFoundError:
            return
        except OSError as error:
            log.warning("how figures went before cannot be read: %s", error)
            return
        for line in text.splitlines():
            self._lines += 1
            try:
                found = orjson.loads(line)
                float(found["at"])
            except (orjson.JSONDecodeError, KeyError, TypeError, ValueError):
                continue  # cut off by a crash
            yield found

    def add(self, at: float, found: Mapping[str, Mapping[str, Figures]]) -> None:
        """A sample of every family that is in it."""
        changed = {name: self._families[name].add(at, figures) for name, figures in found.items()}
        line = orjson.dumps({"at": at} | changed) + b"\n"
        if self._path is None:
            return
        try:
            if self._lines >= ROOM:
                self._shorten(at)
            with open(self._path, "ab", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
                file.write(line)
            self._lines += 1
            self._say("")
        except OSError as error:
            self._say(str(error))

    def _say(self, trouble: str) -> None:
        """Logs what is new, and when it is over; the same again and again says nothing."""
        if trouble != self._trouble:
            self._trouble = trouble
            log.warning("%s", f"how figures go cannot be kept: {trouble}" if trouble else "how figures go is kept again")

    def _shorten(self, now: float) -> None:
        """Writes the file anew without what is too old. What it says of the first moment is all that was so then."""
        assert self._path is not None
        self._lines = 0
        state: dict[str, dict[str, Any]] = {name: {} for name in self._families}
        kept: list[bytes] = []
        for line in self._read():
            at = line.pop("at")
            for name, some in line.items():
                state.setdefault(name, {}).update(some)
            if at >= now - KEPT_SECONDS:
                kept.append(orjson.dumps({"at": at} | (line if kept else {name: some for name, some in state.items() if some})))
        scratch = self._path.with_suffix(".new")
        scratch.write_bytes(b"".join(line + b"\n" for line in kept))
        os.replace(scratch, self._path)
        self._lines = len(kept)
