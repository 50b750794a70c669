"""Terraform as it is installed, with a provider of ours that keeps real files, and a loop over it."""

from __future__ import annotations

import json
import platform
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.providers.bench import Bench, running
from tests.providers.tools import PATIENCE, put_on_path, python_with_tf

from homeostat.providers.terraform import TerraformModule

SHELF = 'terraform {\n  required_providers {\n    shelf = { source = "homeostat.test/local/shelf" }\n  }\n}\n'
MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}


def file(name: str, folder: Path, content: str = '"one"') -> str:
    """A file as a resource."""
    return f'resource "shelf_file" "{name}" {{\n  path    = "{folder / name}"\n  content = {content}\n}}\n'


def data(count: int, value: str = "one", **more: str) -> str:
    """So many things that are only in Terraform's state: quick, where nothing hangs on what they are."""
    fields = {"input": f'"{value}"', **more}
    body = "".join(f"  {name} = {text}\n" for name, text in fields.items())
    return "".join(f'resource "terraform_data" "d{n}" {{\n{body}}}\n' for n in range(count))


def in_state(tmp_path: Path, name: str = "web") -> dict[str, Any]:
    """The inputs of the things that a local state has."""
    state = json.loads((tmp_path / "modules/default" / name / "work/terraform.tfstate").read_text())
    return {one["name"]: i["attributes"]["input"]["value"] for one in state["resources"] for i in one["instances"]}


def plain(*parts: str) -> dict[str, object]:
    """A module without our provider."""
    return {"source": {"files": {"main.tf": "".join(parts)}}, "interval": "1h"}


def module(*parts: str) -> dict[str, object]:
    return {"source": {"files": {"main.tf": SHELF + "".join(parts)}}, "interval": "1h"}


async def look(bench: Bench) -> None:
    """As when the interval is over: everything is planned anew."""
    assert isinstance(bench.provider, TerraformModule)
    bench.provider._known.clear()
    await bench.whole_pass()


@pytest.fixture(scope="session")
def plugins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A mirror of Terraform providers on disk, with ours in it; gives a configuration of Terraform that uses it alone."""
    root = tmp_path_factory.mktemp("plugins")
    folder = root / f"homeostat.test/local/shelf/1.0.0/linux_{MACHINES.get(platform.machine(), platform.machine())}"
    folder.mkdir(parents=True)
    program = folder / "terraform-provider-shelf_v1.0.0"
    program.write_text(f'#!/bin/sh\nexport HOME={root}  # it keeps its certificate there\nexec {python_with_tf()} {Path(__file__).with_name("shelf.py")} "$@"\n')
    program.chmod(0o755)
    found = root / "terraformrc"
    found.write_text(f'provider_installation {{\n  filesystem_mirror {{\n    path = "{root}"\n  }}\n}}\n')
    return found


@pytest.fixture
def terraform(monkeypatch: pytest.MonkeyPatch, plugins: Path) -> None:
    put_on_path(monkeypatch, "terraform", "tofu")
    monkeypatch.setenv("TF_CLI_CONFIG_FILE", str(plugins))


@pytest.fixture
def things(tmp_path: Path) -> Path:
    """Where modules put their files."""
    folder = tmp_path / "things"
    folder.mkdir()
    return folder


@pytest.fixture
async def bench(tmp_path: Path, terraform: None) -> AsyncIterator[Bench]:
    async with running(tmp_path, lambda: TerraformModule(tmp_path / "modules")) as bench:
        bench.patience = PATIENCE
        yield bench
