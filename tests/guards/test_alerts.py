"""Alerts: a person is told once, by a webhook, soon, and also that it is over; whatever fails on the way, and across restarts."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest
from click.testing import CliRunner
from msgspec.structs import replace
from tests.guards.fleets import ENFORCE, NOW, a_fleet, drift
from tests.guards.hook import Hook, hook
from tests.loop.told import KIND, House, eventually, house, until

from homeostat.cli import main
from homeostat.cli.controllers import assemble
from homeostat.guards import Mode, combine, decide, parse_policy
from homeostat.guards.alerts import CALM_SECONDS, MOST, OWED_SECONDS, Book, Situation, State, situations
from homeostat.guards.messages import VERSION, alertmanager, document, is_alertmanager
from homeostat.guards.policy import NEEDS_A_PERSON, Alert, AlertOn, Freeze, GuardPolicy
from homeostat.guards.posting import AGAIN
from homeostat.loop.fleet import Fleet, Op
from homeostat.model.clock import parse_time
from homeostat.model.kinds import InvalidSpec
from homeostat.providers.addresses import Hosts

HOURS = 3600.0
HALT = Situation(AlertOn.HALT, "halt/mass-drift/update", "mass-drift", "20 of 20", NOW, "0123456789abcdef", "Look.")
NAMES = [f"lamp-{i}" for i in range(20)]


@pytest.fixture
async def receiver() -> AsyncIterator[Hook]:
    async with hook() as one:
        yield one


@pytest.fixture
async def lamps(tmp_path: Path) -> AsyncIterator[House]:
    async with house(tmp_path) as one:
        yield one


async def policy(lamps: House, *alerts: dict[str, Any], **more: Any) -> None:
    spec = {"fleet": {"kinds": [KIND]}, "mode": "Enforce", "alerts": list(alerts), **more}
    await lamps.policies.apply({"metadata": {"name": "lamps"}, "spec": spec}, field_manager="test", force=True)
    await until(lambda: lamps.keeper._gate.policies.get("lamps") is not None)


async def black_out(lamps: House) -> None:
    """Somebody paints the whole house black."""
    lamps.provider.world.update(dict.fromkeys(NAMES, "black"))
    await lamps.whole_pass()


async def delivered(lamps: House, word: str) -> dict[str, Any]:
    """The condition AlertsDelivered of the policy, once it is this."""

    async def ask() -> dict[str, Any]:
        status = (await lamps.policies.get("lamps")).get("status") or {}
        found = [c for c in status.get("conditions", ()) if c["type"] == "AlertsDelivered" and c["status"] == word]
        return found[0] if found else {}

    return await eventually(ask)


# What needs a person


def standing(fleet: Fleet, policy: GuardPolicy = ENFORCE, on: tuple[AlertOn, ...] = tuple(AlertOn)) -> dict[str, Any]:
    return situations(policy, fleet, decide(policy, fleet, NOW), NOW, on)


def test_a_halt_is_one_situation_with_the_commands_out_of_it() -> None:
    fleet = a_fleet(20)
    drift(fleet, range(20))
    (one,) = standing(fleet).values()
    assert (one.on, one.guard, one.count) == (AlertOn.HALT, "mass-drift", 20)
    assert f"homeostat approve {one.plan}" in one.commands
    assert len(one.plan) == 16
    assert len(one.resources) == 5


def test_deletions_that_wait_for_a_yes_are_one() -> None:
    fleet = a_fleet(100)
    drift(fleet, range(15), op=Op.DELETE)
    (one,) = standing(fleet).values()
    assert (one.on, one.count) == (AlertOn.APPROVAL, 15)
    assert one.commands[:2] == ("homeostat plan shop", f"homeostat approve {one.plan}")


def test_a_fight_with_another_writer_is_one() -> None:
    fleet = a_fleet(5)
    drift(fleet, [1], reversals=(NOW - 3, NOW - 2, NOW - 1), by=("kubectl-edit",))
    (one,) = standing(fleet).values()
    assert one.on is AlertOn.FLAP
    assert "kubectl-edit" in one.reason


def test_an_action_that_fails_again_and_again_is_one_and_the_first_failures_are_not() -> None:
    fleet = a_fleet(5)
    drift(fleet, [1], failures=4, error="no bulb")
    assert standing(fleet) == {}
    drift(fleet, [2], failures=5, error="no power")
    (one,) = standing(fleet).values()
    assert one.on is AlertOn.ACTION_FAILED
    assert "no power" in one.reason


def test_a_freeze_is_told_only_to_those_who_ask_for_it() -> None:
    frozen = GuardPolicy(mode=ENFORCE.mode, freezes=(Freeze(reason="works", author="ana"),))
    assert standing(a_fleet(5), frozen, NEEDS_A_PERSON) == {}
    (one,) = standing(a_fleet(5), frozen).values()
    assert (one.on, one.commands[-1]) == (AlertOn.FROZEN, "homeostat unfreeze shop")


def test_routine_work_is_nothing() -> None:
    fleet = a_fleet(100)
    drift(fleet, range(12))  # the cap holds two of them, until the wave is done
    assert standing(fleet) == {}


# Who is owed a word


def book(remind_after: float = 4 * HOURS) -> Book:
    one = Book(remind_after)
    one.enter("shop", {HALT.about: HALT}, NOW, whole=True)
    return one


def say(one: Book, now: float) -> list[str]:
    """Says what is owed, and gives it."""
    owed = one.owed(now)
    for line, state in owed:
        one.said(line, state, line.situation.plan, now)
    return [str(state) for _, state in owed]


def test_it_is_owed_until_it_was_said_and_then_not_until_the_reminder() -> None:
    one = book()
    assert [state for _, state in one.owed(NOW)] == [State.FIRING]
    assert say(one, NOW + 5) == ["firing"]
    for hours in (0.1, 3.9):
        one.enter("shop", {HALT.about: HALT}, NOW + hours * HOURS, whole=True)
        assert say(one, NOW + hours * HOURS) == []
    assert say(one, NOW + 4.1 * HOURS) == ["reminder"]
    assert say(one, NOW + 4.2 * HOURS) == []
    assert one.next() == NOW + 8.1 * HOURS


def test_what_is_over_is_said_once_it_stays_over() -> None:
    one = book()
    say(one, NOW)
    one.enter("shop", {}, NOW + 10, whole=True)
    assert say(one, NOW + 11) == []
    assert one.next() == NOW + 10 + CALM_SECONDS
    assert say(one, NOW + 10 + CALM_SECONDS) == ["resolved"]
    assert one.lines == {}


def test_what_comes_and_goes_is_one_thing() -> None:
    one = book()
    say(one, NOW)
    for i in range(1, 100, 2):
        one.enter("shop", {}, NOW + i * 10, whole=True)
        assert say(one, NOW + i * 10 + 5) == []
        one.enter("shop", {HALT.about: HALT}, NOW + i * 10 + 10, whole=True)
        assert say(one, NOW + i * 10 + 10) == []


def test_what_is_not_seen_yet_is_not_over() -> None:
    one = book()
    say(one, NOW)
    one.enter("shop", {}, NOW + 10, whole=False)
    assert say(one, NOW + 1000) == []


def test_what_ended_before_anybody_could_be_told_is_told_as_over_and_not_for_ever() -> None:
    one = book()
    one.enter("shop", {}, NOW + 1, whole=True)
    assert [state for _, state in one.owed(NOW + CALM_SECONDS + 1)] == [State.RESOLVED]
    one.give_up(NOW + OWED_SECONDS + 2)
    assert (one.lines, one.dropped) == ({}, 1)


def test_there_is_an_end_to_what_is_kept() -> None:
    one = Book(HOURS)
    many = {f"halt/{i}": HALT for i in range(MOST + 7)}
    one.enter("shop", many, NOW, whole=True)
    assert (len(one.lines), one.dropped) == (MOST, 7)


def test_what_was_told_before_a_restart_is_not_told_again() -> None:
    before = book()
    say(before, NOW)
    after = Book(4 * HOURS)
    for _, kept in before.shown("hash"):
        after.restore(kept)
    after.enter("shop", {HALT.about: replace(HALT, reason="21 of 21", since=NOW + 99)}, NOW + 99, whole=True)
    assert say(after, NOW + 100) == []
    (line,) = after.lines.values()
    assert (line.situation.reason, line.situation.since) == ("21 of 21", NOW)


def test_another_plan_is_told_once_it_has_settled_and_less_often_the_more_it_moves() -> None:
    one = book(remind_after=0)
    say(one, NOW)
    told, now = [], NOW
    for number in range(1, 601):  # it moves every minute
        now = NOW + number * 60
        one.enter("shop", {HALT.about: replace(HALT, plan=f"{number:016x}")}, now, whole=True)
        assert say(one, now + 1) == []  # not before it has settled
        if say(one, now + CALM_SECONDS) == ["updated"]:
            told.append(number)
    assert told[0] == 1
    assert 5 <= len(told) <= 12
    assert say(one, now + 10 * HOURS) in ([], ["updated"])
    assert say(one, now + 20 * HOURS) == []


# What is sent


def line_of(situation: Situation = HALT) -> Any:
    one = Book(HOURS)
    one.enter("shop", {situation.about: situation}, NOW, whole=True)
    return next(iter(one.lines.values()))


def test_the_document_says_what_happened_and_what_to_do() -> None:
    said = document(line_of(), State.FIRING, ["lamps"], NOW + 1)
    assert said["version"] == VERSION == "homeostat.dev/alert/v1"
    expected = {"state": "firing", "on": "Halt", "severity": "critical", "fleet": "shop", "guard": "mass-drift"}
    assert expected.items() <= said.items()
    assert (said["plan"], said["whatToDo"], said["policies"]) == ("0123456789abcdef", "Look.", ["lamps"])
    assert said["text"].startswith("shop: Halt by mass-drift since 2027-01-15T08:00:00Z: 20 of 20")


def test_its_id_is_the_same_from_the_first_word_to_the_last() -> None:
    line = line_of()
    first = document(line, State.FIRING, [], NOW)
    line.ended = NOW + 60
    last = document(line, State.RESOLVED, [], NOW + 90)
    assert first["id"] == last["id"]
    assert (last["state"], last["ended"]) == ("resolved", "2027-01-15T08:01:00Z")


def test_a_secret_in_a_reason_is_masked() -> None:
    told = Situation(AlertOn.UNKNOWN, "unknown", "unknown", "GET https://ana:s3cr3t@db failed", NOW)
    assert "s3cr3t" not in orjson.dumps(document(line_of(told), State.FIRING, [], NOW)).decode()


def test_alertmanager_gets_what_it_understands() -> None:
    assert is_alertmanager("https://am.example.com:9093/api/v2/alerts")
    assert is_alertmanager("https://example.com/am/api/v2/alerts/")
    assert not is_alertmanager("https://example.com/hook")
    line = line_of()
    firing = alertmanager(line, State.FIRING, ["lamps"], NOW, 4 * HOURS)
    assert firing["labels"]["alertname"] == "HomeostatHalt"
    assert firing["startsAt"] == "2027-01-15T08:00:00Z"
    assert parse_time(firing["endsAt"]) > NOW + 4 * HOURS  # it stays until the reminder
    line.ended = NOW + 60
    resolved = alertmanager(line, State.RESOLVED, ["lamps"], NOW + 90, 4 * HOURS)
    assert resolved["labels"] == firing["labels"]
    assert resolved["endsAt"] == "2027-01-15T08:01:00Z"


# What a policy may say


@pytest.mark.parametrize(
    "alert",
    [
        {"webhook": "ftp://example.com"},
        {"webhook": "https://ana:secret@example.com/hook"},
        {"webhook": "http://example.com/hook", "secret": {"namespace": "a", "name": "b"}},
        {"webhook": "https://example.com/hook", "on": ["Everything"]},
    ],
)
def test_a_bad_receiver_is_refused(alert: dict[str, Any]) -> None:
    with pytest.raises(InvalidSpec):
        parse_policy({"spec": {"alerts": [alert]}})


def test_where_several_policies_guard_a_fleet_all_receivers_are_told() -> None:
    one, two = Alert(webhook="https://a.example.com"), Alert(webhook="https://b.example.com")
    both = combine([GuardPolicy(alerts=(one,)), GuardPolicy(alerts=(two, one))], 10)
    assert both.alerts == (one, two)


# From the loop to the receiver


async def test_a_halt_arrives_at_once_and_so_does_its_end(lamps: House, receiver: Hook) -> None:
    await lamps.start()
    await policy(lamps, {"webhook": receiver.url})
    await lamps.lit(NAMES)
    lamps.provider.world.update(dict.fromkeys(NAMES, "black"))
    await lamps.whole_pass()
    await until(lambda: any(fleet.halts for fleet in lamps.engine.fleets.values()))
    halted = asyncio.get_running_loop().time()
    said = (await receiver.count(1))[0]
    told_after = receiver.arrived[0][0] - halted
    assert told_after < 1, f"a person was told {told_after:.3f} s after the halt"
    assert (said["state"], said["on"], said["fleet"], said["policies"]) == ("firing", "Halt", "lamps", ["lamps"])

    async def the_one_to_approve() -> bool:  # the plan may grow until the last of the twenty was looked at
        return [halt["plan"] for halt in await halts(lamps)] == [receiver.messages[-1]["plan"]]

    await eventually(the_one_to_approve)
    assert {message["id"] for message in receiver.messages} == {said["id"]}
    lamps.provider.world.update(dict.fromkeys(NAMES, "red"))
    await lamps.calm()
    over = (await receiver.until(lambda messages: messages[-1]["state"] == "resolved"))[-1]
    assert over["id"] == said["id"]
    await delivered(lamps, "True")
    await lamps.stop()


async def halts(lamps: House) -> list[dict[str, Any]]:
    return ((await lamps.policies.get("lamps")).get("status") or {}).get("halts") or []


async def test_a_receiver_of_the_whole_loop_hears_of_fleets_that_no_policy_speaks_of(
    lamps: House, receiver: Hook
) -> None:
    await lamps.start(always=(Alert(webhook=receiver.url),))
    await lamps.lit(NAMES)
    await black_out(lamps)
    said = (await receiver.count(1))[0]
    assert (said["fleet"], said["policies"]) == (f"default/{KIND}", [KIND])
    await lamps.stop()


async def test_a_restart_does_not_tell_it_again_and_still_tells_its_end(lamps: House, receiver: Hook) -> None:
    await lamps.start()
    await policy(lamps, {"webhook": receiver.url})
    await lamps.lit(NAMES)
    await black_out(lamps)
    said = (await receiver.count(1))[0]
    await asyncio.sleep(0.3)  # another plan may have been told

    async def kept() -> bool:
        status = (await lamps.policies.get("lamps")).get("status") or {}
        return [alert.get("plan") for alert in status.get("alerts") or ()] == [receiver.messages[-1]["plan"]]

    await eventually(kept)
    assert receiver.url not in str((await lamps.policies.get("lamps"))["status"])
    await lamps.stop()
    before = len(receiver.messages)
    await lamps.start()
    await until(lambda: any(fleet.halts for fleet in lamps.engine.fleets.values()))
    await lamps.whole_pass()
    await asyncio.sleep(0.2)
    assert len(receiver.messages) == before
    lamps.provider.world.update(dict.fromkeys(NAMES, "red"))
    await lamps.calm()
    over = (await receiver.until(lambda messages: messages[-1]["state"] == "resolved"))[-1]
    assert over["id"] == said["id"]
    await lamps.stop()


async def test_what_could_not_be_delivered_is_said_in_the_policy_and_tried_again(
    lamps: House, receiver: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(AGAIN), "delay", lambda self, failures, source: 0.02)
    receiver.status = 503
    await lamps.start()
    await policy(lamps, {"webhook": f"{receiver.url}?key=s3cr3t"})
    await lamps.lit(NAMES)
    await black_out(lamps)
    failing = await delivered(lamps, "False")
    assert "it answered 503" in failing["message"]
    assert "127.0.0.1" in failing["message"]
    assert "s3cr3t" not in failing["message"]
    receiver.status = 200
    assert (await receiver.count(1))[0]["state"] == "firing"
    await delivered(lamps, "True")
    assert len(receiver.requests) > 1
    await lamps.stop()


async def test_a_receiver_that_hangs_holds_neither_the_loop_nor_others_up(lamps: House, receiver: Hook) -> None:
    receiver.stuck = asyncio.Event()
    async with hook() as other:
        await lamps.start()
        await policy(lamps, {"webhook": receiver.url}, {"webhook": other.url})
        await lamps.lit(NAMES)
        await black_out(lamps)
        await other.count(1)
        await lamps.declare("new", "red")
        await until(lambda: "new" in lamps.provider.world)
        assert receiver.messages == []
        await lamps.stop()
        receiver.stuck.set()


async def test_a_secret_proves_who_we_are(lamps: House, receiver: Hook) -> None:
    secret = {"metadata": {"name": "hook"}, "stringData": {"token": "t0ken\n", "hmac": "key"}}
    await lamps.client.kind("v1", "Secret", namespace="default").create(secret)
    await lamps.start()
    await policy(lamps, {"webhook": receiver.url, "secret": {"namespace": "default", "name": "hook"}})
    await lamps.lit(NAMES)
    await black_out(lamps)
    await receiver.count(1)
    headers, body = receiver.requests[0]
    assert headers["Authorization"] == "Bearer t0ken"
    assert headers["Homeostat-Signature"] == "sha256=" + hmac.new(b"key", body, hashlib.sha256).hexdigest()
    await lamps.stop()


async def test_a_secret_that_is_not_there_is_a_failure_that_names_it(lamps: House, receiver: Hook) -> None:
    await lamps.start()
    await policy(lamps, {"webhook": receiver.url, "secret": {"namespace": "default", "name": "hook"}})
    await lamps.lit(NAMES)
    await black_out(lamps)
    assert "default/hook" in (await delivered(lamps, "False"))["message"]
    assert receiver.requests == []
    await lamps.stop()


async def test_alertmanager_is_sent_a_list(lamps: House) -> None:
    async with hook("/api/v2/alerts") as receiver:
        await lamps.start()
        await policy(lamps, {"webhook": receiver.url})
        await lamps.lit(NAMES)
        await black_out(lamps)
        (alert,) = (await receiver.count(1))[0]
        assert alert["labels"]["fleet"] == "lamps"
        assert "homeostat approve" in alert["annotations"]["commands"]
        await lamps.stop()


async def test_it_is_told_again_while_it_lasts(lamps: House, receiver: Hook) -> None:
    await lamps.start()
    await policy(lamps, {"webhook": receiver.url, "remindAfter": "200ms"})
    await lamps.lit(NAMES)
    await black_out(lamps)
    messages = await receiver.until(lambda said: [m["state"] for m in said].count("reminder") >= 2)
    assert [m["state"] for m in messages].count("firing") == 1
    await lamps.stop()


async def test_what_leads_to_the_metadata_service_is_not_connected_to(lamps: House) -> None:
    await lamps.start(hosts=Hosts())
    await policy(lamps, {"webhook": "http://169.254.169.254/latest"})
    await lamps.lit(NAMES)
    await black_out(lamps)
    assert "metadata service" in (await delivered(lamps, "False"))["message"]
    await lamps.stop()


async def test_nothing_more_is_written_while_a_halt_lasts(lamps: House, receiver: Hook) -> None:
    await lamps.start()
    await policy(lamps, {"webhook": receiver.url})
    await lamps.lit(NAMES)
    await black_out(lamps)
    await receiver.count(1)
    await delivered(lamps, "True")
    await asyncio.sleep(0.8)  # the plan settles, and the policy's report
    told = len(receiver.messages)
    before = lamps.server.plane.store.revision
    for _ in range(3):
        await lamps.whole_pass()
        await asyncio.sleep(0.05)
    await asyncio.sleep(0.6)
    assert lamps.server.plane.store.revision == before
    assert len(receiver.messages) == told
    await lamps.stop()


# On the command line


async def test_the_loop_of_the_command_line_tells(lamps: House, receiver: Hook) -> None:
    keeper, engine = assemble(lamps.client, [lamps.provider], Mode.ENFORCE, alerts=(Alert(webhook=receiver.url),))
    lamps.keeper, lamps.engine = keeper, engine
    await keeper.start()
    await engine.start()
    await lamps.lit(NAMES)
    await black_out(lamps)
    assert (await receiver.count(1))[0]["state"] == "firing"
    await lamps.event(KIND, "Halted")
    await lamps.stop()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["controllers", "--alert", "example.com"], "is no URL"),
        (["up", "--no-loop", "--alert", "https://alerts.example.com/hook"], "for a loop here"),
    ],
)
def test_a_flag_that_could_tell_nobody_is_refused(words: list[str], said: str) -> None:
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 2
    assert said in done.output


def test_reminders_are_every_four_hours_unless_said() -> None:
    assert Alert(webhook="https://a.example.com").remind_after == timedelta(hours=4)
