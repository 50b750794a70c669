"""The kind `Sync`, as a loop is given it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from homeostat.loop.compose import Composer, Foreseen
from homeostat.model.kinds import Column
from homeostat.sources.controller import SyncController
from homeostat.sources.fetching import Bounds
from homeostat.sources.foreseeing import foresee
from homeostat.sources.kinds import GROUP, VERSION, SyncSpec
from homeostat.sources.synced import Synced

_COLUMNS = (
    Column("Source", ".spec.source.name"),
    Column("Path", ".spec.path"),
    Column("Commit", ".status.commit"),
)


class Sync(Composer[SyncSpec], group=GROUP, version=VERSION, columns=_COLUMNS, host=True):
    """A directory of a Git repository, kept applied.

    It is written with the rights of the loop, in every namespace and beyond: who declares one needs the verb `operate` on it.
    `directory` holds copies of repositories. `allowed` are the hosts and directories that they may come from; None: all.
    `webhooks` is the host and the port to listen on for pushes; None: nowhere.
    """

    controller: ClassVar[type[Any] | None] = SyncController

    def __init__(
        self, directory: Path, allowed: tuple[str, ...] | None = None, webhooks: tuple[str, int] | None = None
    ) -> None:
        self.directory = directory
        self.bounds = Bounds(allowed)
        self.webhooks = webhooks
        self.running: Synced | None = None
        """While a loop runs it: what it knows."""

    def compose(self, spec: SyncSpec, parent: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
        raise NotImplementedError("what a Sync declares comes out of a commit: see Synced")

    async def foresee(self, parent: Mapping[str, Any], *, gone: bool) -> Foreseen | None:
        return None if self.running is None else await foresee(self.running, self.manager, parent, gone=gone)
