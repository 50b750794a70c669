"""Two teams on four simulated machines, seen by who is on call: `homeostat up --demo` in a process of its own."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Locator, Page, expect

from .conftest import House, Watched

TENANT = "/apis/gpu.homeostat.dev/v1alpha1/tenants/vision"
PATCH = """async ([path, body]) => {
  const { token } = JSON.parse(sessionStorage.getItem("homeostat.session"));
  const headers = { Authorization: `Bearer ${token}`, "Content-Type": "application/merge-patch+json" };
  return (await fetch(path, { method: "PATCH", headers, body: JSON.stringify(body) })).status;
}"""
WAITS = re.compile(r"speech-\d$")
"""One of speech has no room in its quota: which, is chance."""


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    house = House(tmp_path_factory.mktemp("house"), "--demo")
    yield house
    house.stop()


@pytest.fixture
def gpus(page: Page, house: House) -> Page:
    """The view, when all of the example runs."""
    page.get_by_role("link", name="GPUs").click()
    expect(tenant(page, "vision")).to_contain_text("14 of 14")
    expect(tenant(page, "speech")).to_contain_text("10 of 10")
    return page


def tenant(page: Page, name: str) -> Locator:
    return page.get_by_role("region", name="Tenants").last.get_by_role("row").filter(has_text=name)


def queue(page: Page) -> Locator:
    return page.get_by_role("region", name="Queue").last


def set_quota(page: Page, nominal: int) -> None:
    assert page.evaluate(PATCH, [TENANT, {"spec": {"quotas": [{"model": "H100", "nominal": nominal}]}}]) == 200


def test_a_lowered_quota_is_seen_to_bring_use_down_and_a_raised_one_up_again(gpus: Page) -> None:
    held = gpus.locator(".figure").filter(has_text="held").locator("dd")
    expect(held).to_have_text("24")
    set_quota(gpus, 10)
    expect(tenant(gpus, "vision")).to_contain_text("10 of 10")
    expect(held).to_have_text("20")
    expect(gpus.get_by_role("img", name=re.compile(r"vision over time: uses 10 of its 10 GPUs"))).to_be_visible()
    taken = gpus.get_by_role("region", name="Taken off GPUs").get_by_role("listitem")
    expect(taken).to_have_count(4)
    expect(taken.filter(has_text="default/vision-14")).to_contain_text("of the 10 GPUs of H100 that it may use")
    expect(queue(gpus).get_by_role("row").filter(has_text="default/vision-14")).to_contain_text("(suspended)")
    set_quota(gpus, 14)
    expect(tenant(gpus, "vision")).to_contain_text("14 of 14")
    expect(taken).to_have_count(0)


def test_a_workload_that_waits_says_why(gpus: Page) -> None:
    queue(gpus).get_by_role("link", name=WAITS).click()
    story = gpus.get_by_role("region", name=re.compile("speech-. of speech: Pending"))
    expect(story).to_contain_text("it wants 2 of H100, and speech uses 10 of its 10")
    expect(story).to_contain_text("a larger quota, or the end of enough work of it or of its cohort, lets it start")
    gpus.reload()
    expect(story).to_be_visible()


def test_the_map_is_walked_by_keys_and_has_a_table_beside_it(gpus: Page) -> None:
    heat = gpus.get_by_role("application", name=re.compile("Heat map of 4 nodes"))
    heat.press("ArrowRight")
    said = gpus.locator("#heat-cell")
    expect(said).to_contain_text("gpu-1 GPU 0, H100: ")
    heat.press("ArrowRight")
    expect(said).to_contain_text("gpu-1 GPU 1, H100: ")
    heat.press("End")
    expect(said).to_contain_text("gpu-4 GPU")
    while "default/" not in said.inner_text():  # which machine has nothing to do, is chance
        heat.press("ArrowLeft")
    heat.press("Enter")
    expect(gpus.get_by_text("GPU workload in default")).to_be_visible()
    gpus.go_back()
    gpus.get_by_label("Colour by").select_option("health")
    expect(gpus).to_have_url(re.compile("by=health"))
    gpus.get_by_role("button", name="As a table").click()
    table = gpus.get_by_role("region", name="GPUs")
    expect(table.get_by_role("row").filter(has_text="gpu-1").first).to_contain_text("Healthy")
    gpus.get_by_role("searchbox").fill("vision-03")
    expect(table.get_by_role("row")).to_have_count(2)  # its head, and the one


def test_who_may_see_workloads_alone_sees_those_and_is_told_what_is_missing(browser: Browser, house: House) -> None:
    group = "rbac.authorization.k8s.io"
    rules = [{"apiGroups": ["gpu.homeostat.dev"], "resources": ["workloads"], "verbs": ["get", "list", "watch"]}]
    subject = {"kind": "User", "name": "eve", "apiGroup": group}
    items = [
        {"apiVersion": f"{group}/v1", "kind": "ClusterRole", "metadata": {"name": "looks"}, "rules": rules},
        {"apiVersion": f"{group}/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "eve-looks"}, "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "looks"}, "subjects": [subject]},
    ]
    manifest = house.data.parent / "roles.json"
    manifest.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    house.run("apply", "-f", manifest, "--yes")
    context = browser.new_context(ignore_https_errors=True)
    page = context.new_page()
    watched = Watched(page, house)
    page.goto(f"{house.url}/ui/gpu")
    page.get_by_label("Or paste a token").fill(house.token("eve"))
    page.get_by_role("button", name="Sign in").click()
    expect(queue(page).get_by_role("link", name=WAITS)).to_be_visible()
    expect(page.get_by_text("You may not see nodes")).to_be_visible()
    expect(page.get_by_text("You may not see tenants")).to_be_visible()
    assert watched.troubles == []
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("path", ["gpu", "gpu?as=table", "gpu/workloads/default/vision-01"])
def test_everybody_can_use_it(browser: Browser, house: House, path: str, scheme: str) -> None:
    context = browser.new_context(ignore_https_errors=True, color_scheme=scheme, viewport={"width": 1280, "height": 800}, bypass_csp=True)  # type: ignore[arg-type]
    page = context.new_page()
    page.goto(house.link())
    expect(page.get_by_role("status")).to_have_text("live")
    page.goto(f"{house.url}/ui/{path}")
    expect(page.locator(".panel").first).to_be_visible()
    found = Axe().run(page)
    serious = [one for one in found.response["violations"] if one["impact"] in ("serious", "critical")]
    assert not serious, [(one["id"], [node["html"] for node in one["nodes"]]) for one in serious]
    page.set_viewport_size({"width": 390, "height": 780})
    wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert wide <= 1, f"{path} is {wide} pixels too wide for a phone"
    context.close()
