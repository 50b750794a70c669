"""The pictures of the documentation, taken anew where `HOMEOSTAT_PICTURES=1` asks for it: every view, in light and dark."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from .conftest import House
from .png import few_colours

pytestmark = pytest.mark.skipif(os.environ.get("HOMEOSTAT_PICTURES") != "1", reason="HOMEOSTAT_PICTURES=1 takes the pictures of the documentation")

IMAGES = Path(__file__).parents[3] / "docs/images"
KIND = "files.files.homeostat.dev"
SITES = [f"site-{number:02}" for number in range(1, 13)]
SIZE = {"width": 1120, "height": 700}


@pytest.fixture(scope="module")
def house() -> Iterator[House]:
    """A demo of GPUs, and a fleet of files in which a change was halted."""
    with tempfile.TemporaryDirectory(prefix="shop-") as folder:  # its path is in the pictures
        house = House(Path(folder), "--demo", "--enforce")
        house.declare(motd="Welcome", **dict.fromkeys(SITES, "listen 443;"))
        house.declare("--approve", "--reason", "TLS everywhere", **dict.fromkeys(SITES, "listen 443 ssl;"))
        house.until(lambda: all((house.room / name).read_text() == "listen 443 ssl;" for name in SITES))
        house.declare(motd="Welcome to the shop")
        house.until(lambda: (house.room / "motd").read_text() == "Welcome to the shop")
        house.run("freeze", KIND, "--reason", "a change is being declared")
        house.declare(**dict.fromkeys(SITES, "listen 80;"))
        house.until(lambda: json.loads(house.run("get", "guardpolicy", KIND, "-o", "json"))["status"]["drifted"] == len(SITES))
        house.run("unfreeze", KIND)
        yield house
        house.stop()


def views(house: House) -> dict[str, tuple[str, str]]:
    """By the name of the picture: the address, and what stands in the view once it is whole."""
    halted = json.loads(house.run("get", "file", SITES[0], "-o", "json"))["metadata"]["annotations"]["homeostat.dev/change-set"]
    return {
        "fleet": ("", "Halted"),
        "kind": (f"kinds/{KIND}", "13 resources"),
        "resource": (f"resources/{KIND}/default/motd", "From revision"),
        "changesets": ("changesets", "12 held"),
        "changeset": (f"changesets/{halted}", "halted by mass-drift"),
        "guards": ("guards", KIND),
        "policy": (f"guards/{KIND}", "halted by mass-drift"),
        "gpu": ("gpu", "14 of 14"),
        "events": ("events", "File"),
        "audit": ("events/audit", "admin"),
    }


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_view_has_its_picture(browser: Browser, house: House, scheme: str) -> None:
    IMAGES.mkdir(exist_ok=True)
    context = browser.new_context(ignore_https_errors=True, color_scheme=scheme, viewport=SIZE)  # type: ignore[arg-type]
    page = context.new_page()
    page.goto(house.link())
    expect(page.get_by_role("status")).to_have_text("live")
    for name, (path, text) in views(house).items():
        page.goto(f"{house.url}/ui/{path}")
        expect(page.locator("#view")).to_contain_text(text)
        taken(page, IMAGES / f"{name}-{scheme}.png")
    page.goto(f"{house.url}/ui/resources/{KIND}/default/motd")
    page.get_by_role("button", name="Roll back to this…").first.click()
    expect(page.get_by_role("button", name="Roll back exactly this")).to_be_visible()
    taken(page, IMAGES / f"rollback-{scheme}.png")
    context.close()


def taken(page: Page, file: Path) -> None:
    page.wait_for_timeout(400)  # graphs are drawn
    file.write_bytes(few_colours(page.screenshot(animations="disabled")))
    assert 2_000 < file.stat().st_size < 100_000
