"""Control planes that are there to be killed. Run as a program: it has everything imported, and forks one for each line it reads.

`hand DIR` works the provider by hand; `engine DIR` runs API server, engine and provider. Both do what `DIR/wish` says, a spec in JSON,
and write to `DIR/done` what they last brought about.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from tests.providers.bench import condition
from tests.providers.process.world import Hand, spec_of

from homeostat.api.local import local_client
from homeostat.api.server import Listen, Server
from homeostat.guards import Mode
from homeostat.guards.gate import PolicyGate
from homeostat.loop.engine import Engine
from homeostat.providers.process import Process

PAUSE = 0.005


def wish(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "wish").read_text()))


def done(folder: Path, spec: dict[str, Any]) -> None:
    (folder / "done.new").write_text(json.dumps(spec))
    (folder / "done.new").rename(folder / "done")


async def by_hand(folder: Path) -> None:
    hand = Hand(Process(folder / "state", allowed=True))
    while True:
        spec = wish(folder)
        if await hand.diff(spec_of(**spec)):
            await hand.apply(spec_of(**spec))
        elif wish(folder) == spec:
            done(folder, spec)
        await asyncio.sleep(PAUSE)


async def by_engine(folder: Path) -> None:
    server = Server(folder / "data", Listen("127.0.0.1", 0))
    await server.start()
    client = local_client(server.plane, "loop")
    provider = Process(folder / "state", allowed=True)
    engine = Engine(client, [provider], PolicyGate(mode=Mode.ENFORCE), settle=0.005, workers=4)
    await engine.start()
    kind = client.kind(provider.info.api_version, provider.info.kind, namespace="default")
    declared: dict[str, Any] = {}
    while True:
        spec = wish(folder)
        if spec != declared:
            obj = {"metadata": {"name": "web"}, "spec": {**spec, "minReadySeconds": 0.05, "gracefulSeconds": 2}}
            await kind.apply(obj, field_manager="test", force=True)
            declared = spec
        web = await kind.get("web")
        if condition(web, "Ready") == "True" and web["status"].get("ready") == spec["replicas"]:
            done(folder, spec)
        await asyncio.sleep(PAUSE)


def main() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that are killed
    for line in sys.stdin:
        how, folder = line.split()
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.close(0)
            os.open(os.devnull, os.O_RDONLY)
            asyncio.run({"hand": by_hand, "engine": by_engine}[how](Path(folder)))
        print(pid, flush=True)


if __name__ == "__main__":
    main()
