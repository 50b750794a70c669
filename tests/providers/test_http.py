"""HttpResource: a thing behind a REST API, under the real engine and against a real server."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from tests.providers.bench import WAIT_SECONDS, Bench, condition, running
from tests.providers.shelf import Shelf, shelf

from homeostat.loop.declarations import ADOPT
from homeostat.model.errors import ApiError
from homeostat.providers.addresses import Forbidden, Hosts
from homeostat.providers.http import HttpResource
from homeostat.providers.http.exchange import retry_after
from homeostat.providers.http.pages import has_more


@pytest.fixture
async def things() -> AsyncIterator[Shelf]:
    async with shelf() as one:
        yield one


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with running(tmp_path, HttpResource) as bench:
        yield bench


def spec(things: Shelf, body: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"url": f"{things.url}/things/lamp", "body": body, **more}


def numbered(things: Shelf, body: dict[str, Any], **more: Any) -> dict[str, Any]:
    """One of those to which the server gives an id."""
    create = {"method": "POST", "url": f"{things.url}/things"}
    return {"url": f"{things.url}/things/{{id}}", "create": create, "body": body, **more}


async def eventually(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while not holds():
            await asyncio.sleep(0.005)


async def test_what_is_declared_is_put_there_once(bench: Bench, things: Shelf) -> None:
    await bench.declare("lamp", spec(things, {"colour": "red", "size": {"w": 1}}))
    obj = await bench.ready("lamp")
    assert things.things == {"lamp": {"colour": "red", "size": {"w": 1}}}
    assert things.calls == [("PUT", "lamp")]
    assert obj["status"]["identity"] == f"{things.url}/things/lamp"
    await bench.whole_pass()
    assert things.writes() == 1


async def test_drift_is_repaired_and_the_fields_of_others_stay(bench: Bench, things: Shelf) -> None:
    await bench.declare("lamp", spec(things, {"colour": "red", "size": {"w": 1}}))
    await bench.ready("lamp")
    things.things["lamp"] = {"colour": "green", "size": {"w": 1, "h": 2}, "lastSeen": "today"}
    bench.look_again()
    await eventually(lambda: things.things["lamp"]["colour"] == "red")
    assert things.things["lamp"] == {"colour": "red", "size": {"w": 1, "h": 2}, "lastSeen": "today"}


async def test_a_patch_has_only_what_differs_and_takes_away_what_is_declared_no_more(
    bench: Bench, things: Shelf
) -> None:
    patched = {"update": {"method": "PATCH"}}
    await bench.declare("lamp", spec(things, {"colour": "red", "watts": 5}, **patched))
    await bench.ready("lamp")
    things.things["lamp"]["note"] = "not ours"
    await bench.declare("lamp", spec(things, {"colour": "blue"}, **patched))
    await bench.ready("lamp")
    assert things.things["lamp"] == {"colour": "blue", "note": "not ours"}
    assert things.calls == [("PUT", "lamp"), ("PATCH", "lamp")]


async def test_what_a_server_adds_inside_of_lists_is_no_drift(bench: Bench, things: Shelf) -> None:
    await bench.declare("lamp", spec(things, {"rules": [{"port": 80}, {"port": 443}]}))
    await bench.ready("lamp")
    things.things["lamp"]["rules"] = [{"port": 80, "id": 1}, {"port": 443, "id": 2}]
    await bench.whole_pass()
    assert things.writes() == 1
    things.things["lamp"]["rules"][1]["port"] = 8443
    bench.look_again()
    await eventually(lambda: things.things["lamp"]["rules"][1]["port"] == 443)


async def test_deletion_takes_it_away_first_and_is_content_if_it_is_gone(bench: Bench, things: Shelf) -> None:
    await bench.declare("lamp", spec(things, {"colour": "red"}))
    await bench.ready("lamp")
    await bench.kind.delete("lamp")
    await bench.gone("lamp")
    assert things.things == {}
    await bench.declare("lamp", spec(things, {"colour": "red"}))
    await bench.ready("lamp")
    things.things.clear()
    await bench.kind.delete("lamp")
    await bench.gone("lamp")


async def test_what_exists_already_is_held_until_adoption_is_said(bench: Bench, things: Shelf) -> None:
    things.things["lamp"] = {"colour": "gold"}
    await bench.declare("lamp", spec(things, {"colour": "red"}))
    assert "not ours" in await bench.reason("lamp", "Held")
    assert things.writes() == 0
    await bench.declare("lamp", spec(things, {"colour": "red"}), {ADOPT: "true"})
    await bench.ready("lamp")
    assert things.things["lamp"] == {"colour": "red"}


@pytest.mark.parametrize("status", [401, 403, 500, 302, 418])
async def test_an_answer_that_does_not_say_absent_is_unknown_and_nothing_is_made_on_it(
    bench: Bench, things: Shelf, status: int
) -> None:
    things.refuses["GET"] = status, "no"
    await bench.declare("lamp", spec(things, {"colour": "red"}))
    await bench.reason("lamp", "Unreadable")
    assert things.writes() == 0


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"data": 1}', b""])
async def test_an_answer_that_cannot_be_understood_is_unknown(bench: Bench, things: Shelf, body: bytes) -> None:
    things.answers = [web.Response(body=body) for _ in range(20)]
    await bench.declare("lamp", spec(things, {"colour": "red"}, statePath="data.attributes"))
    await bench.reason("lamp", "Unreadable")
    assert things.writes() == 0


async def test_the_codes_for_absence_can_be_said(bench: Bench, things: Shelf) -> None:
    things.refuses["GET"] = 403, "there is no such lamp, and you may not know it"
    await bench.declare("lamp", spec(things, {"colour": "red"}, absentCodes=[403]))
    await eventually(lambda: things.things.get("lamp") == {"colour": "red"})
    things.refuses.clear()
    await bench.ready("lamp")


async def test_state_and_request_may_be_wrapped(bench: Bench, things: Shelf) -> None:
    wrapped = {"statePath": "data.attributes", "requestPath": "data.attributes"}
    await bench.declare("lamp", spec(things, {"colour": "red"}, **wrapped))
    await bench.ready("lamp")
    assert things.things["lamp"] == {"data": {"attributes": {"colour": "red"}}}


async def test_a_change_is_tied_to_what_was_seen(bench: Bench, things: Shelf) -> None:
    await bench.declare("lamp", spec(things, {"colour": "red"}))
    await bench.ready("lamp")
    assert [h["if-none-match"] for h in things.headers if "if-none-match" in h] == ["*"]
    things.things["lamp"]["colour"] = "green"
    things.headers.clear()
    bench.look_again()
    await eventually(lambda: things.things["lamp"]["colour"] == "red")
    assert [h["if-match"] for h in things.headers if "if-match" in h]


async def test_who_was_faster_is_not_overwritten_but_looked_at_again(bench: Bench, things: Shelf) -> None:
    await bench.declare("lamp", spec(things, {"colour": "red"}))
    await bench.ready("lamp")
    provider, real = bench.provider, bench.provider.apply
    raced: list[str] = []

    async def race(declared: Any, diff: Any) -> None:
        if not raced:
            raced.append("once")
            things.things["lamp"]["note"] = "somebody else's"
        await real(declared, diff)

    provider.apply = race  # type: ignore[method-assign]
    things.things["lamp"]["colour"] = "green"
    bench.look_again()
    await eventually(lambda: things.things["lamp"]["colour"] == "red")
    assert things.things["lamp"] == {"colour": "red", "note": "somebody else's"}
    assert things.writes("PUT") == 3  # made; refused; done


async def test_the_server_gives_the_id_and_a_restart_knows_it(bench: Bench, things: Shelf) -> None:
    await bench.declare("lamp", numbered(things, {"colour": "red"}))
    obj = await bench.ready("lamp")
    assert obj["status"]["identity"] == f"{things.url}/things/t1"
    await bench.stop()
    await bench.start()
    await bench.whole_pass()
    assert things.calls == [("POST", "")]
    await bench.declare("lamp", numbered(things, {"colour": "blue"}))
    await bench.ready("lamp")
    assert things.things == {"t1": {"colour": "blue"}}
    await bench.kind.delete("lamp")
    await bench.gone("lamp")
    assert things.things == {}


async def test_a_lost_answer_makes_no_second_thing_where_the_server_knows_keys(bench: Bench, things: Shelf) -> None:
    things.lose.add("POST")
    await bench.declare("lamp", numbered(things, {"colour": "red"}))
    await bench.reason("lamp", "ActionFailed")
    await bench.declare("lamp", numbered(things, {"colour": "blue"}))  # an edit in between is no second thing either
    await bench.ready("lamp")
    assert things.things == {"t1": {"colour": "blue"}}
    assert things.writes("POST") == 2


async def test_a_lost_answer_makes_no_second_thing_where_it_can_be_found(bench: Bench, things: Shelf) -> None:
    things.honours_keys = False
    things.lose.add("POST")
    find = {"url": f"{things.url}/things?name=lamp", "items": "items", "match": {"name": "lamp"}}
    await bench.declare("lamp", numbered(things, {"name": "lamp", "colour": "red"}, find=find))
    await bench.ready("lamp")
    assert things.writes("POST") == 1
    assert list(things.things) == ["t1"]


async def test_one_that_vanished_is_made_anew_and_not_taken_for_the_old(bench: Bench, things: Shelf) -> None:
    await bench.declare("lamp", numbered(things, {"colour": "red"}))
    await bench.ready("lamp")
    things.things.clear()
    bench.look_again()
    await eventually(lambda: "t2" in things.things)
    await bench.until("lamp", lambda obj: obj["status"]["identity"].endswith("/t2"))


async def test_two_that_match_are_one_too_many(bench: Bench, things: Shelf) -> None:
    things.things = {"a": {"name": "lamp"}, "b": {"name": "lamp"}}
    find = {"url": f"{things.url}/things", "items": "items", "match": {"name": "lamp"}}
    await bench.declare("lamp", numbered(things, {"name": "lamp"}, find=find))
    assert "2 things" in await bench.reason("lamp", "Unreadable")
    assert things.writes() == 0


@pytest.mark.parametrize(
    ("auth", "header", "value"),
    [
        ({"secret": "key"}, "authorization", "Bearer s3cret"),
        ({"secret": "key", "type": "Basic"}, "authorization", "Basic bWU6cDRzcw=="),
        ({"secret": "key", "type": "Header", "header": "X-Api-Key"}, "x-api-key", "s3cret"),
    ],
)
async def test_who_we_are_is_proven_by_a_secret(
    bench: Bench, things: Shelf, auth: dict[str, str], header: str, value: str
) -> None:
    await bench.secret("key", token="s3cret\n", username="me", password="p4ss")
    await bench.declare("lamp", spec(things, {"colour": "red"}, auth=auth))
    await bench.ready("lamp")
    assert {headers.get(header) for headers in things.headers} == {value}


async def test_a_missing_secret_is_unknown_and_nothing_is_sent(bench: Bench, things: Shelf) -> None:
    await bench.declare("lamp", spec(things, {"colour": "red"}, auth={"secret": "key"}))
    assert "default/key" in await bench.reason("lamp", "Unreadable")
    assert things.headers == []


@pytest.mark.parametrize(("held", "words"), [({"other": "x"}, "Secret default/key has no key 'token'"), ({"token": ""}, "Secret default/key, for `auth`, is no line")])
async def test_a_secret_that_was_emptied_is_named_and_nothing_is_sent(bench: Bench, things: Shelf, held: dict[str, str], words: str) -> None:
    await bench.secret("key", **held)
    await bench.declare("lamp", spec(things, {"colour": "red"}, auth={"secret": "key"}))
    said = await bench.reason("lamp", "Unreadable")
    assert words in said
    assert "MissingValue" not in said
    assert things.headers == []


async def test_a_secret_is_in_no_status_even_if_the_server_says_it(
    bench: Bench, things: Shelf, caplog: pytest.LogCaptureFixture
) -> None:
    await bench.secret("key", token="s3cret")
    things.answers = [web.Response(status=401, text="bad token s3cret, go away") for _ in range(20)]
    await bench.declare("lamp", spec(things, {"colour": "red"}, auth={"secret": "key"}))
    assert "bad token ***, go away" in await bench.reason("lamp", "Unreadable")
    assert "s3cret" not in str(await bench.kind.get("lamp"))
    assert "s3cret" not in caplog.text


async def test_a_redirect_to_another_server_is_not_followed(bench: Bench, things: Shelf) -> None:
    await bench.secret("key", token="s3cret")
    async with shelf() as thief:
        away = {"Location": f"{thief.url}/things/lamp"}
        things.answers = [web.Response(status=302, headers=away) for _ in range(20)]
        await bench.declare("lamp", spec(things, {"colour": "red"}, auth={"secret": "key"}))
        assert "another server" in await bench.reason("lamp", "Unreadable")
        assert thief.headers == []


async def test_a_redirect_within_the_server_is_followed_for_reading(bench: Bench, things: Shelf) -> None:
    things.things["new"] = {"colour": "red"}
    things.answers = [web.Response(status=301, headers={"Location": "/things/new"})]
    await bench.declare("lamp", spec(things, {"colour": "red"}), {ADOPT: "true"})
    await bench.ready("lamp")
    assert things.writes() == 0


async def test_what_is_not_at_the_end_of_a_redirect_is_unknown_and_not_made(bench: Bench, things: Shelf) -> None:
    things.answers = [answer for _ in range(20) for answer in (web.Response(status=302, headers={"Location": "/login"}), web.Response(status=404))]
    await bench.declare("lamp", spec(things, {"colour": "red"}))
    assert f"leads to {things.url}/login, which answered 404" in await bench.reason("lamp", "Unreadable")
    assert things.writes() == 0


async def test_a_part_of_an_answer_is_none(bench: Bench, things: Shelf) -> None:
    things.answers = [web.Response(status=206, text='{"size": 1}') for _ in range(20)]
    await bench.declare("lamp", spec(things, {"colour": "red"}), {ADOPT: "true"})
    assert "answered 206" in await bench.reason("lamp", "Unreadable")
    assert things.writes() == 0


async def test_who_is_not_on_the_first_page_of_a_list_may_be_on_another(bench: Bench, things: Shelf) -> None:
    things.answers = [web.json_response({"items": [], "nextPageToken": "b"}) for _ in range(20)]
    find = {"url": f"{things.url}/things", "items": "items", "match": {"name": "lamp"}}
    await bench.declare("lamp", numbered(things, {"name": "lamp"}, find=find))
    assert "in pages" in await bench.reason("lamp", "Unreadable")
    assert things.writes() == 0


@pytest.mark.parametrize(
    ("document", "items", "link", "more"),
    [
        ([], "", "", False),
        ([], "", '</things?page=2>; rel="next"', True),
        ([], "", "</things?page=9>; rel=last, </things?page=2>; rel=next", True),
        ([], "", '</things?page=1>; rel="first"', False),
        ({"items": []}, "items", "", False),
        ({"items": [], "next": None, "has_more": False}, "items", "", False),
        ({"items": [], "has_more": True}, "items", "", True),
        ({"value": [], "@odata.nextLink": "https://x/?skip=9"}, "value", "", True),
        ({"items": [], "metadata": {"continue": "abc"}}, "items", "", True),
        ({"items": [], "metadata": {"continue": ""}}, "items", "", False),
        ({"data": {"items": [], "page_info": {"next_cursor": "abc"}}}, "data.items", "", True),
        ({"items": [], "_links": {"next": {"href": "/things?page=2"}}}, "items", "", True),
        ({"items": [], "_links": {"next": {"href": None}}}, "items", "", False),
        ({"items": [{"next": "station"}]}, "items", "", False),
    ],
)
def test_lists_say_in_many_ways_that_there_is_more(document: Any, items: str, link: str, more: bool) -> None:
    assert has_more(document, items, link) is more


async def test_a_collection_at_another_server_is_refused(bench: Bench, things: Shelf) -> None:
    create = {"method": "POST", "url": "http://127.0.0.2:9/things"}
    await bench.declare("lamp", {**numbered(things, {"colour": "red"}), "create": create})
    assert "another server" in await bench.reason("lamp", "Unreadable")


@pytest.mark.parametrize(
    "host", ["169.254.169.254", "[fe80::1]", "[::ffff:169.254.169.254]", "[64:ff9b::a9fe:a9fe]", "0.0.0.0", "[fd00:ec2::254]"]
)
async def test_addresses_that_are_not_for_us_are_refused_however_they_are_written(bench: Bench, host: str) -> None:
    await bench.declare("lamp", {"url": f"http://{host}/latest/meta-data", "body": {"a": 1}})
    assert "only an administrator can allow it" in await bench.reason("lamp", "Unreadable")


async def test_a_name_that_leads_to_such_an_address_is_refused_when_it_is_resolved() -> None:
    with pytest.raises(Forbidden, match=r"0xa9fea9fe \(169\.254\.169\.254\) is the metadata service"):
        await Hosts().resolver().resolve("0xa9fea9fe", 80)  # names take many forms; all end in an address
    found = await Hosts(["0xa9fea9fe"]).resolver().resolve("0xa9fea9fe", 80)
    assert [one["host"] for one in found] == ["169.254.169.254"]


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "10.0.0.1", "192.168.1.1", "8.8.8.8", "2001:db8::1", "::ffff:8.8.8.8"])
def test_other_addresses_are_not(host: str) -> None:
    Hosts().check(host, 443)


async def test_only_hosts_that_are_allowed_are_talked_to(tmp_path: Path, things: Shelf) -> None:
    async with running(tmp_path, lambda: HttpResource(allowed_hosts=["api.example.com"])) as bench:
        await bench.declare("lamp", spec(things, {"colour": "red"}))
        assert "not among the hosts" in await bench.reason("lamp", "Unreadable")
    assert things.headers == []


async def test_an_answer_without_end_is_not_read(tmp_path: Path, things: Shelf) -> None:
    things.answers = [web.Response(body=b'{"a": "' + b"x" * 5000 + b'"}') for _ in range(20)]
    async with running(tmp_path, lambda: HttpResource(answer_limit=4096)) as bench:
        await bench.declare("lamp", spec(things, {"colour": "red"}))
        assert "longer than 4096 bytes" in await bench.reason("lamp", "Unreadable")


async def test_a_server_that_asks_to_be_left_alone_is(bench: Bench, things: Shelf) -> None:
    things.answers = [web.Response(status=429, headers={"Retry-After": "300"})]
    await bench.declare("lamp", spec(things, {"colour": "red"}))
    await bench.reason("lamp", "Unreadable")
    bench.look_again()
    await bench.until("lamp", lambda obj: "left alone" in str(obj["status"]))
    assert len(things.headers) == 1


async def test_a_server_that_does_not_answer_is_unknown(bench: Bench, things: Shelf) -> None:
    await bench.declare("lamp", {"url": "http://127.0.0.1:1/x", "body": {"a": 1}})
    assert "cannot reach http://127.0.0.1:1" in await bench.reason("lamp", "Unreadable")


async def test_a_refusal_is_reported_and_tried_again(bench: Bench, things: Shelf) -> None:
    things.refuses["PUT"] = 422, "no such colour"
    await bench.declare("lamp", spec(things, {"colour": "plaid"}))
    obj = await bench.until("lamp", lambda obj: condition(obj, "Degraded") == "True")
    assert "422: no such colour" in str(obj["status"]["conditions"])
    assert "intent" not in obj["status"]  # nothing was done
    things.refuses.clear()
    await bench.ready("lamp")


async def test_a_server_that_knows_no_such_path_refuses_what_is_to_be_made_there(bench: Bench, things: Shelf) -> None:
    things.refuses.update(GET=(404, "no route"), PUT=(404, "no route"))
    await bench.declare("lamp", spec(things, {"colour": "red"}))
    obj = await bench.until("lamp", lambda obj: condition(obj, "Degraded") == "True")
    assert "404: no route" in str(obj["status"]["conditions"])
    things.refuses.clear()
    await bench.ready("lamp")


async def test_the_url_of_a_thing_cannot_be_changed(bench: Bench, things: Shelf) -> None:
    await bench.declare("lamp", spec(things, {"colour": "red"}))
    with pytest.raises(ApiError, match="which thing it is"):
        await bench.declare("lamp", {"url": f"{things.url}/things/other", "body": {"colour": "red"}})


@pytest.mark.parametrize(
    "wrong",
    [
        {"url": "ftp://example.com/x", "body": {}},
        {"url": "http://me:pw@example.com/x", "body": {}},
        {"url": "http://example.com/{id}", "body": {}},
        {"url": "http://example.com/x", "body": {}, "create": {"method": "POST", "url": "http://example.com/"}},
        {"url": "http://example.com/x"},
    ],
)
async def test_what_makes_no_sense_is_refused_at_once(bench: Bench, wrong: dict[str, Any]) -> None:
    with pytest.raises(ApiError):
        await bench.declare("lamp", wrong)


async def test_a_server_is_trusted_by_the_authority_that_is_named(bench: Bench, tmp_path: Path) -> None:
    from homeostat.api.auth import pki

    pki.ensure_server(tmp_path / "pki", ["127.0.0.1"])
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(tmp_path / "pki" / "server.crt", tmp_path / "pki" / "server.key")
    authority = (tmp_path / "pki" / "ca.crt").read_text()
    async with shelf(tls) as secure:
        await bench.declare("lamp", spec(secure, {"colour": "red"}))
        assert "is not trusted" in await bench.reason("lamp", "Unreadable")
        obj = {"metadata": {"name": "trust"}, "data": {"ca.crt": authority}}
        await bench.client.kind("v1", "ConfigMap", namespace="default").create(obj)
        await bench.declare("lamp", spec(secure, {"colour": "red"}, authority={"configMap": "trust"}))
        await bench.ready("lamp")
        assert secure.things["lamp"] == {"colour": "red"}


def test_retry_after_is_seconds_or_a_date_and_never_forever() -> None:
    assert retry_after("7") == 7
    assert retry_after("Thu, 01 Jan 1970 00:01:40 GMT", now=90) == 10
    assert retry_after("Thu, 01 Jan 1970 00:01:40 GMT", now=200) == 0
    assert retry_after("99999999999") == 3600
    assert retry_after("soon") == 0
    assert retry_after("") == 0
