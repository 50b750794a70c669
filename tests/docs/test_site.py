"""The site: what is made from code is complete, and no link leads nowhere. `make docs` builds it, strictly."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType

import click
import pytest

from homeostat.guards.policy import POLICY_KIND, GuardPolicy
from homeostat.model.kinds import crd_for
from homeostat.testing import TestPlane

from .running import ROOT

TEXTS = sorted([*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", *(ROOT / "examples").rglob("*.md")])
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")


@pytest.fixture(scope="module")
def reference() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reference", ROOT / "scripts/reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def anchors(page: Path) -> set[str]:
    """The headings of a page, as GitHub and the site link to them."""
    plain = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S)
    heads = [re.sub(r"[`*]|\[([^\]]+)\]\([^)]*\)", r"\1", head) for head in re.findall(r"^#+ (.*)$", plain, re.M)]
    return {re.sub(r"[^\w\- ]", "", head.lower()).strip().replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", TEXTS, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_link_leads_nowhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```$|`[^`\n]*`", "", page.read_text(), flags=re.M | re.S)
    for target in LINK.findall(text):
        if not re.match(r"\w+:", target):
            place, _, anchor = target.partition("#")
            there = (page.parent / place).resolve() if place else page
            assert there.exists(), target
            assert not anchor or there.suffix != ".md" or anchor in anchors(there), target


def test_every_page_is_in_the_navigation() -> None:
    nav = (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[2]
    for page in (ROOT / "docs").glob("*.md"):
        assert nav.count(f" {page.name}\n") == 1, f"{page.name} stands once in a section of mkdocs.yml"


def test_the_site_asks_no_other_host_for_anything() -> None:
    settings = (ROOT / "mkdocs.yml").read_text()
    assert "font: false" in settings
    assert not re.search(r"https?://", settings)


def test_the_reference_has_every_command_and_option(reference: ModuleType) -> None:
    from homeostat.cli import main

    page = reference.commands()
    for path, command in reference.all_commands(main, ("homeostat",)):
        section = page.partition(f"\n## {' '.join(path)}\n")[2].partition("\n## ")[0]
        assert section
        assert {name for option in command.params if isinstance(option, click.Option) for name in option.opts if name not in section} == set()


def test_the_reference_has_every_kind_with_its_fields(reference: ModuleType) -> None:
    page = reference.kinds()
    kinds = re.findall(r"^## (\w+)$", page, re.M)
    assert {"File", "Process", "Exec", "HttpResource", "GuardPolicy", "Approval", "Tenant", "Workload", "GitSource", "Sync"} <= set(kinds)
    assert not {"Box", "Thing", "Child"} & set(kinds), "nobody can declare those"
    assert "| `massDrift.limit` |" in page
    assert "Absolute, and below a root that this host allows." in page


def test_the_reference_has_every_figure(reference: ModuleType) -> None:
    page = reference.metrics()
    named = set(re.findall(r'"((?:homeostat|workqueue|controller_runtime|leader_election)_\w+)"', (ROOT / "src/homeostat/loop/metrics.py").read_text()))
    assert named
    assert {name for name in named if f"`{name}`" not in page} == set()
    assert "`apiserver_request_total` | counter | code, group, resource, verb" in page


def test_the_reference_has_limits_with_their_values(reference: ModuleType) -> None:
    page = reference.settings()
    assert re.search(r"\| `DEADLINE` \| `30\.0` \| Seconds that one observation", page)
    assert "| `homeostat.dev/change-set` |" in page


def test_links_of_the_readme_fit_the_site(reference: ModuleType) -> None:
    assert "](docs/" not in reference.home()
    assert reference.moved("[a](../benchmarks/shop.py)", "docs", "") == "a (`benchmarks/shop.py`)"
    assert reference.moved("[a](docs/loop.md#run-it)", "", "") == "[a](loop.md#run-it)"
    assert reference.moved("[a](https://cel.dev)", "", "") == "[a](https://cel.dev)"


def test_the_page_of_guards_has_them_all_with_their_defaults() -> None:
    page = (ROOT / "docs/guards.md").read_text()
    rows = {row[1]: row[0] for row in re.findall(r"^(\| ([\w-]+) \|.*)$", page.partition("```yaml")[0], re.M)}
    named = {found[1] for file in (ROOT / "src/homeostat/guards").glob("*.py") if (found := re.search(r'^GUARD = "([\w-]+)"', file.read_text(), re.M))}
    assert named <= rows.keys()
    policy = GuardPolicy()
    assert f"`{policy.mode}`" in rows["mode"]
    assert f"`{policy.unknown}`" in rows["unknown"]
    assert f"`{policy.mass_drift.limit}` of {policy.mass_drift.fleet_of} or more" in rows["mass-drift"]
    assert ", ".join(str(step).replace("%", " %") for step in policy.canary.steps) in rows["canary"]
    assert f"{policy.canary.verify_within.total_seconds() / 60:g} m; `{policy.canary.on_failure}`" in rows["canary"]
    assert f"{policy.flap.reversals} in {policy.flap.within.total_seconds() / 60:g} m" in rows["flap"]
    assert f"{policy.breaker.failures} in a row, {policy.breaker.open_for.total_seconds():g} s" in rows["breaker"]
    assert f"{policy.backoff.first.total_seconds():g} s, × {policy.backoff.factor:g}, {policy.backoff.most.total_seconds() / 60:g} m" in rows["backoff"]
    assert f"`{policy.cap}`, no limit" in rows["cap"]
    assert f"| {policy.domains} |" in rows["domain"]


def test_the_policy_on_the_page_of_guards_is_accepted(homeostat: TestPlane) -> None:
    homeostat.apply(json.dumps(crd_for(POLICY_KIND)))
    shown = (ROOT / "docs/guards.md").read_text().partition("```yaml\n")[2].partition("```")[0]
    (policy,) = homeostat.apply(shown)
    assert policy["spec"]["canary"]["onFailure"] == "Return"
