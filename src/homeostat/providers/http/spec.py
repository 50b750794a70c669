"""What can be declared of a thing behind a REST API."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from homeostat.model.kinds import Rule, Spec

ID = "{id}"
"""Stands in a URL for the id that the server gives."""

Url = Annotated[str, Meta(pattern=r"^https?://[^/?#@\s]+(/[^#\s]*)?$", max_length=2048)]
Code = Annotated[int, Meta(ge=100, le=599)]
Name = Annotated[str, Meta(min_length=1, max_length=253)]


class Create(Spec):
    """How the thing is made."""

    method: Literal["PUT", "POST"] = "PUT"
    """PUT makes it at its URL. POST makes it in a collection, and the answer says under which id."""
    url: str = ""
    """Of the collection, for POST."""
    id_field: str = "id"
    """Where in the answer, and in the items of a list, the id stands: `id`, `data.id`."""


class Update(Spec):
    """How the thing is changed."""

    method: Literal["PUT", "PATCH", "POST"] = "PUT"
    """PATCH sends what differs, as a merge patch (RFC 7386); PUT and POST send the whole."""
    merge: bool = True
    """Whether PUT and POST send our fields laid over what was observed, so that those of others stay. Without, the body alone."""


class Find(Spec):
    """Where to look for a thing whose id is not known: after a crash, or to take it over."""

    url: Url
    """Of a list that has it, if it is there: whole, not in pages, so ask with a filter."""
    items: str = ""
    """Where in the answer the list stands. Default: the answer is the list."""
    match: dict[str, Any]
    """Fields by which it is told from the others. Two that match are one too many."""


class Auth(Spec):
    """How we prove who we are: by a Secret of the same namespace."""

    secret: Name
    type: Literal["Bearer", "Basic", "Header"] = "Bearer"
    """Bearer and Header send the value of `key`; Basic those of `username` and `password`."""
    key: str = "token"
    header: Annotated[str, Meta(pattern=r"^[A-Za-z0-9-]+$")] = "Authorization"
    """For Header: the header that has the value."""


class Authority(Spec):
    """Whom we trust to vouch for the server: a certificate in a Secret or a ConfigMap of the same namespace."""

    secret: str = ""
    config_map: str = ""
    key: str = "ca.crt"

    rules = [Rule("(self.secret == '') != (self.configMap == '')", message="name a secret or a configMap")]


class HttpResourceSpec(Spec):
    """A thing behind a REST API."""

    url: Annotated[Url, Rule("self == oldSelf", message="the URL is which thing it is: declare another resource")]
    """Of the thing. With `create.method` POST it has `{id}` in the place of the id."""
    body: dict[str, Any]
    """The thing as it should be: the fields that are declared are kept so, all others are left alone."""
    state_path: str = ""
    """Where in the answer to GET the thing stands: `data.attributes`. Default: it is the answer."""
    request_path: str = ""
    """Where in what is sent it stands. Default: it is what is sent."""
    headers: dict[str, str] = {}
    """Sent with every request. Not for secrets: everybody who may read this may read them."""
    create: Create = msgspec.field(default_factory=Create)
    update: Update = msgspec.field(default_factory=Update)
    find: Find | None = None
    auth: Auth | None = None
    authority: Authority | None = None
    """Default: the authorities that this machine trusts."""
    timeout: Annotated[timedelta, Rule("duration(self) > duration('0s')", message="must be more than nothing")] = timedelta(
        seconds=10
    )
    """For one request."""
    success_codes: Annotated[list[Code], Meta(max_length=32)] = []
    """Answers that mean it worked. Default: 200 to 299."""
    absent_codes: Annotated[list[Code], Meta(max_length=32)] = msgspec.field(default_factory=lambda: [404, 410])
    """Answers to GET that mean it is not there. All others but success mean that nobody knows."""
    if_match: bool = True
    """Whether changes carry the ETag that was observed, so that they are refused if somebody else was faster."""
    idempotency_header: Annotated[str, Meta(pattern=r"^[A-Za-z0-9-]*$")] = "Idempotency-Key"
    """Carries a key that is the same for all tries of one creation. A server that does not know it may make two where an answer
    is lost and `find` is not set."""

    rules = [
        Rule(
            "(self.create.method == 'POST') == self.url.contains('{id}')",
            message="url has {id} where the server gives the id (create.method POST), and only there",
        ),
        Rule(
            "self.create.method != 'POST' || self.create.url != ''",
            message="create.url is the collection that POST makes the thing in",
        ),
    ]


class HttpResourceState(Spec):
    """The thing as it is."""

    body: dict[str, Any]
