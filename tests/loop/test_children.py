"""A composer under the real engine, on a real API server in process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Any

import pytest
from tests.loop.waiting import said, whole_pass

from homeostat.client import Client, Key, Unreachable
from homeostat.guards import Mode
from homeostat.guards.gate import PolicyGate
from homeostat.guards.keeper import Keeper
from homeostat.loop import composed
from homeostat.loop.childkinds import ChildKinds
from homeostat.loop.compose import AFTER, WAVE, Composer
from homeostat.loop.declarations import ADOPT
from homeostat.loop.diff import Diff
from homeostat.loop.engine import Engine
from homeostat.loop.fleet import Drift, Fleet
from homeostat.loop.listener import Listener, Outcome
from homeostat.loop.observation import ABSENT, Absent
from homeostat.loop.provider import Provider, current
from homeostat.model.kinds import Spec
from homeostat.model.protocol import CHILD_KINDS

Object = dict[str, Any]
WAIT_SECONDS = 10.0


class ShopSpec(Spec):
    """What a shop has."""

    shelves: dict[str, str] = {}
    waves: dict[str, int] = {}
    extra: list[dict[str, Any]] = []


class Shop(Composer[ShopSpec], group="shops.test.dev"):
    """A shop with shelves: a ConfigMap each."""

    broken = ""

    def compose(self, spec: ShopSpec, parent: Mapping[str, Any]) -> Iterable[Object]:
        if self.broken:
            raise RuntimeError(self.broken)
        for name, goods in spec.shelves.items():
            notes = {"annotations": {WAVE: str(spec.waves[name])}} if name in spec.waves else {}
            metadata = {"name": f"{parent['metadata']['name']}-{name}", "labels": {"shop": "yes"}, **notes}
            yield {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"goods": goods}}
        yield from spec.extra


class Bench:
    def __init__(self, client: Client) -> None:
        self.client = client
        self.composer = Shop()
        self.shops = client.kind("shops.test.dev/v1", "Shop", namespace="default")
        self.maps = client.kind("v1", "ConfigMap", namespace="default")
        self.engine: Engine

    async def start(self, mode: Mode = Mode.ENFORCE, settle: float = 0.005) -> None:
        self.engine = Engine(
            self.client, [], PolicyGate(mode=mode), settle=settle, workers=4, composers=[self.composer]
        )
        await self.engine.start()

    async def declare(self, shelves: dict[str, str], name: str = "shop", **more: Any) -> None:
        metadata = {"name": name, **more.pop("metadata", {})}
        obj = {"metadata": metadata, "spec": {"shelves": shelves, **more}}
        await self.shops.apply(obj, field_manager="test", force=True)

    async def goods(self) -> dict[str, str]:
        return {o["metadata"]["name"]: o["data"]["goods"] for o in await self.maps.list(labels="shop=yes")}

    async def until(self, holds: Callable[[Object], bool], name: str = "shop") -> Object:
        found: Object = {}
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                while not holds(found := await self.shops.get(name)):
                    await asyncio.sleep(0.005)
        except TimeoutError:
            raise AssertionError(f"{name} never was so; it is {found.get('status')}") from None
        return found

    async def ready(self, name: str = "shop") -> Object:
        return await self.until(lambda obj: said(obj).get("status") == "True", name)

    async def until_goods(self, goods: dict[str, str]) -> None:
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                while await self.goods() != goods:
                    await asyncio.sleep(0.005)
        except TimeoutError:
            raise AssertionError(f"there are {await self.goods()}") from None

    async def whole_pass(self) -> None:
        await whole_pass(self.engine)


@pytest.fixture
async def bench(client: Client) -> AsyncIterator[Bench]:
    bench = Bench(client)
    await bench.start()
    yield bench
    await bench.engine.stop()


async def test_children_are_made_owned_and_counted(bench: Bench) -> None:
    await bench.declare({"a": "apples", "b": "bread"})
    shop = await bench.ready()
    assert await bench.goods() == {"shop-a": "apples", "shop-b": "bread"}
    assert shop["status"]["children"] == {"desired": 2, "ready": 2, "waiting": 0, "leaving": 0}
    assert shop["status"]["verified"]
    made = await bench.maps.get("shop-a")
    assert made["metadata"]["ownerReferences"][0]["uid"] == shop["metadata"]["uid"]
    assert [e["manager"] for e in made["metadata"]["managedFields"]] == ["homeostat/shops.shops.test.dev"]


async def test_a_change_of_the_parent_changes_its_children(bench: Bench) -> None:
    await bench.declare({"a": "apples", "b": "bread"})
    await bench.ready()
    await bench.declare({"a": "pears", "c": "cheese"})
    await bench.until_goods({"shop-a": "pears", "shop-c": "cheese"})
    shop = await bench.ready()
    assert shop["status"]["children"]["desired"] == 2


async def test_nothing_is_written_while_all_is_as_declared(bench: Bench) -> None:
    await bench.declare({"a": "apples", "b": "bread"})
    await bench.ready()
    before = (await bench.shops.list()).resource_version
    for _ in range(3):
        await bench.whole_pass()
    assert (await bench.shops.list()).resource_version == before


async def test_drift_on_a_child_is_repaired_at_once_and_what_others_added_stays(bench: Bench) -> None:
    await bench.declare({"a": "apples"})
    await bench.ready()
    await bench.maps.patch("shop-a", {"data": {"goods": "stones", "note": "theirs"}}, field_manager="kubectl-edit")
    await bench.until_goods({"shop-a": "apples"})
    assert (await bench.maps.get("shop-a"))["data"]["note"] == "theirs"
    await bench.maps.delete("shop-a")
    await bench.until_goods({"shop-a": "apples"})


async def test_a_deleted_parent_takes_its_children_along(bench: Bench) -> None:
    await bench.declare({"a": "apples"})
    await bench.ready()
    await bench.shops.delete("shop")
    await bench.until_goods({})


async def test_the_next_wave_waits_until_the_one_before_is_healthy(bench: Bench) -> None:
    crd = {
        "metadata": {"name": "doors.test.dev"},
        "spec": {
            "group": "test.dev",
            "scope": "Namespaced",
            "names": {"kind": "Door", "plural": "doors"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
                }
            ],
        },
    }
    await bench.client.kind("apiextensions.k8s.io/v1", "CustomResourceDefinition").create(crd)
    doors = bench.client.kind("test.dev/v1", "Door", namespace="default")
    closed = {"type": "Ready", "status": "False", "reason": "Closed", "message": "it is locked"}
    door = {"apiVersion": "test.dev/v1", "kind": "Door", "metadata": {"name": "front"}, "spec": {"width": 2}}
    await doors.create(door)
    await doors.patch("front", {"status": {"conditions": [closed]}}, subresource="status")
    await bench.declare({"a": "apples"}, waves={"a": 1}, extra=[door], metadata={"annotations": {ADOPT: "true"}})
    shop = await bench.until(lambda obj: "it is locked" in str(said(obj)))
    await bench.whole_pass()
    assert shop["status"]["children"] == {"desired": 2, "ready": 0, "waiting": 1, "leaving": 0}
    assert await bench.goods() == {}
    await doors.patch("front", {"status": {"conditions": [{**closed, "status": "True"}]}}, subresource="status")
    await bench.until_goods({"shop-a": "apples"})
    await bench.ready()


async def test_waves_are_made_in_their_order(bench: Bench) -> None:
    made: list[str] = []
    async with bench.maps.watch(labels="shop=yes") as events:
        await bench.declare({"a": "apples", "b": "bread", "c": "cheese"}, waves={"a": 3, "b": 2, "c": 1})
        async for event in events:
            if event.type == "ADDED":
                made.append(event.object["metadata"]["name"])
            if len(made) == 3:
                break
    assert made == ["shop-c", "shop-b", "shop-a"]
    await bench.ready()


async def test_what_cannot_be_composed_changes_nothing_and_says_why(bench: Bench) -> None:
    await bench.declare({"a": "apples"})
    await bench.ready()
    bench.composer.broken = "out of stock"
    await bench.declare({})
    shop = await bench.until(lambda obj: said(obj).get("reason") == "NotComposed")
    assert "out of stock" in said(shop)["message"]
    assert await bench.goods() == {"shop-a": "apples"}
    bench.composer.broken = ""
    await bench.declare({"b": "bread"})
    await bench.until_goods({"shop-b": "bread"})


@pytest.mark.parametrize(
    ("extra", "why"),
    [
        ({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "annotations": {AFTER: "Secret/k"}}}, "Secret/k"),
        ({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x"}}, "cannot own it"),
        ({"apiVersion": "test.dev/v1", "kind": "Unicorn", "metadata": {"name": "x"}}, "Unicorn"),
    ],
)
async def test_a_child_that_cannot_be_is_named(bench: Bench, extra: Object, why: str) -> None:
    await bench.declare({"a": "apples"}, extra=[extra])
    shop = await bench.until(lambda obj: said(obj).get("reason") == "NotComposed")
    assert why in said(shop)["message"]
    assert await bench.goods() == {}


async def test_a_child_that_the_server_refuses_is_named_in_the_parent(bench: Bench) -> None:
    bad = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": {"a b": "1"}}
    await bench.declare({"a": "apples"}, extra=[bad])
    shop = await bench.until(lambda obj: said(obj, "Degraded").get("status") == "True")
    assert "ConfigMap/x" in said(shop)["message"]
    assert shop["status"]["children"]["desired"] == 2


async def test_what_exists_already_is_not_taken_over_unless_adoption_is_said(bench: Bench) -> None:
    await bench.maps.create({"metadata": {"name": "shop-a"}, "data": {"goods": "gold"}}, field_manager="stranger")
    await bench.declare({"a": "apples"})
    shop = await bench.until(lambda obj: "not ours" in str(said(obj)))
    assert (await bench.maps.get("shop-a"))["data"] == {"goods": "gold"}
    await bench.declare({"b": "bread"})
    await bench.ready()
    assert (await bench.maps.get("shop-a"))["data"] == {"goods": "gold"}
    assert "ownerReferences" not in (await bench.maps.get("shop-a"))["metadata"]
    await bench.declare({"a": "apples"}, metadata={"annotations": {ADOPT: "true"}})
    await bench.ready()
    assert (await bench.maps.get("shop-a"))["data"] == {"goods": "apples"}
    assert shop["metadata"]["uid"] in str((await bench.maps.get("shop-a"))["metadata"]["ownerReferences"])


async def test_two_parents_with_the_same_child_do_not_fight(bench: Bench) -> None:
    extra = [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "shared"}, "data": {"of": "one"}}]
    await bench.declare({}, extra=extra)
    await bench.ready()
    await bench.declare({}, name="other", extra=extra)
    shop = await bench.until(lambda obj: said(obj).get("reason") == "NotComposed", "other")
    assert "is a child of default/shop already" in said(shop)["message"]


async def test_a_restart_writes_nothing_and_knows_what_to_take_away(bench: Bench) -> None:
    await bench.declare({"a": "apples", "b": "bread"}, waves={"b": 1})
    await bench.ready()
    await bench.engine.stop()
    before = (await bench.shops.list()).resource_version
    await bench.start()
    await bench.whole_pass()
    await bench.ready()
    assert (await bench.shops.list()).resource_version == before
    await bench.engine.stop()
    await bench.declare({"a": "apples"})  # while nobody looks
    await bench.start()
    await bench.until_goods({"shop-a": "apples"})
    await bench.ready()
    await bench.whole_pass()  # that one change is over; else the next would count with it
    await bench.declare({})
    await bench.until_goods({})
    await bench.ready()


async def test_what_goes_goes_in_reverse_and_more_than_a_few_want_a_word(bench: Bench) -> None:
    await bench.declare({"a": "apples", "b": "bread"}, waves={"b": 1})
    await bench.ready()
    await bench.engine.stop()
    await bench.declare({})
    await bench.start()
    await bench.until_goods({"shop-a": "apples"})
    shop = await bench.until(lambda obj: "would be deleted" in str(said(obj)))
    assert bench.engine.fleets["default/configmaps"].size == 1
    assert shop["status"]["children"]["leaving"] == 1


async def test_what_a_child_does_to_others_is_judged_as_a_whole(bench: Bench) -> None:
    shelves = {f"s{n}": "full" for n in range(20)}
    await bench.declare(shelves)
    await bench.ready()
    await bench.whole_pass()
    await bench.declare({})  # a composer gone wrong
    fleet = bench.engine.fleets["default/configmaps"]
    assert fleet.size == 20
    async with asyncio.timeout(WAIT_SECONDS):
        while not fleet.halts:
            await asyncio.sleep(0.005)
    assert len(await bench.goods()) >= 19
    shop = await bench.shops.get("shop")
    assert said(shop).get("status") != "True"


async def test_observe_only_makes_nothing(client: Client) -> None:
    bench = Bench(client)
    await bench.start(Mode.OBSERVE)
    try:
        await bench.declare({"a": "apples"})
        shop = await bench.until(lambda obj: "held by" in str(said(obj)))
        assert "ConfigMap/shop-a" in said(shop)["message"]
        assert await bench.goods() == {}
    finally:
        await bench.engine.stop()


async def test_what_is_wanted_no_more_before_it_was_ever_made_is_never_made(client: Client) -> None:
    bench = Bench(client)
    await bench.start(Mode.OBSERVE)
    try:
        await bench.declare({"a": "apples", "b": "bread"})
        shop = await bench.until(lambda obj: (obj.get("status") or {}).get("open", {}).get("total") == 2)
        assert [(one["name"], one["drift"]["op"]) for one in shop["status"]["open"]["objects"]] == [("shop-a", "create"), ("shop-b", "create")]
        await bench.declare({"a": "apples"})
        shop = await bench.until(lambda obj: obj["status"]["open"]["total"] == 1)
        assert shop["status"]["children"] == {"desired": 1, "ready": 0, "waiting": 0, "leaving": 0}
        gate = bench.engine.gate
        assert isinstance(gate, PolicyGate)
        gate.mode = Mode.ENFORCE
        gate.built_in.clear()
        bench.engine.regroup()
        shop = await bench.ready()
        assert await bench.goods() == {"shop-a": "apples"}
        assert bench.engine.fleets["default/configmaps"].size == 1, "nor is the other one still about to be"
        assert "open" not in shop["status"]
    finally:
        await bench.engine.stop()


async def test_the_kinds_of_children_are_written_down_before_one_is_made(client: Client) -> None:
    bench = Bench(client)
    await bench.start(Mode.OBSERVE)
    try:
        await bench.declare({"a": "apples"})
        await bench.until(lambda obj: "held by mode" in str(obj.get("status")))
        crd = await client.kind("apiextensions.k8s.io/v1", "CustomResourceDefinition").get("shops.shops.test.dev")
        assert crd["metadata"]["annotations"][CHILD_KINDS] == "v1/ConfigMap"
    finally:
        await bench.engine.stop()


async def test_a_child_of_the_same_name_and_another_owner_is_left_when_the_parent_wants_none(bench: Bench) -> None:
    await bench.declare({"a": "apples"})
    await bench.ready()
    await bench.engine.stop()
    await bench.maps.delete("shop-a")
    await bench.maps.create({"metadata": {"name": "shop-a"}, "data": {"goods": "gold"}}, field_manager="stranger")
    await bench.declare({})
    await bench.start()
    await bench.ready()
    assert (await bench.maps.get("shop-a"))["data"] == {"goods": "gold"}


class LampSpec(Spec):
    """A lamp of a house."""

    colour: str


class LampState(Spec):
    """The same, as it is."""

    colour: str


class Lamp(Provider[LampSpec, LampState], group="lamps.test.dev"):
    """A lamp in memory: a kind that the loop keeps itself."""

    def __init__(self) -> None:
        self.world: dict[str, str] = {}

    async def observe(self, spec: LampSpec) -> LampState | Absent:
        name = current().ref.name
        return LampState(colour=self.world[name]) if name in self.world else ABSENT

    async def apply(self, spec: LampSpec, diff: Diff) -> None:
        self.world[current().ref.name] = spec.colour

    async def delete(self, spec: LampSpec) -> None:
        self.world.pop(current().ref.name, None)


async def test_children_that_the_loop_keeps_itself_get_through_and_wait_for_nobody(client: Client) -> None:
    bench, lamps = Bench(client), Lamp()
    bench.engine = Engine(client, [lamps], PolicyGate(mode=Mode.ENFORCE), settle=0.005, composers=[bench.composer])
    await bench.engine.start()

    async def house(colour: str) -> None:
        lamp = {"apiVersion": "lamps.test.dev/v1", "kind": "Lamp", "spec": {"colour": colour}}
        extra = [{**lamp, "metadata": {"name": f"lamp-{n}"}} for n in range(5)]
        await bench.declare({}, extra=extra)
        await bench.ready()
        assert lamps.world == {f"lamp-{n}": colour for n in range(5)}

    try:
        await house("red")
        await house("blue")  # the cap of both fleets is one at a time
    finally:
        await bench.engine.stop()


async def test_the_default_policy_of_a_kind_of_children_can_be_seen(client: Client) -> None:
    bench = Bench(client)
    gate = PolicyGate(mode=Mode.ENFORCE)
    keeper = Keeper(client, gate)
    await keeper.start()
    bench.engine = Engine(client, [], gate, settle=0.005, composers=[bench.composer])
    keeper.attach(bench.engine)
    await bench.engine.start()
    try:
        await bench.declare({"a": "apples"})
        await bench.ready()
        policies = client.kind("homeostat.dev/v1alpha1", "GuardPolicy")
        async with asyncio.timeout(WAIT_SECONDS):
            while not [one for one in await policies.list() if (one.get("status") or {}).get("fleetSize")]:
                await asyncio.sleep(0.02)
        assert [one["metadata"]["name"] for one in await policies.list()] == ["configmaps"]
    finally:
        await bench.engine.stop()
        await keeper.stop()


class Ear(Listener):
    """Hears what became of each action."""

    def __init__(self) -> None:
        self.outcomes: list[Outcome] = []

    def acted(self, fleet: Fleet, drift: Drift, seconds: float, outcome: Outcome, error: str) -> None:
        self.outcomes.append(outcome)


async def test_a_server_out_of_reach_is_no_failure_of_the_change(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    bench, heard, lost = Bench(client), Ear(), 6
    whole = client._transport.send

    async def send(method: str, target: str, headers: Any, body: bytes) -> Any:
        nonlocal lost
        if lost and method == "PATCH" and "/configmaps/" in target:
            lost -= 1
            raise Unreachable("no way there", sent=True)
        return await whole(method, target, headers, body)

    bench.engine = Engine(
        client, [], PolicyGate(mode=Mode.ENFORCE), settle=0.005, composers=[bench.composer], listeners=[heard]
    )
    await bench.engine.start()
    monkeypatch.setattr(client._transport, "send", send)
    await bench.declare({"a": "apples"})
    await bench.ready()
    assert lost == 0
    assert set(heard.outcomes) == {Outcome.MOVED, Outcome.DONE}
    await bench.engine.stop()


@pytest.mark.parametrize("why", ["the server is out of reach", "its composer raises"])
async def test_what_could_not_be_composed_is_composed_again_though_nothing_was_declared_anew(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    monkeypatch.setattr(composed, "AGAIN_SECONDS", 0.05)
    monkeypatch.setattr(composed, "FAILED_SECONDS", 0.05)
    learn = ChildKinds.learn

    async def learned(kinds: ChildKinds, kind: tuple[str, str]) -> None:
        if why == "the server is out of reach":
            raise Unreachable("no way there", sent=False)
        await learn(kinds, kind)

    monkeypatch.setattr(ChildKinds, "learn", learned)
    bench.composer.broken = "not now" if why == "its composer raises" else ""
    await bench.declare({"a": "apples"})
    await bench.until(lambda obj: said(obj).get("reason") == "NotComposed")
    monkeypatch.setattr(ChildKinds, "learn", learn)
    bench.composer.broken = ""
    await bench.ready()
    assert await bench.goods() == {"shop-a": "apples"}


async def test_a_child_that_is_gone_and_still_heard_of_does_not_have_its_parent_composed_again_and_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bench.declare({"a": "apples"})
    await bench.ready()
    (controller,) = bench.engine.controllers.values()
    composed, times = controller.declarations, []
    compose = composed._compose  # type: ignore[attr-defined]

    async def counted(key: Key) -> None:
        times.append(key)
        await compose(key)

    monkeypatch.setattr(composed, "_compose", counted)
    informer = composed.kinds._informers["v1", "ConfigMap"]  # type: ignore[attr-defined]
    informer._task.cancel()  # no news any more
    other = Client(bench.client._transport)
    await other.kind("v1", "ConfigMap", namespace="default").delete("shop-a")
    assert informer.get("shop-a", "default") is not None
    await bench.declare({})
    async with asyncio.timeout(WAIT_SECONDS):
        while not times:
            await asyncio.sleep(0.005)
    await asyncio.sleep(0.5)
    assert len(times) < 20
