"""The mistakes that authors of providers and composers make: each is named with its place and a way out, and hurts nobody else."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from dataclasses import dataclass
from types import new_class
from typing import Annotated, Any

import pytest

from homeostat import ABSENT, Absent, Composer, Provider, Sensitive, Spec, Unknown, current
from homeostat.loop.engine import WORKERS, hints_of
from homeostat.loop.failure import Mistake, hidden, told
from homeostat.testing import TestPlane

GROUP = "mistakes.test.dev"


class LampSpec(Spec):
    colour: str = "red"
    code: Annotated[str, Sensitive()] = "hunter2"


class LampState(Spec):
    colour: str


class Lamp(Provider[LampSpec, LampState]):
    """One that works; the mistakes are made below it."""

    def __init__(self) -> None:
        self.world: dict[str, str] = {}

    async def observe(self, spec: LampSpec) -> Any:
        name = current().ref.name
        return LampState(colour=self.world[name]) if name in self.world else ABSENT

    async def apply(self, spec: LampSpec, diff: Any) -> Any:
        self.world[current().ref.name] = spec.colour

    async def delete(self, spec: LampSpec) -> None:
        self.world.pop(current().ref.name, None)


def lamp(kind: str, name: str = "hall") -> str:
    return f"{{apiVersion: {GROUP}/v1, kind: {kind}, metadata: {{name: {name}, namespace: default}}, spec: {{}}}}"


def message_of(obj: dict[str, Any] | None, condition: str) -> str:
    found = ((obj or {}).get("status") or {}).get("conditions") or []
    return next((one["message"] for one in found if one["type"] == condition), "")


def says(plane: TestPlane, kind: str, words: str, condition: str = "Degraded") -> str:
    found = plane.wait_for(f"{GROUP}/v1", kind, "hall", lambda obj: words in message_of(obj, condition))
    return message_of(found, condition)


class ReturnsNone(Lamp, Provider[LampSpec, LampState], group=GROUP):
    async def observe(self, spec: LampSpec) -> Any:
        return None


class ReturnsDict(Lamp, Provider[LampSpec, LampState], group=GROUP):
    async def observe(self, spec: LampSpec) -> Any:
        return {"colour": "red"}


class ReturnsClass(Lamp, Provider[LampSpec, LampState], group=GROUP):
    async def observe(self, spec: LampSpec) -> Any:
        return Absent


class ReturnsUnknown(Lamp, Provider[LampSpec, LampState], group=GROUP):
    async def observe(self, spec: LampSpec) -> Any:
        return Unknown("the bus is silent")


class NotAsync(Lamp, Provider[LampSpec, LampState], group=GROUP):
    def observe(self, spec: LampSpec) -> Any:
        return LampState(colour="red")


class WantsDict(Lamp, Provider[LampSpec, LampState], group=GROUP):
    async def wanted(self, spec: LampSpec) -> Any:
        return {"colour": "red"}


class SaysTrue(Lamp, Provider[LampSpec, LampState], group=GROUP):
    async def unhealthy(self, spec: LampSpec, state: LampState) -> Any:
        return True


class Exits(Lamp, Provider[LampSpec, LampState], group=GROUP):
    async def observe(self, spec: LampSpec) -> Any:
        raise SystemExit(3)


class AwaitsCancelled(Lamp, Provider[LampSpec, LampState], group=GROUP):
    async def observe(self, spec: LampSpec) -> Any:
        connection = asyncio.get_running_loop().create_future()
        connection.cancel()
        await connection


class Panic(BaseException):
    """As libraries in Rust raise it."""


class Panics(Lamp, Provider[LampSpec, LampState], group=GROUP):
    async def observe(self, spec: LampSpec) -> Any:
        raise Panic("index out of bounds")


class CountsThings(Lamp, Provider[LampSpec, LampState], group=GROUP):
    async def observe(self, spec: LampSpec) -> Any:
        return LampState(colour="green")

    def identity(self, spec: LampSpec, state: LampState) -> Any:
        return 42


class NoDomain(Lamp, Provider[LampSpec, LampState], group=GROUP):
    def domain(self, spec: LampSpec) -> str:
        return {}["zone"]  # type: ignore[no-any-return]


class NoText(Lamp, Provider[LampSpec, LampState], group=GROUP):
    async def observe(self, spec: LampSpec) -> Any:
        raise ValueError


@pytest.mark.parametrize(
    ("provider", "words"),
    [
        (ReturnsNone, "ReturnsNone.observe returned None; it returns a LampState, or ABSENT"),
        (ReturnsDict, "ReturnsDict.observe returned a dict; it returns a LampState"),
        (ReturnsClass, "ReturnsClass.observe returned the class Absent"),
        (ReturnsUnknown, "the bus is silent"),
        (NotAsync, "NotAsync.observe is to be written `async def`: it returned a LampState at once"),
        (WantsDict, "WantsDict.wanted returned a dict; it returns a LampState, or None"),
        (Exits, "it called sys.exit(3); raise an exception that says what is wrong instead (test_mistakes.py, line"),
        (AwaitsCancelled, "something that it awaits was cancelled; catch CancelledError there, and raise an exception that says what is wrong (test_mistakes.py, line"),
        (Panics, "it raised Panic: index out of bounds (test_mistakes.py, line"),
        (CountsThings, "CountsThings.identity returned 42; it returns a str, which is empty where there is none"),
        (NoDomain, "KeyError: 'zone' (test_mistakes.py, line"),
        (NoText, "ValueError (test_mistakes.py, line"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_cannot_be_seen_by_mistake_is_unknown_and_the_mistake_is_named(
    homeostat_session: TestPlane, provider: type[Lamp], words: str
) -> None:
    kind = provider.__name__
    with homeostat_session.loop(one := provider()):
        homeostat_session.apply(lamp(kind))
        says(homeostat_session, kind, words)
        assert one.world == {}
        homeostat_session.get("v1", "Namespace", "default")


def test_who_lets_cancellations_out_takes_no_worker_away(homeostat: TestPlane) -> None:
    with homeostat.loop(AwaitsCancelled(), Stays()):
        for number in range(2 * WORKERS):
            homeostat.apply(lamp("AwaitsCancelled", f"hall-{number}"))
        homeostat.apply(lamp("Stays"))
        says(homeostat, "Stays", "as declared", "Ready")


def test_a_verdict_on_health_that_is_no_text_is_named(homeostat_session: TestPlane) -> None:
    with homeostat_session.loop(SaysTrue()):
        homeostat_session.apply(lamp("SaysTrue"))
        says(homeostat_session, "SaysTrue", "SaysTrue.unhealthy returned True; it returns why as a str")


class NoApply(Provider[LampSpec, LampState], group=GROUP):
    async def observe(self, spec: LampSpec) -> Any:
        return ABSENT


class WrongKey(Lamp, Provider[LampSpec, LampState], group=GROUP):
    async def apply(self, spec: LampSpec, diff: Any) -> Any:
        return self.world["token"]


class ExitsActing(Lamp, Provider[LampSpec, LampState], group=GROUP):
    async def apply(self, spec: LampSpec, diff: Any) -> Any:
        raise SystemExit("usage: lamps")


class TellsSecret(Lamp, Provider[LampSpec, LampState], group=GROUP):
    async def apply(self, spec: LampSpec, diff: Any) -> Any:
        raise RuntimeError(f"https://admin:{spec.code}@lamps refuses {spec}")


class Slow(Lamp, Provider[LampSpec, LampState], group=GROUP):
    deadline = 0.05

    async def apply(self, spec: LampSpec, diff: Any) -> Any:
        await asyncio.sleep(60)


@pytest.mark.parametrize(
    ("provider", "words"),
    [
        (NoApply, "NoApply has no `apply`"),
        (WrongKey, "KeyError: 'token' (test_mistakes.py, line"),
        (ExitsActing, "it called sys.exit('usage: lamps')"),
        (TellsSecret, "https://admin:(sensitive)@lamps refuses LampSpec(colour='red', code='(sensitive)')"),
        (Slow, "it did not answer in time"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_an_action_that_fails_by_mistake_says_what_and_where_and_no_secret(
    homeostat_session: TestPlane, provider: type[Any], words: str
) -> None:
    with homeostat_session.loop(provider()):
        homeostat_session.apply(lamp(provider.__name__))
        assert "hunter2" not in says(homeostat_session, provider.__name__, words)


def test_a_secret_is_hidden_in_every_form_in_which_it_is_quoted() -> None:
    secret = "a'b/c\nd"
    forms = f"{secret} | {secret!r} | a%27b%2Fc%0Ad"
    assert hidden(forms, [secret]) == '(sensitive) | "(sensitive)" | (sensitive)'
    assert told(TimeoutError(), object()) == "it did not answer in time"


class Stays(Lamp, Provider[LampSpec, LampState], group=GROUP):
    async def delete(self, spec: LampSpec) -> None: ...


async def test_what_delete_does_not_take_away_is_said_to_be_there_still(homeostat: TestPlane) -> None:
    with homeostat.loop(Stays()):
        await asyncio.to_thread(homeostat.apply, lamp("Stays"))
        await asyncio.to_thread(says, homeostat, "Stays", "as declared", "Ready")
        async with homeostat.client() as client:
            await client.kind(f"{GROUP}/v1", "Stays").delete("hall")
        await asyncio.to_thread(says, homeostat, "Stays", "it was taken away, but is still there when it is looked at")


# What a class says of itself


@dataclass
class Plain:
    colour: str = "red"


class Named(Spec):
    color: str


def define(*bases: Any, **options: Any) -> type[Any]:
    return new_class("Defined", bases, options)


def test_a_kind_that_cannot_work_is_refused_where_it_is_written() -> None:
    with pytest.raises(TypeError, match=r"Defined: its spec is Plain, which is no Spec: make it a class of `homeostat.Spec`"):
        define(Provider[Plain, LampState], group=GROUP)  # type: ignore[type-var]
    with pytest.raises(TypeError, match="Defined: its state is dict, which is no Spec"):
        define(Provider[LampSpec, dict], group=GROUP)  # type: ignore[type-var]
    with pytest.raises(TypeError, match=r"Defined: name its types, as in class Defined\(Provider\[ItsSpec, ItsState\]"):
        define(Provider, group=GROUP)
    with pytest.raises(TypeError, match="Defined: its spec is Plain, which is no Spec"):
        define(Composer[Plain], group=GROUP)  # type: ignore[type-var]


def test_what_a_provider_shows_or_compares_has_to_be_there() -> None:
    with pytest.raises(TypeError, match="Defined: `shown` names color, and LampState has only colour"):
        define(Provider[LampSpec, LampState], group=GROUP, shown=("color",))
    with pytest.raises(TypeError, match=r"no field of Named \(color\) is one of LampSpec \(code, colour\), so nothing could ever differ"):
        define(Provider[LampSpec, Named], group=GROUP)


def test_what_is_asked_at_once_is_not_written_async() -> None:
    class Careless(Lamp):
        async def harmless(self, spec: LampSpec, diff: Any) -> bool:  # type: ignore[override]
            return False

    with pytest.raises(TypeError, match=r"Defined\.harmless is to be written `def`, without async: what it returned would be no answer"):
        define(Careless, Provider[LampSpec, LampState], group=GROUP)


def test_a_class_without_a_group_says_what_it_lacks() -> None:
    with pytest.raises(AttributeError, match=r"Lamp declares no kind yet: .*class Lamp\(Provider\[ItsSpec, ItsState\], group="):
        _ = Lamp.info


def test_a_loop_takes_instances_and_each_kind_once(homeostat_session: TestPlane) -> None:
    with pytest.raises(TypeError, match=re.escape("not <class 'testing.test_mistakes.Stays'>: write Stays()")), homeostat_session.loop(Stays):  # type: ignore[arg-type]
        pass
    other = define(Stays, Provider[LampSpec, LampState], group=GROUP, kind="Stays")
    wanted = "stayses.mistakes.test.dev is kept by two: testing.test_mistakes.Stays and .*Defined. Leave one of them out"
    with pytest.raises(ValueError, match=wanted), homeostat_session.loop(Stays(), other()):
        pass


class NotOpened(Lamp, Provider[LampSpec, LampState], group=GROUP):
    async def open(self, client: Any) -> None:
        raise ConnectionError("no answer")


def test_who_cannot_be_opened_is_named(homeostat_session: TestPlane) -> None:
    with pytest.raises(ConnectionError, match="no answer") as raised, homeostat_session.loop(NotOpened()):
        pass
    assert "NotOpened.open raised it" in raised.value.__notes__[0]


# Hints


@pytest.mark.parametrize(("hints", "words"), [([1], "returned a list; it is to be an `async def` that yields a Ref"), (None, "")])
async def test_hints_that_are_none_are_named(hints: Any, words: str) -> None:
    provider = Stays()
    provider.watch = lambda: hints  # type: ignore[method-assign]
    if not words:
        assert [hint async for hint in hints_of(provider)] == []
        return
    with pytest.raises(Mistake, match=f"Stays.watch {words}"):
        [hint async for hint in hints_of(provider)]


async def test_a_hint_is_a_ref() -> None:
    async def watch() -> Any:
        yield "hall"

    provider = Stays()
    provider.watch = watch  # type: ignore[method-assign]
    with pytest.raises(Mistake, match=r"Stays.watch gave a str; a hint is a Ref, as in Ref\("):
        [hint async for hint in hints_of(provider)]


# What blocks


class Blocks(Lamp, Provider[LampSpec, LampState], group=GROUP):
    async def observe(self, spec: LampSpec) -> Any:
        if not self.world:
            time.sleep(0.5)
        return await super().observe(spec)


def test_code_that_blocks_is_named_with_its_line(
    homeostat: TestPlane, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("homeostat.loop.standstill.STANDSTILL_SECONDS", 0.1)
    monkeypatch.setattr("homeostat.loop.standstill.LOOK_SECONDS", 0.02)
    with caplog.at_level(logging.WARNING, "homeostat.loop"), homeostat.loop(Blocks()):
        homeostat.apply(lamp("Blocks"))
        says(homeostat, "Blocks", "as declared", "Ready")
    (line,) = {re.sub(r"line \d+|for [\d.]+ s", "…", one.getMessage()) for one in caplog.records if "blocks" in one.getMessage()}
    assert line == (
        "test_mistakes.py, …, in observe, blocks: nothing else was done …; await what it waits for, or put it on a thread by `await asyncio.to_thread(...)`"
    )


# Composers


class Shop(Composer[LampSpec], group=GROUP):
    composed: Any = ()

    def compose(self, spec: LampSpec, parent: Any) -> Any:
        return self.composed(parent) if callable(self.composed) else self.composed


async def _later(parent: Any) -> list[Any]:
    return []


def _exits(parent: Any) -> Any:
    raise SystemExit(2)


@pytest.mark.parametrize(
    ("composed", "words"),
    [
        (None, "Shop.compose returned None; it returns the children as a list of manifests, or yields them"),
        ({"apiVersion": "v1", "kind": "ConfigMap"}, "Shop.compose returned a dict"),
        (_later, "Shop.compose is to be written `def`, without async"),
        (_exits, "it called sys.exit(2)"),
        (lambda parent: parent["metadata"]["labels"], "KeyError: 'labels' (test_mistakes.py, line"),
        (lambda parent: parent["spec"]["code"].nothing, "AttributeError: 'str' object has no attribute 'nothing'"),
        (lambda parent: [{}[parent["spec"]["code"]]], "KeyError: '(sensitive)'"),
    ],
)
def test_what_is_not_composed_by_mistake_is_named(homeostat_session: TestPlane, composed: Any, words: str) -> None:
    shop = Shop()
    shop.composed = composed
    with homeostat_session.loop(shop):
        homeostat_session.apply(lamp("Shop"))
        says(homeostat_session, "Shop", words)


def test_a_composer_of_its_own_kind_comes_to_an_end(homeostat: TestPlane) -> None:
    shop = Shop()
    shop.composed = lambda parent: [{"apiVersion": f"{GROUP}/v1", "kind": "Shop", "metadata": {"name": parent["metadata"]["name"] + "x"}}]
    with homeostat.loop(shop):
        homeostat.apply(lamp("Shop"))
        last = "hall" + "x" * 8

        def told(obj: dict[str, Any] | None) -> bool:
            return "more than 8 composers stand one below the other" in message_of(obj, "Degraded")

        homeostat.wait_for(f"{GROUP}/v1", "Shop", last, told, timeout=30)
        with pytest.raises(Exception, match="not found"):
            homeostat.get(f"{GROUP}/v1", "Shop", last + "x", "default")
