"""A disk that is full is no reason to lose a node: what runs goes on, what cannot be begun says why, and it is begun when there is room."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Any

import pytest
from tests.gpu.agent.world import COUNTER, World, alive, place, python, report_of, until

from homeostat.gpu.agent import origin
from homeostat.providers.process import record

LEASE = ("coordination.k8s.io/v1", "Lease")


class Disk:
    full = False

    def wrap(self, write: Callable[..., Any]) -> Callable[..., Any]:
        def tried(*arguments: Any) -> Any:
            if self.full:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return write(*arguments)

        return tried


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    made = Disk()
    for room, name in ((origin, "_put"), (origin, "save"), (record, "save")):
        monkeypatch.setattr(room, name, made.wrap(getattr(room, name)))
    return made


async def test_while_the_disk_is_full_the_node_is_heard_of_and_what_runs_goes_on(world: World, disk: Disk) -> None:
    leases = world.client.kind(*LEASE, namespace="kube-system")
    async with world.agent():
        await world.submit("old", python(COUNTER, world.folder / "n"))
        pid = (await world.reported("old", "Running"))["pid"]
        disk.full = True
        renewed = (await leases.get("n1"))["spec"]["renewTime"]
        await world.submit("new", python(COUNTER, world.folder / "m"), places=[place(gpus=[1])])
        assert "No space left on device" in (await world.reported("new", "Unknown"))["reason"]
        await until(leases, "n1", lambda lease: lease["spec"]["renewTime"] != renewed)
        assert not world.keeping["n1"].done()
        assert alive(pid)
        told = await until(world.nodes, "n1", lambda node: node.get("status", {}).get("trouble"))
        assert "No space left on device" in told["status"]["trouble"]
        disk.full = False
        await world.reported("new", "Running")
        await until(world.nodes, "n1", lambda node: not node["status"]["trouble"])


async def test_what_cannot_be_suspended_for_a_full_disk_is_told_and_goes_on_when_it_is_called_off(world: World, disk: Disk) -> None:
    async with world.agent():
        await world.submit("job", python(COUNTER, world.folder / "n"))
        pid = (await world.reported("job", "Running"))["pid"]
        disk.full = True
        await world.govern("job", phase="Suspending")
        found = await world.until("job", lambda obj: report_of(obj).get("refusals", 0) >= 2)
        assert "No space left on device" in report_of(found)["reason"]
        await world.govern("job", phase="Starting")
        found = await world.until("job", lambda obj: not report_of(obj).get("refusals"))
        assert (report_of(found)["state"], report_of(found)["pid"], report_of(found)["reason"]) == ("Running", pid, "")


async def test_what_could_not_be_begun_for_a_full_disk_is_told_to_be_off_when_it_is_to_go_elsewhere(world: World, disk: Disk) -> None:
    """Else nobody would begin it elsewhere before the disk has room again."""
    async with world.agent():
        disk.full = True
        uid = await world.submit("job", python(COUNTER, world.folder / "n"))
        await world.reported("job", "Unknown")
        await world.govern("job", phase="Suspending")
        assert not (await world.reported("job", "Suspended")).get("pid")
        assert not world.pids(uid)
