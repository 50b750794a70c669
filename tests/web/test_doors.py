"""Who comes in, and who does not."""

from __future__ import annotations

import ssl
from pathlib import Path

import aiohttp
import pytest
from tests.web.conftest import House

PAGES = ["/ui/", "/ui/app.js", "/ui/kinds/lamps.lamps.test.dev", "/ui/vendor/preact.js"]


@pytest.mark.parametrize("path", PAGES)
async def test_every_page_comes_with_a_policy_that_lets_nothing_in_from_elsewhere(house: House, path: str) -> None:
    code, _, headers = await house.page().ask("GET", path, Accept="text/html")
    assert code == 200
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers.getall("set-cookie", []) == []


async def test_a_page_that_has_not_changed_is_not_sent_again(house: House) -> None:
    _, _, headers = await house.page().ask("GET", "/ui/app.js")
    code, body, _ = await house.page().ask("GET", "/ui/app.js", **{"If-None-Match": headers["etag"]})
    assert (code, body) == (304, "")


@pytest.mark.parametrize("path", ["/ui/../data", "/ui/%2e%2e/%2e%2e/etc/passwd", "/ui/static", "/ui/site.py", "/ui/vendor"])
async def test_nothing_but_the_files_of_the_page_is_served(house: House, path: str) -> None:
    code, body, _ = await house.page().ask("GET", path)
    assert code in (400, 401, 404), body


async def test_a_link_signs_in_once(house: House) -> None:
    code = house.dashboard.admin_link().partition("#code=")[2]
    page = house.page()
    status, session, _ = await page.ask("POST", "/ui/session", {"code": code})
    assert (status, session["user"]) == (201, "admin")
    assert (await house.page(session["token"]).ask("GET", "/api/v1/secrets"))[0] == 200
    assert (await page.ask("POST", "/ui/session", {"code": code}))[0] == 401


@pytest.mark.parametrize("body", [{"code": "guessed"}, {"code": 1}, {}, {"code": ""}])
async def test_no_other_code_does(house: House, body: dict[str, object]) -> None:
    code, said, _ = await house.page().ask("POST", "/ui/session", body)
    assert code in (400, 401), said
    assert "token" not in str(said)


async def test_who_may_use_the_api_gets_a_link_for_themselves_and_nobody_else(house: House) -> None:
    ada = await house.person("ada")
    _, made, _ = await ada.ask("POST", "/ui/codes")
    _, session, _ = await house.page().ask("POST", "/ui/session", {"code": made["link"].partition("#code=")[2]})
    assert session["user"] == "ada"
    code, _, _ = await house.page(session["token"]).ask("GET", "/api/v1/secrets")
    assert code == 403


async def test_nobody_gets_none(house: House) -> None:
    assert (await house.page().ask("POST", "/ui/codes"))[0] == 401


async def test_a_stream_wants_a_token(house: House) -> None:
    assert (await house.page().ask("POST", "/ui/stream", {"topics": {"f": {"topic": "fleet"}}}))[0] == 401


async def test_a_certificate_that_a_browser_shows_by_itself_does_not_count(house: House, tmp_path: Path) -> None:
    pki = tmp_path / "data/pki"
    trust = ssl.create_default_context(cafile=str(pki / "ca.crt"))
    (key,) = pki.glob("client-*.key")
    trust.load_cert_chain(str(key.with_suffix(".crt")), str(key))
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trust)) as http,
        http.post(house.server.url + "/ui/stream", json={"topics": {"f": {"topic": "fleet"}}}) as reply,
    ):
        assert reply.status == 401


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Host": "evil.example"},
        {"Host": "evil.example:7443"},
    ],
)
@pytest.mark.parametrize(("method", "path"), [("GET", "/ui/"), ("POST", "/ui/stream"), ("POST", "/ui/session"), ("POST", "/ui/codes"), ("POST", "/ui/rollback")])
async def test_pages_of_other_sites_and_names_bent_to_our_address_are_refused(
    house: House, headers: dict[str, str], method: str, path: str
) -> None:
    admin = await house.admin()
    code, said, _ = await admin.ask(method, path, {} if method == "POST" else None, **headers)
    assert code == 403, said


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
async def test_the_api_refuses_pages_of_other_sites_too(house: House, method: str) -> None:
    admin = await house.admin()
    path = "/api/v1/namespaces/default/configmaps" + ("/x" if method == "DELETE" else "")
    code, said, _ = await admin.ask(method, path, {} if method == "POST" else None, Origin="https://evil.example")
    assert code == 403, said
