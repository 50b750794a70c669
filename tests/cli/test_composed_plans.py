"""A plan of parents shows what becomes of the objects that they declare, judged as a whole, before anything is written."""

from __future__ import annotations

import json
import re
import subprocess
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.cli.conftest import Up
from tests.cli.test_loop_commands import House

from homeostat import ABSENT, Absent, Composer, Diff, Provider, Spec, current
from homeostat.api.auth.user import AUTHENTICATED, User
from homeostat.api.local import LocalTransport
from homeostat.cli import main
from homeostat.client import Client
from homeostat.guards import Mode
from homeostat.loop.failure import Mistake
from homeostat.model.protocol import CHILDREN_PATH
from homeostat.testing import TestPlane

Object = dict[str, Any]
GROUP = "shops.example.com"


def config_map(name: str, **data: str) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


class ShopSpec(Spec):
    """What a shop has."""

    goods: str = "apples"
    shelves: int = 1
    key: str = ""
    extra: list[dict[str, Any]] = []
    broken: str = ""


class Shop(Composer[ShopSpec], group=GROUP):
    """A shop with shelves, and maybe a key."""

    def compose(self, spec: ShopSpec, parent: Mapping[str, Any]) -> Iterable[Object]:
        name = parent["metadata"]["name"]
        if spec.broken:
            raise RuntimeError(spec.broken)
        for number in range(spec.shelves):
            yield config_map(f"{name}-{number}", goods=spec.goods)
        if spec.key:
            yield {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": {"key": spec.key}}
        yield from spec.extra


class MallSpec(Spec):
    """What a mall has."""

    shops: int = 1
    shelves: int = 1
    signs: int = 0
    broken: str = ""


class Mall(Composer[MallSpec], group=GROUP):
    """Shops, and signs."""

    def compose(self, spec: MallSpec, parent: Mapping[str, Any]) -> Iterable[Object]:
        name = parent["metadata"]["name"]
        for number in range(spec.shops):
            metadata = {"name": f"{name}-{number}"}
            yield {"apiVersion": f"{GROUP}/v1", "kind": "Shop", "metadata": metadata, "spec": {"shelves": spec.shelves, "broken": spec.broken}}
        for number in range(spec.signs):
            metadata = {"name": f"{name}-{number}"}
            yield {"apiVersion": f"{GROUP}/v1", "kind": "Sign", "metadata": metadata, "spec": {"text": "open"}}


class SignSpec(Spec):
    """What is on it."""

    text: str


class Sign(Provider[SignSpec, SignSpec], group=GROUP):
    """A sign, kept in memory."""

    def __init__(self) -> None:
        self.signs: dict[str, str] = {}

    async def observe(self, spec: SignSpec) -> SignSpec | Absent:
        found = self.signs.get(current().ref.name)
        return ABSENT if found is None else SignSpec(text=found)

    async def apply(self, spec: SignSpec, diff: Diff) -> None:
        self.signs[current().ref.name] = spec.text

    async def delete(self, spec: SignSpec) -> None:
        self.signs.pop(current().ref.name, None)


class Desk:
    """The command line, on a server."""

    def __init__(self, plane: TestPlane, directory: Path) -> None:
        self.plane, self.directory = plane, directory

    def run(self, *arguments: object, code: int = 0) -> str:
        call = [*map(str, arguments), "--kubeconfig", str(self.plane.kubeconfig)]
        result = CliRunner().invoke(main, call, catch_exceptions=False)
        assert result.exit_code == code, result.output
        return result.output

    def file(self, kind: str = "Shop", name: str = "hall", labels: Mapping[str, str] | None = None, **spec: Any) -> Path:
        place = self.directory / f"{name}.json"
        metadata = {"name": name, "labels": {"house": "ours", **(labels or {})}}
        place.write_text(json.dumps({"apiVersion": f"{GROUP}/v1", "kind": kind, "metadata": metadata, "spec": spec}))
        return place

    def apply(self, kind: str = "Shop", name: str = "hall", **spec: Any) -> None:
        self.run("apply", "--yes", "-f", self.file(kind, name, **spec))
        self.run("wait", kind, name)

    def data(self, *arguments: object) -> Any:
        return json.loads(self.run(*arguments, "-o", "json"))

    def maps(self) -> list[str]:
        return [one["metadata"]["name"] for one in self.data("get", "configmaps")["items"]]


@pytest.fixture
def desk(homeostat: TestPlane, tmp_path: Path) -> Iterator[Desk]:
    """One beside whose server a loop runs, in the same process, and acts."""
    with homeostat.loop(Shop(), Mall(), Sign()):
        yield Desk(homeostat, tmp_path)


def test_a_new_parent_is_planned_with_its_children_and_nothing_is_written(desk: Desk) -> None:
    said = desk.run("plan", "-f", desk.file(shelves=2))
    assert "+ Shop default/hall\n" in said
    assert '+ ConfigMap default/hall-0   by Shop default/hall\n    + data.goods: "apples"\n' in said
    assert "Plan: 3 to add, 0 to change, 0 to destroy" in said
    assert "Guards: let it through\n  default/configmaps (2 resources, Enforce): 2 at once" in said
    assert desk.maps() == []
    assert desk.data("get", "shops")["items"] == []


def test_a_change_shows_what_is_made_changed_and_deleted_and_not_what_stays(desk: Desk) -> None:
    desk.apply(shelves=3, extra=[config_map("till", cash="10")])
    plan = desk.data("plan", "-f", desk.file(goods="pears", shelves=2, extra=[config_map("till", cash="10"), config_map("bell")]))
    below = [(one["op"], one["name"], one["declaredBy"]) for one in plan["actions"] if one["kind"] == "ConfigMap"]
    by = "Shop default/hall"
    assert below == [("update", "hall-0", by), ("update", "hall-1", by), ("create", "bell", by), ("delete", "hall-2", by)]
    assert (plan["add"], plan["change"], plan["destroy"]) == (1, 3, 1)
    assert plan["actions"][1]["changes"] == ['~ data.goods: "apples" → "pears"']


def test_what_was_planned_is_what_is_done(desk: Desk) -> None:
    desk.apply(shelves=2)
    desk.apply(goods="pears", shelves=1)
    assert desk.maps() == ["hall-0"]
    assert "Plan: 0 to add, 0 to change, 0 to destroy" in desk.run("plan", "-f", desk.file(goods="pears", shelves=1))


def test_secrets_of_children_are_not_shown(desk: Desk) -> None:
    said = desk.run("plan", "-f", desk.file(key="c2VjcmV0"))
    assert "+ Secret default/hall   by Shop default/hall\n    + data.key: (sensitive)" in said


def test_a_parent_that_goes_takes_its_children_along(desk: Desk) -> None:
    desk.apply(shelves=2)
    said = desk.run("plan", "-f", desk.file(name="other", labels={"kept": "yes"}, shelves=0), "--prune", "house=ours")
    assert "- Shop default/hall\n" in said
    assert "- ConfigMap default/hall-1   by Shop default/hall" in said
    assert "Plan: 1 to add, 0 to change, 3 to destroy" in said
    assert "deletion holds" not in said, "to delete one parent is one deletion, however many children it has"


def test_what_the_guards_would_stop_below_a_parent_is_said_and_can_be_approved_with_it(desk: Desk) -> None:
    desk.apply(shelves=12)
    file = desk.file(goods="pears", shelves=12)
    said = desk.run("plan", "-f", file)
    assert "mass-drift halts it: 12 of 12 would be changed, more than 3" in said
    desk.run("apply", "--yes", "--approve", "-f", file)
    desk.run("wait", "shop", "hall")
    goods = {one["data"]["goods"] for one in desk.data("get", "configmaps")["items"]}
    assert goods == {"pears"}, "the approval is for what was shown below it, too"


def test_what_exists_and_is_not_the_parents_is_held(desk: Desk) -> None:
    desk.plane.apply("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: hall-0, namespace: default}\ndata: {goods: mine}\n")
    assert "ownership holds 1: it exists and is not ours" in desk.run("plan", "-f", desk.file())


def test_a_child_that_two_new_parents_want_is_told_and_is_only_ones(desk: Desk) -> None:
    same = [config_map("till", cash="10")]
    files = [part for name in ("one", "two") for part in ("-f", desk.file(name=name, shelves=0, extra=same))]
    said = desk.run("plan", *files)
    assert "Note: ConfigMap default/till is wanted by Shop default/one, Shop default/two: one of them gets it" in said
    assert "ownership holds 1: it exists and is not ours" in said


def test_what_somebody_else_put_there_is_not_shown_to_who_plans_the_same_name(desk: Desk) -> None:
    desk.plane.apply("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: hall-0, namespace: default}\ndata: {goods: none of your business}\n")
    assert "business" not in desk.run("plan", "-f", desk.file(goods="bread"))
    declared = json.loads(desk.file(goods="bread").read_text())
    declared["metadata"]["annotations"] = {"homeostat.dev/adopt": "true"}
    place = desk.directory / "adopting.json"
    place.write_text(json.dumps(declared))
    shown = desk.run("plan", "-f", place)
    assert "~ ConfigMap default/hall-0" in shown
    assert "business" not in shown


def test_a_child_that_the_server_refuses_is_named_with_the_reason(desk: Desk) -> None:
    said = desk.run("plan", "-f", desk.file(shelves=0, extra=[config_map("Not_A_Name")]))
    assert "+ ConfigMap default/Not_A_Name   by Shop default/hall\n    the server refuses it: " in said


@pytest.mark.parametrize(
    ("spec", "why"),
    [({"broken": "no goods"}, "no goods"), ({"extra": [{"kind": "ConfigMap"}]}, "a child is an object with apiVersion")],
)
def test_what_cannot_be_composed_is_said(desk: Desk, spec: Object, why: str) -> None:
    plan = desk.data("plan", "-f", desk.file(**spec))
    assert [one["kind"] for one in plan["actions"]] == ["Shop"]
    (note,) = plan["notes"]
    assert note.startswith("what Shop default/hall declares cannot be told: ")
    assert why in note


def test_what_could_not_be_composed_is_not_said_to_be_as_declared(desk: Desk) -> None:
    desk.run("apply", "--yes", "-f", desk.file(broken="no goods"))
    desk.plane.wait_for(f"{GROUP}/v1", "Shop", "hall", lambda shop: "NotComposed" in json.dumps(shop))
    (line,) = desk.data("drift")
    assert (line["op"], line["kind"], line["name"]) == ("unknown", "Shop", "hall")
    assert "no goods" in line["reason"]
    assert desk.data("drift", "shops") == [line]
    assert "all is as declared" not in desk.run("drift")
    assert "nobody can tell what it declares" in desk.run("runbook")
    told = desk.run("explain", "shop", "hall")
    assert re.search("differs +unknown: .*no goods", told)
    assert "next       it is composed again when its declaration, its source or its composer changes" in told


def test_a_composer_without_compose_is_told_so() -> None:
    class Empty(Composer[ShopSpec], group=GROUP): ...

    with pytest.raises(Mistake, match="Empty has no `compose`"):
        Empty().compose(ShopSpec(), {})


def test_composers_below_composers_are_asked_as_well(desk: Desk) -> None:
    said = desk.run("plan", "-f", desk.file("Mall", "mall", shops=2, shelves=2))
    assert "+ Shop default/mall-1   by Mall default/mall" in said
    assert "+ ConfigMap default/mall-1-1   by Shop default/mall-1" in said
    assert "Plan: 7 to add, 0 to change, 0 to destroy" in said
    desk.apply("Mall", "mall", shops=2, shelves=2)
    said = desk.run("plan", "-f", desk.file("Mall", "mall", shops=1, shelves=2))
    assert "- ConfigMap default/mall-1-0   by Shop default/mall-1" in said


def test_what_is_declared_and_declares_itself_is_explained_as_both(desk: Desk) -> None:
    desk.apply("Mall", shops=12)
    desk.apply("Mall", "zoo", shops=0)
    desk.run("apply", "--yes", "-f", desk.file("Mall", shops=12, shelves=2))
    desk.plane.wait_for(f"{GROUP}/v1", "Mall", "hall", lambda mall: "held by mass-drift" in json.dumps(mall))
    itself, wished = desk.run("explain", "shop", "hall-0").split("\n\n")
    assert "decision   Converged: all of 1 children are as declared" in itself
    assert "children.malls.shops.example.com: 12 in it, 12 differ" in wished, "parents are not in the fleet of what they declare"
    assert "declared   by Mall default/hall\n" in wished
    assert "decision   held by mass-drift: 12 of 12 would be changed" in wished
    assert desk.data("explain", "shop", "hall-0")["composed"]["drift"]["op"] == "update"
    assert "halts" not in desk.run("plan", "-f", desk.file("Mall", shops=12, signs=1)), "what was never done need not be undone"


def test_what_cannot_be_told_further_down_does_not_hide_the_rest(desk: Desk) -> None:
    plan = desk.data("plan", "-f", desk.file("Mall", "mall", broken="no goods"))
    assert [one["name"] for one in plan["actions"]] == ["mall", "mall-0"]
    assert plan["notes"] == ["a part of what Mall default/mall leads to cannot be told: Shop default/mall-0: no goods"]


def test_children_that_a_loop_keeps_are_judged_as_declarations_and_as_things(desk: Desk) -> None:
    plan = desk.data("plan", "-f", desk.file("Mall", "mall", shops=0, signs=2))
    fleets = {one["fleet"]: one["now"] for one in plan["guards"]}
    assert fleets == {f"default/children.malls.{GROUP}": 2, f"default/signs.{GROUP}": 2}


def test_a_child_that_gets_its_parent_back_is_not_changed_by_that(desk: Desk) -> None:
    desk.apply(shelves=2)
    desk.run("observe", "shops")
    desk.plane._call(lambda client: client.kind(f"{GROUP}/v1", "Shop").delete("hall", namespace="default"))
    plan = desk.data("plan", "-f", desk.file(shelves=2))
    assert [one["kind"] for one in plan["actions"]] == ["Shop"]
    plan = desk.data("plan", "-f", desk.file(goods="pears", shelves=1))
    assert [(one["op"], one["name"]) for one in plan["actions"][1:]] == [("update", "hall-0"), ("delete", "hall-1")]
    assert [held["guard"] for verdict in plan["guards"] for held in verdict["held"]] == ["mode"], "and they are ours"


# Who may ask


def ask(plane: TestPlane, user: str, question: Object) -> Any:
    async def work(client: Client) -> Any:
        transport = LocalTransport(plane._server.plane, User(user, "", (AUTHENTICATED,)))
        async with Client(transport, timeout=None) as own:
            return (await own.request("POST", CHILDREN_PATH, body=question)).json()

    return plane._call(work)


RIGHTS = textwrap.dedent("""
    apiVersion: rbac.authorization.k8s.io/v1
    kind: Role
    metadata: {name: shops, namespace: default}
    rules: [{apiGroups: [shops.example.com], resources: [shops], verbs: [get, create, patch, delete]}]
    ---
    apiVersion: rbac.authorization.k8s.io/v1
    kind: RoleBinding
    metadata: {name: shops, namespace: default}
    roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: shops}
    subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: ann}]
""")


def test_who_may_make_the_change_is_told_what_it_leads_to_and_nobody_else(desk: Desk) -> None:
    desk.plane.apply(RIGHTS)
    desk.apply()
    shop = json.loads(desk.file(key="c2VjcmV0").read_text())
    shop["metadata"]["namespace"] = "default"
    for gone in (False, True):
        question = {"parents": [{"object": shop, "gone": gone}]}
        (told,) = ask(desk.plane, "ann", question)["answers"]
        assert {one["name"] for one in told["children"]} == ({"hall-0"} if gone else {"hall"}), "though she may not read ConfigMaps"
        assert "c2VjcmV0" not in json.dumps(told)
        (refused,) = ask(desk.plane, "bob", question)["answers"]
        assert "children" not in refused
        assert 'User "bob" cannot' in refused["problem"]
    assert desk.maps() == ["hall-0"]


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"parents": [{"object": {"kind": "Shop"}}]}', b'{"parents": [{"object": {"apiVersion": 1, "metadata": 2}}]}'])
def test_a_question_that_makes_no_sense_is_refused(desk: Desk, body: bytes) -> None:
    from homeostat.model.errors import ApiError

    with pytest.raises(ApiError) as refused:
        ask(desk.plane, "ann", body)  # type: ignore[arg-type]
    assert refused.value.code == 400


# A loop elsewhere

SHOPS = """
from homeostat import Composer, Spec


class ShopSpec(Spec):
    shelves: int = 1


class Shop(Composer[ShopSpec], group="shops.example.com"):
    def compose(self, spec, parent):
        for number in range(spec.shelves):
            name = f"{parent['metadata']['name']}-{number}"
            yield {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"goods": "apples"}}
"""


@pytest.fixture
def elsewhere(homeostat: TestPlane, tmp_path: Path) -> Iterator[Callable[[Mode], House]]:
    """A loop that talks to the server like every client."""
    house = House(homeostat, tmp_path, tmp_path)
    provider = tmp_path / "shops.py"
    provider.write_text(SHOPS)

    def begin(mode: Mode) -> House:
        house.start(provider, mode)
        return house

    yield begin
    house.stop()


def test_where_the_composer_cannot_be_asked_the_plan_says_so_and_how_to_see_it(elsewhere: Callable[[Mode], House], tmp_path: Path) -> None:
    house, file = elsewhere(Mode.ENFORCE), Desk(None, tmp_path).file()  # type: ignore[arg-type]
    said = house.run("plan", "-f", file)
    assert "Note: what Shop default/hall declares is not shown: its composer does not run in this server." in said
    assert "--provider FILE" in said
    assert "`homeostat observe shops`, declare it, then `homeostat plan shops`" in said
    assert "Plan: 1 to add, 0 to change, 0 to destroy" in said
    said = house.run("plan", "-f", file, "--provider", tmp_path / "shops.py")
    assert "+ ConfigMap default/hall-0   by Shop default/hall" in said
    assert "Guards: let it through\n  default/configmaps (1 resource, Enforce): 1 at once" in said
    assert "Note:" not in said


def test_the_way_that_is_named_shows_it_before_anything_is_done(elsewhere: Callable[[Mode], House], tmp_path: Path) -> None:
    house, file = elsewhere(Mode.OBSERVE), Desk(None, tmp_path).file()  # type: ignore[arg-type]
    house.run("observe", "shops")
    said = house.run("apply", "--yes", "-f", file, "--provider", tmp_path / "shops.py")
    assert "to act on default/configmaps, once it is declared: homeostat enforce default/configmaps" in said
    house.until(lambda: "+ ConfigMap default/hall-0" in house.run("plan", "shops"))
    assert "ConfigMap/hall-0 held by mode" in house.run("get", "shops", "-o", "wide")
    assert "Shop hall waits for a person: ConfigMap/hall-0 held by mode" in house.run("wait", "shop", "hall", "--timeout", "1s", code=1)
    said = house.run("explain", "shop", "hall")
    assert "decision   Held: ConfigMap/hall-0 held by mode: observe-only" in said
    assert "next       of ConfigMap hall-0: homeostat enforce default/configmaps" in said


def test_the_loop_inside_of_a_server_is_asked_without_a_word(
    start: Callable[..., Up], homeostat_command: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    provider = tmp_path / "shops.py"
    provider.write_text(SHOPS)
    up = start("--provider", provider, "--enforce")
    file = Desk(None, tmp_path).file(shelves=2)  # type: ignore[arg-type]
    end = time.monotonic() + 20
    while (done := homeostat_command("plan", "-f", file, KUBECONFIG=str(up.kubeconfig))).returncode:  # the kind comes with the loop
        assert time.monotonic() < end, done.stderr
    assert "+ ConfigMap default/hall-1   by Shop default/hall" in done.stdout
    assert "Plan: 3 to add, 0 to change, 0 to destroy\nGuards: let it through" in done.stdout
