"""What somebody does about a change that went wrong: look how far it is, approve it, or take it back."""

from __future__ import annotations

import json
import re

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from .conftest import House, Watched

KIND = "files.files.homeostat.dev"
NAMES = [f"page{number:02}" for number in range(12)]


@pytest.fixture
def settled(house: House) -> House:
    """Twelve files that are as declared."""
    written(house, "as it was")
    return house


def written(house: House, content: str) -> None:
    """Declares all of them so, approved as a whole, and waits until they are."""
    house.declare("--approve", "--reason", "it is meant", **dict.fromkeys(NAMES, content))
    house.until(lambda: all((house.room / name).read_text() == content for name in NAMES))


def halted(house: House, content: str) -> None:
    """Declares all of them so, and the guards find that too much: frozen meanwhile, so that they see all of it at once."""
    house.run("freeze", KIND, "--reason", "a change is being declared")
    house.declare(**dict.fromkeys(NAMES, content))
    house.until(lambda: json.loads(house.run("get", "guardpolicy", KIND, "-o", "json"))["status"]["drifted"] == len(NAMES))
    house.run("unfreeze", KIND)


def standing(house: House, name: str) -> str:
    obj = json.loads(house.run("get", "file", name, "-o", "json"))
    return str(obj["metadata"]["annotations"]["homeostat.dev/change-set"])


def test_a_halted_change_is_seen_whole_and_approved_in_the_page(page: Page, settled: House) -> None:
    house = settled
    halted(house, "all at once")
    page.get_by_role("link", name="Change sets").click()
    row = page.get_by_role("row").filter(has_text="12 held")
    expect(row).to_contain_text("mass-drift")
    row.get_by_role("link").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(standing(house, NAMES[0]))
    reach = page.get_by_role("region", name="Still open in")
    expect(reach).to_contain_text("0 to add, 12 to change, 0 to destroy")
    expect(reach).to_contain_text(re.compile(r"12 of 1\d resources"))
    expect(page.get_by_text('~ spec.content: "as it was" → "all at once"').first).to_be_visible()

    reach.get_by_role("button", name="See exactly what would be done…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("listitem")).to_have_count(12)
    dialog.get_by_label("Reason").fill("it is meant")
    dialog.get_by_role("button", name="Approve exactly this").click()
    expect(page.get_by_text("12 converged")).to_be_visible()
    house.until(lambda: all((house.room / name).read_text() == "all at once" for name in NAMES))


def test_a_resource_is_rolled_back_after_the_plan_was_seen(page: Page, settled: House) -> None:
    house, name = settled, "notice"  # what was rolled back holds against who applies something else
    house.declare(**{name: "as it was"})
    house.declare(**{name: "a mistake"})
    house.until(lambda: (house.room / name).read_text() == "a mistake")
    page.goto(f"{house.url}/ui/resources/{KIND}/default/{name}")
    history = page.get_by_role("region", name="History")
    expect(history.get_by_text('~ spec.content: "as it was" → "a mistake"')).to_be_visible()
    history.get_by_role("button", name="Roll back to this…").first.click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("0 to add, 1 to change, 0 to destroy")
    expect(dialog).to_contain_text('~ spec.content: "a mistake" → "as it was"')
    assert (house.room / name).read_text() == "a mistake"
    dialog.get_by_role("button", name="Roll back exactly this").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("rollback-")
    expect(page.get_by_text("1 converged")).to_be_visible()
    assert (house.room / name).read_text() == "as it was"


def test_who_did_it_is_found_by_name_and_the_search_has_an_address(page: Page, settled: House) -> None:
    page.get_by_role("link", name="Events").click()
    page.get_by_role("link", name="Who did what").click()
    page.get_by_role("searchbox").fill(NAMES[3])
    row = page.get_by_role("row").filter(has_text=NAMES[3]).first
    expect(row).to_contain_text("admin")
    expect(row).to_contain_text("patch files")
    assert page.url.endswith(f"/ui/events/audit?q={NAMES[3]}")
    page.reload()
    expect(page.get_by_role("row").filter(has_text=NAMES[3]).first).to_be_visible()


def test_another_limit_is_tried_against_what_happened(page: Page, settled: House) -> None:
    page.goto(f"{settled.url}/ui/guards/{KIND}")
    whatif = page.get_by_role("region", name="What if the limits were…")
    expect(whatif).to_contain_text("sample")
    whatif.get_by_label("Mass drift").fill("lots")
    expect(whatif).to_contain_text("a count such as 3")
    whatif.get_by_label("Mass drift").fill("100%")
    expect(whatif).to_contain_text("would not have tripped")


def test_who_may_only_look_sees_it_all_and_is_offered_no_way_to_change_it(browser: Browser, settled: House) -> None:
    house = settled
    halted(house, "too much")
    rules = [
        {"apiGroups": ["files.homeostat.dev", "homeostat.dev", "apiextensions.k8s.io"], "resources": ["files", "guardpolicies", "customresourcedefinitions"], "verbs": ["get", "list", "watch"]},
        {"nonResourceURLs": ["/homeostat/changesets", "/homeostat/changesets/*"], "verbs": ["get"]},
    ]
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "looker"}, "rules": rules}
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "eve-looks"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "looker"},
        "subjects": [{"kind": "User", "name": "eve", "apiGroup": "rbac.authorization.k8s.io"}],
    }
    manifest = house.data.parent / "roles.json"
    manifest.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [role, binding]}))
    house.run("apply", "-f", manifest, "--yes")
    context = browser.new_context(ignore_https_errors=True, viewport={"width": 1280, "height": 800})
    page = context.new_page()
    watched = Watched(page, house)
    page.goto(f"{house.url}/ui/")
    page.get_by_label("Or paste a token").fill(house.token("eve"))
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_text("Halted")).to_be_visible()
    expect(page.get_by_role("link", name="See the plan and decide")).to_be_visible()

    page.goto(f"{house.url}/ui/changesets/{standing(house, NAMES[0])}")
    expect(page.get_by_text("12 held")).to_be_visible()
    expect(page.get_by_text("halted by mass-drift")).to_be_visible()
    nothing_to_press(page)
    page.goto(f"{house.url}/ui/resources/{KIND}/default/{NAMES[0]}")
    expect(page.get_by_role("region", name="History").get_by_text('"as it was" → "too much"')).to_be_visible()
    nothing_to_press(page)
    page.goto(f"{house.url}/ui/events/audit")
    expect(page.get_by_role("alert")).to_contain_text("/homeostat/audit")
    context.close()
    assert watched.troubles == []


def nothing_to_press(page: Page) -> None:
    """But for the colours, signing out, and looking."""
    page.wait_for_load_state("load")
    for word in ("Roll back", "Approve", "See exactly", "Freeze", "Let it act", "Only observe"):
        expect(page.get_by_role("button", name=word)).to_have_count(0)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everybody_can_use_it(browser: Browser, house: House, scheme: str) -> None:
    house.declare(sign="this way")
    context = browser.new_context(ignore_https_errors=True, color_scheme=scheme, viewport={"width": 1280, "height": 800}, bypass_csp=True)  # type: ignore[arg-type]
    page = context.new_page()
    page.goto(house.link())
    expect(page.get_by_role("status")).to_have_text("live")
    page.goto(f"{house.url}/ui/changesets/{standing(house, 'sign')}")
    expect(page.get_by_text("What it changed")).to_be_visible()
    page.get_by_role("button", name="Roll back all of it…").click()
    expect(page.get_by_role("button", name="Roll back exactly this")).to_be_visible()
    found = Axe().run(page)
    serious = [one for one in found.response["violations"] if one["impact"] in ("serious", "critical")]
    assert not serious, [(one["id"], [node["html"] for node in one["nodes"]]) for one in serious]
    page.keyboard.press("Escape")
    page.set_viewport_size({"width": 390, "height": 780})
    wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert wide <= 1, f"it is {wide} pixels too wide for a phone"
    context.close()
