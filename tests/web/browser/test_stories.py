"""What somebody on call does."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Page, Route, expect

from .conftest import House, Watched

KIND = "files.files.homeostat.dev"
VIEWS = ["", f"kinds/{KIND}", f"resources/{KIND}/default/motd", "changesets", f"guards/{KIND}", "gpu", "events", "events/audit"]


def test_drift_appears_by_itself_is_frozen_seen_and_repaired(page: Page, house: House) -> None:
    house.declare(motd="hello", issue="welcome")
    tile = page.get_by_role("article").filter(has_text="File")
    expect(tile).to_contain_text("2 converged")

    page.get_by_role("button", name="Freeze everything…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Reason").fill("something is odd")
    dialog.get_by_role("button", name="Freeze", exact=True).click()
    expect(tile).to_contain_text("frozen by admin: something is odd")

    (house.room / "motd").write_text("robbed")  # detection goes on
    expect(tile).to_contain_text("1 held")
    tile.get_by_role("link", name="1 held").click()
    row = page.get_by_role("row").filter(has_text="default/motd")
    expect(row).to_contain_text("held by freeze")
    row.get_by_role("link").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("motd")
    expect(page.get_by_role("row").filter(has_text="digest")).to_contain_text("drift")
    assert (house.room / "motd").read_text() == "robbed"

    page.get_by_role("link", name="Fleet").click()
    page.get_by_role("button", name="Unfreeze…").click()
    expect(dialog).to_contain_text("something is odd (admin)")
    expect(dialog).to_contain_text("1 at once")  # who lets it go sees first what would be done
    expect(dialog.get_by_role("link", name="File default/motd")).to_be_visible()
    dialog.get_by_role("button", name="Unfreeze", exact=True).click()
    expect(tile).to_contain_text("2 converged")
    house.until(lambda: (house.room / "motd").read_text() == "hello")


@pytest.fixture
def onlooker(tmp_path: Path) -> Iterator[House]:
    """A house whose loop only observes."""
    house = House(tmp_path)
    yield house
    house.stop()


def test_what_was_never_seen_or_applied_is_not_shown_as_if_it_were(context: BrowserContext, onlooker: House) -> None:
    house = onlooker
    (house.room / "kept").write_text("somebody's")
    files = {"outside": "/nowhere/outside", "kept": str(house.room / "kept")}
    items = [{"apiVersion": "files.homeostat.dev/v1", "kind": "File", "metadata": {"name": name, "namespace": "default"}, "spec": {"path": path, "content": "ours"}} for name, path in files.items()]
    manifest = house.data.parent / "unseen.json"
    manifest.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    house.run("apply", "-f", manifest, "--yes")
    page = context.new_page()
    page.goto(house.link())
    expect(page.get_by_role("status")).to_have_text("live")

    page.goto(f"{house.url}/ui/resources/{KIND}/default/outside")
    expect(page.locator("#view")).to_contain_text("/nowhere/outside is not allowed")
    expect(page.get_by_role("row", name="content").get_by_role("cell")).to_have_text(['"ours"', "", "(unknown)"])

    page.goto(f"{house.url}/ui/resources/{KIND}/default/kept")
    expect(page.get_by_role("row", name="digest").get_by_role("cell")).to_have_text([re.compile("sha256"), "", re.compile("sha256")])
    expect(page.get_by_role("row", name="content").get_by_role("cell")).to_have_text(['"ours"', "", ""])


def test_a_freeze_stands_though_somebody_writes_the_policy_in_the_same_moment(context: BrowserContext, house: House) -> None:
    house.declare(motd="hello")
    page, first = context.new_page(), list[Route]()
    page.goto(house.link())
    expect(page.get_by_role("status")).to_have_text("live")

    def between(route: Route) -> None:
        if route.request.method == "PATCH" and not first:
            first.append(route)
            house.run("freeze", "files", "--reason", "I was first", "--for", "1h")
        route.continue_()

    page.route("**/guardpolicies/files.files.homeostat.dev", between)
    page.goto(f"{house.url}/ui/guards/{KIND}")
    page.get_by_role("button", name="Freeze…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Reason").fill("me too")
    dialog.get_by_role("button", name="Freeze", exact=True).click()
    expect(dialog).to_be_hidden()
    freezes = json.loads(house.run("get", "guardpolicies", KIND, "-o", "json"))["spec"]["freezes"]
    assert first
    assert [one["reason"] for one in freezes] == ["I was first", "me too"]

    expect(page.locator("main")).to_contain_text("me too")  # what is lifted is what the page shows
    page.get_by_role("button", name="Unfreeze…").click()
    expect(dialog).to_contain_text("all is as declared")
    dialog.get_by_role("button", name="Unfreeze", exact=True).click()
    expect(dialog).to_be_hidden()
    assert not json.loads(house.run("get", "guardpolicies", KIND, "-o", "json"))["spec"].get("freezes")


def test_what_is_frozen_in_part_can_be_frozen_as_a_whole(page: Page, house: House) -> None:
    house.declare(motd="hello", issue="welcome")
    house.run("freeze", "file/motd", "--reason", "the auditors are here")
    tile = page.get_by_role("article").filter(has_text="File")
    expect(tile).to_contain_text("acts")
    expect(tile).to_contain_text("motd frozen by")
    expect(page.locator(".figure").filter(has_text="frozen policies")).to_contain_text("0")
    expect(page.get_by_role("button", name="Freeze everything…")).to_be_visible()

    page.goto(f"{house.url}/ui/guards/{KIND}")
    expect(page.locator(".now")).to_contain_text("motd frozen by")
    page.get_by_role("button", name="Freeze…", exact=True).click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Reason").fill("something is odd")
    dialog.get_by_role("button", name="Freeze", exact=True).click()
    expect(page.locator(".now")).to_contain_text("frozen by admin: something is odd")
    expect(page.get_by_role("button", name="Freeze…", exact=True)).to_have_count(0)

    page.get_by_role("button", name="Unfreeze…").click()
    expect(dialog).to_contain_text("motd the auditors are here")
    expect(dialog).to_contain_text(f"{KIND}: something is odd (admin)")
    house.run("unfreeze", KIND)


def test_every_view_has_an_address_of_its_own(page: Page, house: House) -> None:
    house.declare(motd="hello")
    page.goto(f"{house.url}/ui/kinds/{KIND}?q=mot")
    expect(page.get_by_role("searchbox")).to_have_value("mot")
    expect(page.get_by_role("row").filter(has_text="default/motd")).to_be_visible()
    page.goto(f"{house.url}/ui/resources/{KIND}/default/motd")
    expect(page.get_by_role("heading", level=1)).to_have_text("motd")
    page.goto(f"{house.url}/ui/gpu")
    expect(page.get_by_role("heading", name="No GPUs yet")).to_be_visible()
    expect(page.get_by_text("homeostat up --demo")).to_be_visible()
    page.goto(f"{house.url}/ui/nowhere")
    expect(page.get_by_text("There is nothing at this address")).to_be_visible()


def test_the_keyboard_goes_everywhere_and_comes_back(page: Page, house: House) -> None:
    for letters, place in (("gc", "changesets"), ("gg", "guards"), ("gu", "gpu"), ("ge", "events"), ("gf", "")):
        for letter in letters:
            page.keyboard.press(letter)
        expect(page).to_have_url(f"{house.url}/ui/{place}")
    page.keyboard.press("c")  # the g before it is used up
    freeze = page.get_by_role("button", name="Freeze everything…")
    freeze.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_label("Reason")).to_be_focused()
    page.get_by_role("button", name="Cancel").focus()
    page.keyboard.press("g")
    page.keyboard.press("c")  # a question is open, and is not run away from
    expect(page).to_have_url(f"{house.url}/ui/")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(freeze).to_be_focused()


def test_a_used_link_says_so_and_a_token_signs_in(browser: Browser, house: House) -> None:
    context = browser.new_context(ignore_https_errors=True)
    link = house.link()
    first = context.new_page()
    first.goto(link)
    expect(first.get_by_text("admin")).to_be_visible()
    second = context.new_page()
    second.goto(link)
    expect(second.get_by_role("alert")).to_contain_text("This link was used")
    second.get_by_label("Or paste a token").fill(house.token("ada", "system:masters"))
    second.get_by_role("button", name="Sign in").click()
    expect(second.get_by_text("ada")).to_be_visible()
    second.get_by_role("button", name="Sign out").click()
    expect(second.get_by_role("button", name="Sign in")).to_be_visible()
    context.close()


def test_who_may_only_look_is_offered_nothing_to_do(browser: Browser, house: House) -> None:
    house.declare(motd="hello")
    rules = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "eve-looks"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "looker"}, "subjects": [{"kind": "User", "name": "eve", "apiGroup": "rbac.authorization.k8s.io"}]}
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "looker"}, "rules": [{"apiGroups": ["files.homeostat.dev", "homeostat.dev"], "resources": ["files", "guardpolicies"], "verbs": ["get", "list", "watch"]}]}
    import json

    manifest = house.data.parent / "roles.json"
    manifest.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [role, rules]}))
    house.run("apply", "-f", manifest, "--yes")
    context = browser.new_context(ignore_https_errors=True)
    page = context.new_page()
    watched = Watched(page, house)
    page.goto(f"{house.url}/ui/")
    page.get_by_label("Or paste a token").fill(house.token("eve"))
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("article").filter(has_text="File")).to_be_visible()
    expect(page.get_by_role("button", name=re.compile("Freeze"))).to_have_count(0)
    assert watched.troubles == []
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("path", VIEWS)
def test_everybody_can_use_it(browser: Browser, house: House, path: str, scheme: str) -> None:
    house.declare(motd="hello")
    context = browser.new_context(ignore_https_errors=True, color_scheme=scheme, viewport={"width": 1280, "height": 800}, bypass_csp=True)  # type: ignore[arg-type]
    page = context.new_page()
    page.goto(house.link())
    expect(page.get_by_role("status")).to_have_text("live")
    page.goto(f"{house.url}/ui/{path}")
    expect(page.get_by_role("status")).to_have_text("live")
    page.wait_for_timeout(500)
    found = Axe().run(page)
    serious = [one for one in found.response["violations"] if one["impact"] in ("serious", "critical")]
    assert not serious, [(one["id"], [node["html"] for node in one["nodes"]]) for one in serious]
    context.close()


def test_it_fits_a_phone(browser: Browser, house: House) -> None:
    house.declare(motd="hello")
    context = browser.new_context(ignore_https_errors=True, viewport={"width": 390, "height": 780})
    page = context.new_page()
    page.goto(house.link())
    expect(page.get_by_role("article").filter(has_text="File")).to_be_visible()
    for path in VIEWS:
        page.goto(f"{house.url}/ui/{path}")
        expect(page.get_by_role("status")).to_have_text("live")
        wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide <= 1, f"{path or 'fleet'} is {wide} pixels too wide"
    (house.room / "motd").write_text("robbed")
    page.goto(f"{house.url}/ui/events")
    message = page.locator(".message").filter(has_text="for it was not as declared any more").first
    expect(message).to_be_visible()
    assert message.evaluate("box => box.scrollWidth <= box.clientWidth && box.scrollHeight <= box.clientHeight"), "the message is cut off"
    page.goto(f"{house.url}/ui/events/audit")
    expect(page.get_by_role("row").filter(has_text="admin").locator(".message").first).to_be_visible()
    context.close()
