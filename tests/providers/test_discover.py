"""What is there and that nobody declared: processes, objects, and things behind REST APIs. Files are in the tests of the command line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.providers.shelf import shelf

from homeostat.loop.fleet import Ref
from homeostat.loop.provider import Declared, Provider
from homeostat.model.kinds import decode
from homeostat.providers.file import File
from homeostat.providers.http import HttpResource
from homeostat.providers.kubernetes import KubernetesObject
from homeostat.providers.process import Process
from homeostat.providers.process.record import MARK
from homeostat.testing import TestPlane


def declared(provider: Provider[Any, Any], name: str, spec: dict[str, Any], identity: str = "", uid: str = "u1") -> Declared[Any]:
    ref = Ref(provider.info.name, "default", name, uid)
    return Declared(ref, decode(provider.info.spec, spec), identity)


async def test_a_process_that_lost_its_declaration_is_found(tmp_path: Path) -> None:
    sleep = "print('up', flush=True); import time; time.sleep(60)"
    running = []
    try:
        for uid in ("declared", "forgotten"):
            log = tmp_path / uid / "0.log"
            log.parent.mkdir()
            with log.open("w") as out:
                environment = {**os.environ, MARK: f"{uid}/0/abc"}
                running.append(subprocess.Popen([sys.executable, "-c", sleep], stdout=out, stderr=out, env=environment))
        stray = running[1]
        provider = Process(tmp_path)
        found = await provider.discover([declared(provider, "web", {"command": ["/bin/true"]}, uid="declared")])
        assert [(one.name, one.what) for one in found] == [
            (f"pid {stray.pid}", "replica 0 of a Process that had uid forgotten")
        ]
        assert stray.poll() is None, "it is only told of"
        await provider.close()
    finally:
        for process in running:
            process.kill()
            process.wait()


async def test_things_beside_those_declared_are_found_in_the_lists_that_are_named() -> None:
    async with shelf() as things:
        things.things = {"t1": {"name": "lamp"}, "t2": {"name": "chair"}, "t3": {"name": "table"}}
        provider = HttpResource()
        find = {"url": f"{things.url}/things", "items": "items"}
        create = {"method": "POST", "url": f"{things.url}/things"}

        def one(name: str, identity: str) -> Declared[Any]:
            spec = {"url": f"{things.url}/things/{{id}}", "create": create, "body": {"name": name}}
            return declared(provider, name, {**spec, "find": {**find, "match": {"name": name}}}, identity)

        ours = [one("lamp", f"{things.url}/things/t1"), one("chair", "")]
        found = await provider.discover(ours)
        assert [one.name for one in found] == [f"{things.url}/things/t3"]
        assert things.writes() == 0
        things.refuses["GET"] = (500, "broken")
        (said,) = await provider.discover(ours)
        assert "cannot be told" in said.what, "a failed read is not an empty list"
        await provider.close()


async def test_objects_beside_those_declared_are_found(homeostat: TestPlane) -> None:
    homeostat.apply(
        "\n---\n".join(
            f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, namespace: default}}" for name in ("ours", "theirs")
        )
    )
    async with homeostat.client() as client:
        provider = KubernetesObject()
        await provider.open(client)
        obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "ours"}}
        found = await provider.discover([declared(provider, "ours", {"object": obj})])
        assert "ConfigMap default/theirs" in [one.name for one in found]
        assert "ConfigMap default/ours" not in [one.name for one in found]
        await provider.close()


async def test_a_directory_in_which_something_is_declared_is_looked_into(tmp_path: Path) -> None:
    for name in ("site/ours", "site/stray", "other/a", "other/b", "whole/listed", "whole/more"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    provider = File([tmp_path])
    found = await provider.discover(
        [
            declared(provider, "ours", {"path": str(tmp_path / "site/ours"), "content": "x"}),
            declared(provider, "whole", {"path": str(tmp_path / "whole"), "kind": "directory", "files": {"listed": {"content": "x"}}}),
            declared(provider, "elsewhere", {"path": "/somewhere/else", "content": "x"}),
        ]
    )
    told = {one.name.removeprefix(f"{tmp_path}/"): one.what for one in found}
    assert told == {"other/": "a directory of 2 files", "site/stray": "a file", "whole/more": "a file"}
