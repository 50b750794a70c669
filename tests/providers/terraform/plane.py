"""A control plane in a process of its own, to be killed: `python -m tests.providers.terraform.plane DIRECTORY SPEC`."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from tests.providers.bench import running

from homeostat.providers.terraform import TerraformModule


async def main(directory: Path, spec: str) -> None:
    async with running(directory, lambda: TerraformModule(directory / "modules")) as bench:
        await bench.declare("web", json.loads(spec))
        await asyncio.Event().wait()


asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
