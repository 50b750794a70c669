"""Get and list: consistent at a revision, in pages if asked, as bytes from the store where nobody looks inside."""

from __future__ import annotations

import base64
import binascii
import string
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import orjson

from homeostat.api.accept import prefers_yaml
from homeostat.api.call import Call, integer, revision_of
from homeostat.api.compress import compress_stream, reads_gzip
from homeostat.api.request import Response, Stream
from homeostat.api.select import Matcher, matcher_for, named_by_selector
from homeostat.api.shape import Shape, shape_for
from homeostat.model.errors import ApiError, FieldError, bad_request, expired, invalid
from homeostat.store import Compacted, Entry, FutureRevision, Page, Store

if TYPE_CHECKING:
    from homeostat.api.plane import ControlPlane

PAGE = 1000
"""Objects read from the store at a time."""

_TOKEN_VERSION = "meta.k8s.io/v1"
_TOKEN_LETTERS = frozenset(string.ascii_letters + string.digits + "-_")

_EXPIRED_CONTINUE = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)


async def get(plane: ControlPlane, call: Call) -> Response:
    """One object."""
    wanted = call.request.params.get("resourceVersion", "") if call.request.query else ""
    if wanted and wanted != "0":
        not_older(plane, revision_of(wanted))
    shape = shape_of(plane, call, listing=False)
    entry = await plane.store.get(call.key)
    if entry is None:
        raise call.not_found()
    return Response(200, shape.single(entry), shape.content_type)


def shape_of(plane: ControlPlane, call: Call, *, listing: bool) -> Shape:
    """The form in which the request wants objects."""
    include = call.request.params.get("includeObject", "")
    return shape_for(
        call.request.header(b"accept"), call.resource, call.codec, listing=listing, include=include, now=plane.clock.now
    )


def not_older(plane: ControlPlane, revision: int) -> None:
    """Refuses a revision that has not happened: the client talks about another past, or a newer server."""
    if revision > plane.store.revision:
        raise _too_new(revision, plane.store.revision)


def _too_new(revision: int, current: int) -> ApiError:
    return ApiError(
        504,
        "Timeout",
        f"Timeout: Too large resource version: {revision}, current: {current}",
        causes=[{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
        retry_after=1,
    )


class Window:
    """Which part of the collection a list asks for: at `revision`, or at the present one, which `at_least` bounds."""

    __slots__ = ("after", "at_least", "left", "limit", "resumed", "revision")

    def __init__(self, call: Call) -> None:
        params = call.request.params
        self.limit = max(0, integer(params, "limit"))
        integer(params, "timeoutSeconds")  # we are quick enough to need none, but nonsense is refused
        self.after = ""
        self.revision: int | None = None
        self.at_least = 0
        self.left: int | None = None  # how many there are after `after`, where the page before said so
        self.resumed = False
        version = params.get("resourceVersion", "")
        match = params.get("resourceVersionMatch", "")
        token = params.get("continue", "")
        _check_options(version, match, token, "sendInitialEvents" in params)
        if version == "0" and not token:
            self.limit = 0  # whoever will take any state gets all of it at once, as upstream's cache gives it
        if token:
            self.revision, self.after, self.left = _decode_token(token, call.prefix)
            self.resumed = True
        elif version not in ("", "0"):
            if match == "Exact" or (not match and self.limit):
                self.revision = revision_of(version)
            else:
                self.at_least = revision_of(version)


def _check_options(version: str, match: str, token: str, initial_events: bool) -> None:
    errors: list[FieldError] = []
    if match:
        if not version:
            errors.append(
                FieldError.forbidden(
                    "resourceVersionMatch", "resourceVersionMatch is forbidden unless resourceVersion is provided"
                )
            )
        if token:
            errors.append(
                FieldError.forbidden("resourceVersionMatch", "resourceVersionMatch is forbidden when continue is provided")
            )
        if match not in ("Exact", "NotOlderThan"):
            errors.append(FieldError.not_supported("resourceVersionMatch", match, ["Exact", "NotOlderThan", ""]))
        elif match == "Exact" and version == "0":
            errors.append(
                FieldError.forbidden(
                    "resourceVersionMatch", 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
                )
            )
    if initial_events:
        errors.append(FieldError.forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"))
    if errors:
        raise invalid("meta.k8s.io", "ListOptions", "", errors)
    if token and version not in ("", "0"):
        raise bad_request("specifying resource version is not allowed when using continue")


async def list_objects(plane: ControlPlane, call: Call) -> Response:
    """A collection, whole or one page of it."""
    window = Window(call)
    matcher = matcher_for(call)
    shape = shape_of(plane, call, listing=True)
    not_older(plane, window.at_least)
    try:
        if window.limit:
            return await _page(plane, call, window, matcher, shape)
        first = await _range(plane, call, window.after, window.revision, PAGE)
    except (Compacted, FutureRevision) as error:
        raise unreadable(error, window, call.prefix) from None
    if not first.more:
        return _whole(shape, first.revision, _kept(first.entries, matcher))
    response = Response(
        200, content_type=shape.content_type, stream=lambda s: _stream(plane, call, first, matcher, shape, s)
    )
    if reads_gzip(call.request) and not prefers_yaml(call.request.header(b"accept")):  # which is made of the whole
        compress_stream(response)
    return response


async def _range(
    plane: ControlPlane, call: Call, after: str, revision: int | None, limit: int, *, count: bool = False
) -> Page:
    """The next objects of the collection. Who names one, as `kubectl wait` does, has that one read, and not all of its kind."""
    placed = bool(call.namespace) or not call.resource.namespaced
    name = named_by_selector(call.request) if placed and "fieldSelector" in call.request.query else ""
    if not name:
        return await plane.store.range(call.prefix, after=after, revision=revision, limit=limit, count=count)
    key = call.resource.key(call.namespace, name)
    found = await plane.store.range(key, after=after, revision=revision, limit=1)
    return Page([entry for entry in found.entries if entry.key == key], found.revision)


def _kept(entries: list[Entry], matcher: Matcher | None) -> list[Entry]:
    return entries if matcher is None else [e for e in entries if matcher.matches(e.key, e.value)]


def _whole(shape: Shape, revision: int, entries: list[Entry], token: str = "", remaining: int = 0) -> Response:
    head = shape.open_list(revision, token, remaining)
    body = b"".join((head, b",".join(shape.items(entries)), shape.close))
    return Response(200, body, shape.content_type)


async def _stream(
    plane: ControlPlane, call: Call, first: Page, matcher: Matcher | None, shape: Shape, stream: Stream
) -> None:
    """A long list, a page at a time: memory holds one page, whoever else asks is served between two."""
    stream.write(shape.open_list(first.revision))
    comma = b""
    async for page in pages(plane.store, call.prefix, first):
        pieces = shape.items(_kept(page.entries, matcher))
        if pieces:
            stream.write(comma + b",".join(pieces))
            comma = b","
        await stream.drained()
        if stream.closed:
            return
    stream.write(shape.close)


async def pages(store: Store, prefix: str, first: Page | None = None) -> AsyncIterator[Page]:
    """A collection from one snapshot, page by page; `first` where that one was read already."""
    page = first or await store.range(prefix, limit=PAGE)
    revision = page.revision
    yield page
    while page.more:
        page = await store.range(prefix, after=page.entries[-1].key, revision=revision, limit=PAGE)
        yield page


async def _page(
    plane: ControlPlane, call: Call, window: Window, matcher: Matcher | None, shape: Shape
) -> Response:
    """One page of a chunked list, and the token for the next.

    What is left is counted once: a snapshot does not change, so each further page leaves so many fewer.
    """
    found: list[Entry] = []
    after, revision = window.after, window.revision
    while True:
        want = window.limit if matcher is None else PAGE
        page = await _range(plane, call, after, revision, want, count=matcher is None and window.left is None)
        revision = page.revision
        more = page.more
        for entry in page.entries:
            if matcher is None or matcher.matches(entry.key, entry.value):
                found.append(entry)
                if len(found) == window.limit:
                    more = more or entry is not page.entries[-1]
                    break
        if not more or len(found) == window.limit:
            break
        after = page.entries[-1].key
    if not more or not found:
        return _whole(shape, revision, found)
    left = None if matcher is not None else page.remaining if window.left is None else max(0, window.left - len(found))
    token = encode_token(revision, found[-1].key, call.prefix, left)
    return _whole(shape, revision, found, token, left or 0)


def encode_token(revision: int, key: str, prefix: str, left: int | None = None) -> str:
    raw = {"v": _TOKEN_VERSION, "rv": revision, "start": key[len(prefix) :] + "\0"}
    if left is not None:
        raw["left"] = left
    return base64.urlsafe_b64encode(orjson.dumps(raw)).decode().rstrip("=")


def _token_parts(token: str) -> tuple[int, str, int | None]:
    stray = next((i for i, letter in enumerate(token) if letter not in _TOKEN_LETTERS), None)
    if stray is not None:
        raise _bad_token(f"illegal base64 data at input byte {stray}")
    try:
        raw = orjson.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        version, revision, start, left = raw.get("v", ""), raw.get("rv", 0), raw.get("start", ""), raw.get("left")
        if not isinstance(revision, int) or not isinstance(start, str) or not isinstance(left, int | None):
            raise ValueError("its parts have other types")
    except (binascii.Error, ValueError, AttributeError) as error:
        raise _bad_token(str(error)) from None
    if version != _TOKEN_VERSION:
        raise _bad_token(f"server does not recognize this encoded version {version}")
    if not start:
        raise _bad_token(f"encoded start key empty (version {_TOKEN_VERSION})")
    if not revision:
        raise _bad_token(f"incorrect encoded start resourceVersion (version {_TOKEN_VERSION})")
    if ".." in start.split("/"):
        raise _bad_token(start)
    return revision, start, left


def _bad_token(why: str) -> ApiError:
    return bad_request(f"invalid continue token: continue key is not valid: {why}")


def _decode_token(token: str, prefix: str) -> tuple[int | None, str, int | None]:
    revision, start, left = _token_parts(token)
    # A negative revision asks for whatever is newest: the way on after an expired token.
    return (revision if revision > 0 else None), prefix + start.rstrip("\0"), left


def unreadable(error: Compacted | FutureRevision, window: Window, prefix: str) -> ApiError:
    """What is said of a list at a revision that is forgotten, or has not happened."""
    if isinstance(error, FutureRevision):
        return _too_new(error.asked, error.current)
    if not window.resumed:
        return expired("The resourceVersion for the provided list is too old.")
    gone = expired(_EXPIRED_CONTINUE)
    gone.resume = encode_token(-1, window.after, prefix)
    return gone
