"""Outages in which automation obeyed too well, lived through from the commit to the objects; and an honest change of the same kind."""

from __future__ import annotations

import shutil

from tests.loop.waiting import said
from tests.sources.conftest import Bench
from tests.sources.repo import config_map
from tests.sources.test_guarded import approve, halts

from homeostat.loop.declarations import ADOPT

SERVICES = [f"service-{i:02}" for i in range(20)]
TEMPLATE = (
    "{% for name in vars.SERVICES.split() %}---\n" + config_map("{{ name }}", "{{ vars.VERSION }}") + "{% endfor %}"
)
BROKEN = TEMPLATE.replace(
    "name: {{ name }}", "name: name"
)  # a brace too few, and its correction: there is one of that name, and no other


async def services(bench: Bench, version: str = "1") -> None:
    bench.repo.commit({"services.yaml.j2": TEMPLATE})
    await bench.declare_source()
    await bench.declare(variables={"SERVICES": " ".join(SERVICES), "VERSION": version})
    await bench.says("Applied")
    await bench.whole_pass()


async def test_skyscanner_2021_an_edit_of_a_template_deletes_no_service(bench: Bench) -> None:
    await services(bench)
    await bench.push(
        {"services.yaml.j2": BROKEN.replace("{% for name in vars.SERVICES.split() %}", "{% for _ in [1] %}")},
        "harmless",
    )
    await halts(bench, "20 of ")
    sync = await bench.until(lambda obj: (obj["status"].get("plan") or {}).get("delete") == 20)
    assert sync["status"]["plan"]["changes"][0] == "+ ConfigMap default/name"
    assert dict.fromkeys(SERVICES, "1").items() <= (await bench.values()).items()
    commit = await bench.push({"services.yaml.j2": TEMPLATE}, "Revert")

    async def back() -> bool:
        await bench.whole_pass()  # a halt ends by a fix when a whole pass has seen it
        return bool((await bench.syncs.get("shop"))["status"]["commit"] == commit)

    await bench.eventually(back)
    assert await bench.values() == dict.fromkeys(SERVICES, "1")


async def test_a_template_edit_that_renders_one_name_twice_is_refused(bench: Bench) -> None:
    await services(bench)
    await bench.push({"services.yaml.j2": BROKEN})
    sync = await bench.says("Refused")
    assert "is declared in services.yaml.j2" in said(sync)["message"]
    assert await bench.values() == dict.fromkeys(SERVICES, "1")


async def test_an_honest_edit_of_all_services_needs_one_approval(bench: Bench) -> None:
    await services(bench)
    await bench.declare(variables={"SERVICES": " ".join(SERVICES), "VERSION": "2"})
    (halt,) = await halts(bench, "20 of ")
    assert await bench.values() == dict.fromkeys(SERVICES, "1")
    await approve(bench, halt["plan"])

    async def all_new() -> bool:
        return await bench.values() == dict.fromkeys(SERVICES, "2")

    await bench.eventually(all_new)


async def test_influxdata_2022_a_reused_name_replaces_nothing(bench: Bench) -> None:
    bench.repo.commit({"prod/db.yaml": config_map("db", "production"), "test/db.yaml": config_map("db", "empty")})
    await bench.begin(path="prod")
    await bench.syncs.delete("shop")  # its objects stay
    await bench.declare(path="test")  # the name is free again, and somebody takes it
    sync = await bench.says("ObjectsHeld")
    assert "it exists and is not ours" in said(sync)["message"]
    await bench.whole_pass()
    assert await bench.values() == {"db": "production"}
    await bench.declare(path="prod", metadata={"annotations": {ADOPT: "true"}})  # by a declared adoption
    await bench.says("Applied")
    assert await bench.values() == {"db": "production"}


async def test_argo_cd_18480_what_cannot_be_read_is_not_empty(bench: Bench) -> None:
    files: dict[str, str | None] = {f"apps/{name}.yaml": config_map(name) for name in SERVICES}
    bench.repo.commit({**files, "README.md": "apps"})
    await bench.begin(path="apps")
    await bench.whole_pass()
    all_there = dict.fromkeys(SERVICES, "1")

    shutil.move(bench.repo.path, f"{bench.repo.path}-gone")  # the repository cannot be read
    bench.poke()
    await bench.says("SourceUnknown")
    await bench.whole_pass()
    assert await bench.values() == all_there
    shutil.move(f"{bench.repo.path}-gone", bench.repo.path)

    bench.repo.git("mv", "apps", "applications")  # the directory is not where it was
    await bench.push({})
    sync = await bench.says("Refused")
    assert "no directory 'apps'" in said(sync)["message"]
    assert await bench.values() == all_there

    await bench.push({**{f"applications/{name}.yaml": None for name in SERVICES}, "apps/README.md": "they were here"})
    (halt,) = await halts(bench, "20 of ")  # it was read, and is empty: that is a mass deletion, and halted as one
    assert halt["guard"] == "mass-drift"
    assert await bench.values() == all_there
    bench.repo.git("revert", "--no-edit", "HEAD", "HEAD~1")
    bench.poke()
    await bench.at(bench.repo.git("rev-parse", "HEAD"))
    assert await bench.values() == all_there
