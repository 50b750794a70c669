"""Observes and changes things behind REST APIs."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import msgspec

from homeostat.client import Client
from homeostat.loop.diff import Diff, after
from homeostat.loop.fleet import Op, Ref
from homeostat.loop.observation import ABSENT, Absent
from homeostat.loop.provider import Declared, Moved, Provider, Refused, Undeclared, current
from homeostat.providers.addresses import Forbidden, Hosts
from homeostat.providers.http.discover import undeclared
from homeostat.providers.http.exchange import ANSWER_LIMIT, Access, Answer, Exchange, Failed, origin_of
from homeostat.providers.http.pages import has_more
from homeostat.providers.http.spec import ID, Find, HttpResourceSpec, HttpResourceState
from homeostat.providers.projection import bury, dig, project
from homeostat.providers.references import MissingValue, Source, Values, read_values

_MERGE_PATCH = "application/merge-patch+json"
_PARTIAL = 206
_URL = "url"
"""Under which note the URL stands that a thing was made at."""


class _Found(msgspec.Struct, frozen=True):
    """A thing as it was seen last: where, its whole body, and the ETag that a change is to be tied to."""

    url: str
    body: Mapping[str, Any]
    etag: str


class HttpResource(Provider[HttpResourceSpec, HttpResourceState], group="http.homeostat.dev", host=True):
    """A thing behind a REST API, kept as declared.

    `allowed_hosts` are the only hosts that are talked to (`api.example.com`, `api.example.com:8443`, `*.example.com`); by default
    all but link-local and the like, see `addresses`. `answer_limit` is in bytes.
    """

    deadline = 60.0

    def __init__(self, allowed_hosts: Collection[str] | None = None, *, answer_limit: int = ANSWER_LIMIT) -> None:
        self._exchange = Exchange(Hosts(allowed_hosts), answer_limit)
        self._client: Client | None = None
        self._found: dict[Ref, _Found] = {}

    async def open(self, client: Client) -> None:
        self._client = client

    async def close(self) -> None:
        await self._exchange.close()

    def forget(self, ref: Ref) -> None:
        self._found.pop(ref, None)

    def target(self, spec: HttpResourceSpec) -> str:
        return origin_of(spec.url)

    def identity(self, spec: HttpResourceSpec, state: HttpResourceState) -> str:
        found = self._found.get(current().ref)
        return found.url if found is not None else ""

    # Looking

    async def wanted(self, spec: HttpResourceSpec) -> HttpResourceState:
        return HttpResourceState(body=spec.body)

    async def observe(self, spec: HttpResourceSpec) -> HttpResourceState | Absent:
        ref = current().ref
        self._found.pop(ref, None)
        access = await self._access(spec)
        url = await self._where(spec, access)
        if not url:
            return ABSENT
        answer = await self._exchange.send(access, "GET", url)
        if answer.status in spec.absent_codes:
            if answer.url.rstrip("/") != url.rstrip("/"):  # a page to log in, say: that it is not there says nothing of the thing
                raise Failed(f"GET {url} leads to {answer.url}, which answered {answer.shown(access)}")
            return ABSENT
        if not _succeeded(spec, answer):
            raise Failed(f"GET {url} answered {answer.shown(access)}")
        try:
            body = dig(answer.json(), spec.state_path)
        except KeyError:
            raise Failed(f"GET {url} has nothing at statePath {spec.state_path!r}") from None
        if not isinstance(body, dict):
            raise Failed(f"GET {url} gives no object" + (f" at statePath {spec.state_path!r}" if spec.state_path else ""))
        self._found[ref] = _Found(url, body, answer.headers.get("etag", ""))
        return HttpResourceState(body=project(spec.body, body))

    async def _where(self, spec: HttpResourceSpec, access: Access) -> str:
        """The URL of the thing; empty where it has none, for it was not made yet."""
        if ID not in spec.url:
            return spec.url
        task = current()
        return task.kept.get(_URL) or task.identity or await self._search(spec, access)

    async def _search(self, spec: HttpResourceSpec, access: Access) -> str:
        if spec.find is None:
            return ""
        hits = [item for item in await self._items(spec, spec.find, access) if _matches(item, spec.find.match)]
        if len(hits) > 1:
            raise Failed(f"{len(hits)} things in {spec.find.url} match: nobody can tell which is meant")
        return _item_url(spec, hits[0]) if hits else ""

    async def _items(self, spec: HttpResourceSpec, find: Find, access: Access) -> list[Any]:
        answer = await self._exchange.send(access, "GET", find.url)
        if not _succeeded(spec, answer):
            raise Failed(f"GET {find.url} answered {answer.shown(access)}")
        document = answer.json()
        if has_more(document, find.items, answer.headers.get("link", "")):
            raise Failed(f"{find.url} gives its list in pages: who is not on the first may be on another; use a filter")
        try:
            items = dig(document, find.items)
        except KeyError:
            items = None
        if not isinstance(items, list):
            raise Failed(f"GET {find.url} gives no list at {find.items!r}")
        return items

    async def discover(self, declared: Sequence[Declared[HttpResourceSpec]]) -> list[Undeclared]:
        return await undeclared(self._listed, declared)

    async def _listed(self, spec: HttpResourceSpec) -> dict[str, Any]:
        assert spec.find is not None
        return {_item_url(spec, item): item for item in await self._items(spec, spec.find, await self._access(spec))}

    # Acting

    async def apply(self, spec: HttpResourceSpec, diff: Diff) -> None:
        access = await self._access(spec)
        if diff.op is Op.CREATE:
            await self._create(spec, access)
        else:
            await self._update(spec, access, diff)

    async def _create(self, spec: HttpResourceSpec, access: Access) -> None:
        task, body = current(), bury(spec.body, spec.request_path)
        if spec.create.method == "PUT":
            await self._act(spec, access, "PUT", spec.url, body, {"If-None-Match": "*", **_key(spec, task.key)}, creates=True)
            return
        # What was there before and is gone must not be given as the answer to the old key.
        before = task.kept.get(_URL) or task.identity
        once = hashlib.sha256(f"{task.key} {before}".encode()).hexdigest()[:32] if before else task.key
        answer = await self._act(spec, access, "POST", spec.create.url, body, _key(spec, once), creates=True)
        task.kept[_URL] = _made_at(spec, access, answer)

    async def _update(self, spec: HttpResourceSpec, access: Access, diff: Diff) -> None:
        found = self._seen()
        headers = _tied_to(found) if spec.if_match else {}
        if spec.update.method == "PATCH":
            body = bury(merge_patch(diff), spec.request_path)
            headers["Content-Type"] = _MERGE_PATCH
        else:
            whole = after({"body": found.body}, diff)
            assert not isinstance(whole, Absent)
            body = bury(whole["body"] if spec.update.merge else spec.body, spec.request_path)
        await self._act(spec, access, spec.update.method, found.url, body, headers)

    async def delete(self, spec: HttpResourceSpec) -> None:
        access, found = await self._access(spec), self._seen()
        headers = _tied_to(found) if spec.if_match else {}
        await self._act(spec, access, "DELETE", found.url, None, headers, gone_is_fine=True)

    def _seen(self) -> _Found:
        found = self._found.get(current().ref)
        if found is None:
            raise Moved("it was not looked at")
        return found

    async def _act(
        self,
        spec: HttpResourceSpec,
        access: Access,
        method: str,
        url: str,
        body: Any,
        headers: Mapping[str, str],
        *,
        gone_is_fine: bool = False,
        creates: bool = False,
    ) -> Answer:
        """Sends a change. Tells what was certainly not done (`Moved`, `Refused`) from what may have been."""
        try:
            answer = await self._exchange.send(access, method, url, body, headers)
        except Forbidden as error:
            raise Refused(str(error)) from None
        except Failed as error:
            if error.sent:
                raise
            raise Refused(str(error)) from None
        if _succeeded(spec, answer) or (gone_is_fine and answer.status in spec.absent_codes):
            return answer
        if answer.status == 412:
            raise Moved("somebody else has changed it")
        said = f"{method} {url} answered {answer.shown(access)}"
        if answer.status in spec.absent_codes and not creates:
            raise Moved(said)
        if answer.status < 500 and answer.status != 408:
            raise Refused(said)
        raise Failed(said)

    # What a request needs

    async def _access(self, spec: HttpResourceSpec) -> Access:
        origin = origin_of(spec.url)
        for other in (spec.create.url, spec.find.url if spec.find else ""):
            if other and origin_of(other) != origin:
                raise Forbidden(f"{other} is another server than {origin}: a resource is at one server")
        proof: dict[str, str] = {}
        secrets: list[str] = []
        if spec.auth is not None:
            proof, secrets = await self._proof(spec)
        return Access(
            origin, spec.headers, proof, await self._authority(spec), spec.timeout.total_seconds(), secrets
        )

    async def _proof(self, spec: HttpResourceSpec) -> tuple[dict[str, str], list[str]]:
        auth, namespace = spec.auth, current().ref.namespace
        assert auth is not None
        values = await read_values(self._client, namespace, [Source(name="auth", secret=auth.secret)])
        if auth.type == "Basic":
            user, password = _line(values, "username"), _line(values, "password")
            pair = base64.b64encode(f"{user}:{password}".encode()).decode()
            return {"Authorization": f"Basic {pair}"}, [pair, password]
        token = _line(values, auth.key)
        return {auth.header: token} if auth.type == "Header" else {"Authorization": f"Bearer {token}"}, [token]

    async def _authority(self, spec: HttpResourceSpec) -> bytes:
        if spec.authority is None:
            return b""
        named = spec.authority
        source = Source(name="authority", secret=named.secret, config_map=named.config_map)
        return (await read_values(self._client, current().ref.namespace, [source])).get("authority", named.key)


def merge_patch(diff: Diff) -> dict[str, Any]:
    """What differs in `body` as a JSON merge patch: null takes a field away."""
    patch: dict[str, Any] = {}
    for change in diff.changes:
        *way, last = change.path[1:] or ("",)
        place = patch
        for step in way:
            place = place.setdefault(str(step), {})
        place[str(last)] = None if change.new is ABSENT else change.new
    return patch


def _line(values: Values, key: str) -> str:
    """A value that can stand in a header."""
    try:
        text = values.get("auth", key).decode().strip()
    except UnicodeDecodeError:
        text = ""
    if not text.isprintable() or not text:
        raise MissingValue(f"the key {key!r} of {values.objects.get('auth', 'the Secret')}, for `auth`, is no line of text")
    return text


def _succeeded(spec: HttpResourceSpec, answer: Answer) -> bool:
    return answer.status in spec.success_codes if spec.success_codes else 200 <= answer.status < 300 and answer.status != _PARTIAL


def _tied_to(found: _Found) -> dict[str, str]:
    """A weak ETag does not say that nothing changed, and no server takes one here."""
    return {"If-Match": found.etag} if found.etag and not found.etag.startswith("W/") else {}


def _key(spec: HttpResourceSpec, key: str) -> dict[str, str]:
    return {spec.idempotency_header: key} if spec.idempotency_header else {}


def _matches(item: Any, wanted: Mapping[str, Any]) -> bool:
    return isinstance(item, dict) and all(name in item and item[name] == value for name, value in wanted.items())


def _item_url(spec: HttpResourceSpec, document: Any) -> str:
    try:
        found = dig(document, spec.create.id_field)
    except KeyError:
        found = None
    if isinstance(found, bool) or not isinstance(found, str | int) or found == "":
        raise Failed(f"there is no id at {spec.create.id_field!r} in what the server gives")
    return spec.url.replace(ID, quote(str(found), safe=""))


def _made_at(spec: HttpResourceSpec, access: Access, answer: Answer) -> str:
    """Where the thing is that an answer to POST speaks of: by its id, or by its Location."""
    from yarl import URL

    try:
        return _item_url(spec, answer.json())
    except Failed:
        location = answer.headers.get("location", "")
        url = str(URL(spec.create.url).join(URL(location))) if location else ""
        if url and origin_of(url) == access.origin:
            return url
        raise Failed("it was made, but the answer does not say under which id") from None
