"""The control plane: a store below, kinds in the middle, requests from above.

`respond` is the way of every request, from wherever it comes: understand the path, find out who asks, decide whether
they may, do it, write it down.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import orjson

from homeostat.api import builtin, crds, past, read, route, write
from homeostat.api.accept import prefers_yaml
from homeostat.api.admission import LASTING_NAMESPACES, Admission
from homeostat.api.apart import Apart
from homeostat.api.audit import LEASES, AuditLog, Record, fields_changed, is_heartbeat, refusal
from homeostat.api.auth import Attributes, Authenticator, Rbac, User, bootstrap, denied, usertokens
from homeostat.api.auth.impersonate import impersonate
from homeostat.api.auth.rbac import GROUP as RBAC_GROUP
from homeostat.api.auth.rbac import PLURALS as RBAC_PLURALS
from homeostat.api.auth.serviceaccounts import ServiceAccountTokens, SigningKey
from homeostat.api.auth.user import AUTHENTICATED, MASTERS
from homeostat.api.builtin.scaling import SYSTEM_PRIORITY_CLASSES
from homeostat.api.call import Call, WriteOptions, check_timeout
from homeostat.api.changesets import HEADER as CHANGE_SET
from homeostat.api.codec import Codec, encode
from homeostat.api.compress import LARGE, compress
from homeostat.api.controllers import AccountTokens, GarbageCollector, Housekeeping, Lifecycle, RoleAggregation
from homeostat.api.controllers.housekeeping import KEEP_SECONDS
from homeostat.api.discovery import STREAMS
from homeostat.api.documents import Documents
from homeostat.api.follow import Follower
from homeostat.api.history import History
from homeostat.api.metrics import RequestCounts, render
from homeostat.api.negotiate import reshape, to_yaml
from homeostat.api.permission import permit
from homeostat.api.policies import Policies
from homeostat.api.registry import Registry, custom_resource
from homeostat.api.request import Request, Response, refused, split_path
from homeostat.api.resource import Object, Resource, split_key
from homeostat.api.select import named_by_selector
from homeostat.api.shape import Shape
from homeostat.api.watch import Fanout
from homeostat.model.clock import Clock, Ids
from homeostat.model.errors import ApiError, bad_request, insufficient_storage, too_large, unauthorized, unavailable
from homeostat.model.protocol import BODY_LIMIT, IMPERSONATE, JSON
from homeostat.model.schema import Schema
from homeostat.store import Compare, Event, Full, Put, ReadOnly, Store, StoreError

log = logging.getLogger("homeostat.api")

SYSTEM = User("system:homeostat", "", (MASTERS, AUTHENTICATED))
"""As whom the server's own controllers write."""

AUDIT_ID = b"audit-id"
_UNCACHED = (b"cache-control", b"no-cache, private")
"""Objects change: nobody on the way may keep one for another who asks, and secrets are nobody's to keep."""
_SHAPED_WRITES = frozenset({"create", "update", "patch"})
_WRITES = _SHAPED_WRITES | {"delete", "deletecollection"}
_JSON_ACCEPTED = frozenset({"", "*/*", JSON, f"{JSON}, */*"})
"""What most clients send: they want plain JSON, and nothing has to be negotiated."""


class ControlPlane:
    """Everything that serves one store. Make it, `start` it, hand requests to `handle`, `stop` it.

    `clock` and `ids` give time and chance (default: the real ones), `keep_seconds` is how long every revision can be read,
    `history` what is kept beyond that (default: nothing), `address` the URL under which clients reach it, for the documents that name it,
    `authority` the certificate by which they know it, for the Secrets that hold tokens.
    """

    def __init__(
        self,
        store: Store,
        *,
        signing_key: SigningKey,
        audit: AuditLog,
        clock: Clock | None = None,
        ids: Ids | None = None,
        keep_seconds: float = KEEP_SECONDS,
        history: History | None = None,
        address: str = "",
        authority: bytes = b"",
    ) -> None:
        self.store = store
        self.clock = clock or Clock()
        self.ids = ids or Ids()
        self.audit = audit
        self.address = address
        self.authority = authority
        self.keep_seconds = keep_seconds
        self.ready = False
        self.started_at = store.revision
        self.definitions: dict[str, Object] = {}
        self.registry = Registry([*builtin.resources(), crds.resource(self.definitions, self.clock)])
        self.rbac = Rbac()
        self.user_tokens = usertokens.UserTokens()
        accounts = ServiceAccountTokens(signing_key, self._lookup, self.clock.now)
        self.authenticator = Authenticator(self.user_tokens, accounts, self.clock.now)
        self.history = history or History(store, self.clock)
        self.follower = Follower(store)
        self.fanout = Fanout(store)
        self.requests = RequestCounts()
        self.more_metrics: list[Callable[[], bytes]] = []  # of what runs in the same process
        self.mounted: dict[str, Callable[[Request], Awaitable[Response]]] = {}  # what is served beside the API, by its first segment or its whole path
        self.apart = Apart()
        self.admission = Admission(self)
        self.policies = Policies(self)
        self.documents = Documents(self)
        self.housekeeping = Housekeeping(self)
        self._controllers = (
            Lifecycle(self), GarbageCollector(self), RoleAggregation(self), AccountTokens(self), self.housekeeping,
        )
        self._schemas: dict[str, Callable[[str], Schema | None]] = {}

    async def start(self) -> None:
        """Reads what it must know, creates what every control plane has, and begins to serve."""
        await self.history.start()
        await self._bootstrap()
        await self.follower.follow(crds.CRDS, self._definition_changed)
        for kind, plural in RBAC_PLURALS.items():
            await self.follower.follow(f"{plural}.{RBAC_GROUP}/", self._rbac_follower(kind))
        await self.follower.follow(f"{usertokens.QUALIFIED}/", self._token_changed)
        for bound in ("serviceaccounts/", "secrets/", "pods/", "nodes/"):
            await self.follower.follow(bound, self._bound_changed)
        await self.admission.start()
        await self.policies.start()
        for controller in self._controllers:
            await controller.start()
        self.ready = True

    async def stop(self) -> None:
        """Stops the controllers; the store is the caller's to close."""
        self.ready = False
        for controller in self._controllers:
            await controller.stop()
        self.fanout.close()
        self.follower.close()
        await self.history.stop()
        self.apart.close()
        self.audit.close()

    # What is followed

    def _definition_changed(self, event: Event) -> None:
        name = event.key[len(crds.CRDS) :]
        if event.value is None:
            self.definitions.pop(event.key, None)
            self._unserve(name)
            return
        crd = self.definitions[event.key] = orjson.loads(event.value)
        if not crds.established(crd):
            self._unserve(name)
            return
        before = orjson.loads(event.previous) if event.previous else None
        served = self.registry.get(name)
        if before and served and crds.served_alike(before, crd):
            served.ending = "deletionTimestamp" in crd["metadata"]
            return
        resource = custom_resource(crd)
        self._schemas.pop(resource.qualified, None)
        # Since this process started, what was written after the definition was written by its rules.
        self.registry.add(resource, since=event.revision)
        self.fanout.end(resource.prefix)

    def _unserve(self, name: str) -> None:
        resource = self.registry.get(name)
        if resource is not None and resource.custom:
            self.registry.remove(name)
            self._schemas.pop(name, None)
            self.fanout.end(resource.prefix)

    def _rbac_follower(self, kind: str) -> Callable[[Event], None]:
        def changed(event: Event) -> None:
            if event.value is not None:
                self.rbac.upsert(kind, orjson.loads(event.value))
            else:
                _, namespace, name = split_key(event.key)
                self.rbac.remove(kind, namespace, name)

        return changed

    def _token_changed(self, event: Event) -> None:
        if event.value is None:
            self.user_tokens.remove(event.key.partition("/")[2])
        else:
            self.user_tokens.upsert(orjson.loads(event.value))

    def _bound_changed(self, event: Event) -> None:
        if event.previous is not None:
            self.authenticator.forget()

    async def _lookup(self, plural: str, namespace: str, name: str) -> Object | None:
        resource = self.registry.get(plural)
        if resource is None:
            return None
        entry = await self.store.get(resource.key(namespace, name))
        return self.registry.codec(resource).load_entry(entry) if entry else None

    async def _bootstrap(self) -> None:
        """Namespaces, roles and priorities that every control plane has. What exists is left as people made it."""
        wanted: list[Object] = [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            for name in (*sorted(LASTING_NAMESPACES), "kube-node-lease")
        ]
        wanted += bootstrap.objects()
        wanted += [{**priority, "metadata": dict(priority["metadata"])} for priority in SYSTEM_PRIORITY_CLASSES]
        writes: list[Put] = []
        compares: list[Compare] = []
        for obj in wanted:
            resource = self.registry.by_kind(obj["apiVersion"], obj["kind"])
            assert resource is not None, obj["kind"]
            key = resource.key(obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
            if await self.store.get(key) is not None:
                continue
            obj["metadata"] |= {"uid": self.ids.uid(), "creationTimestamp": self.clock.timestamp()}
            resource.rules.default(obj)
            resource.rules.prepare_create(obj)
            compares.append(Compare(key, 0))
            writes.append(Put(key, encode(obj)))
        if writes:
            await self.store.txn(compares, writes)

    # Requests

    async def respond(self, request: Request) -> Response:
        """Answers a request. Whatever goes wrong becomes the `error` of the answer, which has no body then; nothing escapes."""
        try:
            return await self._route(request)
        except Exception as error:
            return refused(_refusal(request, error))

    async def handle(self, request: Request) -> Response:
        """`respond`, for who reads a refusal as a `Status`, and may want the answer in YAML, or by gzip."""
        response = await self.respond(request)
        response.write_out()
        accept = request.header(b"accept")
        if "yaml" in accept and prefers_yaml(accept):
            response = await to_yaml(response)
        return await compress(request, response) if len(response.body) > LARGE else response

    async def answer(self, request: Request) -> Response:
        """`handle`, for who asks over the network: the answer says by which id the audit log knows the request."""
        response = await self.handle(request)
        response.headers.append((AUDIT_ID, self._audit_id(request).encode("latin-1")))
        return response

    def _audit_id(self, request: Request) -> str:
        """The client's own where it sent one, so that a request can be followed through what lies before us."""
        if not request.audit_id:
            request.audit_id = request.header(AUDIT_ID) or self.ids.uid()
        return request.audit_id

    async def _route(self, request: Request) -> Response:
        known = route.recall(self.registry, request, SYSTEM)
        if known is not None:
            return await self._serve(request, known)
        segments = split_path(request.path)
        if len(segments) > 2 and segments[0] in ("api", "apis"):
            try:
                found = route.resolve(self.registry, request, segments, SYSTEM)
            except ApiError:
                # Who may not use a kind is not told whether there is one.
                user, _ = self._identified(request, await self._authenticated(request))
                self._require(route.unserved(user, request, segments))
                raise
            if found is not None:
                return await self._serve(request, found)
        if segments and (site := self.mounted.get(segments[0]) or self.mounted.get("/".join(segments))) is not None:
            return await site(request)
        public = self.documents.public(request)
        if public is not None:
            return public
        user, _ = self._identified(request, await self._authenticated(request))
        if segments != past.REVISION:  # which anybody may ask for who is somebody
            verb = "head" if request.head_only else request.method.lower()
            self._require(Attributes(user=user, verb=verb, path=request.path))
        if segments[:1] == ["homeostat"] and request.method == "GET":
            return await past.answer(self, request, segments, user)
        return await self.documents.answer(request)

    def _require(self, asked: Attributes) -> None:
        """403 where it is not allowed."""
        decision = self.rbac.authorize(asked)
        if not decision.allowed:
            raise denied(asked, decision.reason)

    async def _serve(self, request: Request, call: Call) -> Response:
        known = self.authenticator.connected(request.user)
        call.user, call.impersonator = self._identified(request, known or await self._authenticated(request))
        started = self.clock.now()
        try:
            if not call.user.is_master:
                self._require(_asked(call))
            handler = route.handler(call)
            if "timeout=" in request.query and call.verb != "watch" and call.subresource not in STREAMS:
                check_timeout(request.params)
            shape = self._written_shape(call)
            response = await handler(self, call)
            if shape is not None:
                reshape(response, shape)
        except ApiError as error:
            self._record(call, error.code, started, refusal(error))
            response = refused(error)
        else:
            self._record(call, response.status, started)
        if call.codec.version.deprecated:
            call.warnings.insert(0, call.codec.version.deprecation_warning or _deprecated(call))
        if call.warnings:
            response.warn(call.warnings)
        response.headers.append(_UNCACHED)
        return response

    def _written_shape(self, call: Call) -> Shape | None:
        """The form in which a write wants its object back, None where plain JSON will do.

        Refuses before anything is written.
        """
        if call.verb not in _WRITES or call.request.header(b"accept") in _JSON_ACCEPTED or call.subresource in STREAMS:
            return None
        shape = read.shape_of(self, call, listing=call.verb == "deletecollection")
        own = call.subresource in ("", "status") or call.rules is not call.resource.rules
        return shape if call.verb in _SHAPED_WRITES and own else None

    async def _authenticated(self, request: Request) -> User:
        """Who asks; 401 where that cannot be told."""
        user = await self.authenticator.authenticate(request.headers, request.user)
        if user is None:
            raise unauthorized()
        return user

    def _identified(self, request: Request, user: User) -> tuple[User, User | None]:
        """As whom they ask, and who they really are where they act as somebody else. Pages of other sites are refused: a browser
        may show somebody's certificate without asking them."""
        if request.headers.plain:
            return user, None
        for name, value in request.headers:
            if name.startswith(IMPERSONATE):
                return impersonate(request.headers, user, self.rbac), user
            if name == b"origin" and value != b"https://" + request.header(b"host").encode("latin-1"):
                raise ApiError(403, "Forbidden", "requests from pages of other sites are refused")
        return user, None

    async def identify(self, request: Request, *, by_token: bool = False) -> User:
        """Who asks; 401 where that cannot be told. `by_token`: a certificate does not count, which a browser may show by itself."""
        known = await self.authenticator.authenticate(request.headers, None if by_token else request.user)
        if known is None:
            raise unauthorized()
        return known

    def may(self, user: User, verb: str, group: str, plural: str, namespace: str = "", name: str = "") -> bool:
        """Whether a user may do something with a kind, in a namespace or (empty) in all."""
        asked = Attributes(user=user, verb=verb, group=group, version="*", resource=plural, namespace=namespace, name=name)
        return self.rbac.authorize(asked).allowed

    def may_get(self, user: User, path: str) -> bool:
        """Whether a user may get what stands at a path that is no kind's."""
        return self.rbac.authorize(Attributes(user=user, verb="get", path=path)).allowed

    def _record(self, call: Call, code: int, started: float, reason: str = "") -> None:
        """Counts, and writes down, what was asked and what came of it."""
        resource = call.resource
        self.requests.add(call.verb, resource.group, resource.plural, code)
        if not self.audit.wants(call.verb, resource.group, resource.plural, code):
            return
        now = self.clock.now()
        changed = call.before is not None or call.after is not None
        known = call.after or call.before
        fields = fields_changed(call.before, call.after) if changed and code < 400 else None
        if resource.qualified == LEASES and is_heartbeat(fields):
            return
        self.audit.record(
            Record(
                time=started,
                id=self._audit_id(call.request),
                user=call.user,
                verb=call.verb,
                code=code,
                latency=now - started,
                impersonated_by=call.impersonator,
                source=call.request.client,
                group=resource.group,
                version=call.codec.version.name,
                resource=resource.plural,
                subresource=call.subresource,
                namespace=call.namespace,
                name=call.name or (known["metadata"].get("name", "") if known else ""),
                uid=known["metadata"].get("uid", "") if known else "",
                fields=fields,
                change_set=call.request.header(CHANGE_SET),
                dry_run=call.request.params.get("dryRun") == "All",
                reason=reason,
                annotations=call.annotations,
            )
        )

    def metrics(self) -> bytes:
        """Figures for Prometheus."""
        own = render(
            self.requests,
            {
                "homeostat_store_revision": ("Last committed revision.", self.store.revision),
                "homeostat_store_compacted_revision": ("Oldest revision that can be read.", self.store.compacted),
                "homeostat_watches": ("Live watches.", len(self.fanout)),
                "homeostat_audit_lost": ("Audit records that could not be kept.", self.audit.lost),
            },
        )
        return own + b"".join(more() for more in self.more_metrics)

    # What the verbs ask of the plane

    def hub(self, call: Call) -> Codec:
        """The codec of the stored form, where the request's version is a converted one."""
        if call.codec.version.encode is None:
            return call.codec
        # A kind that is stored as another one (events of the new group) has that one's prefix.
        stored = self.registry.get(call.resource.prefix.removesuffix("/"))
        return self.registry.codec(stored or call.resource)

    def schemas(self, resource: Resource) -> Callable[[str], Schema | None]:
        """The schema of each version of a kind, by apiVersion: managed fields name the version they were written in."""
        known = self._schemas.get(resource.qualified)
        if known is None:
            by_version = {resource.api_version(v.name): v.schema for v in resource.versions.values()}
            known = self._schemas[resource.qualified] = by_version.get
        return known

    def limit(self, value: bytes) -> None:
        """Refuses objects that grew, by patches, beyond what could have been sent."""
        if len(value) > BODY_LIMIT:
            raise too_large(BODY_LIMIT)

    def authorize_create(self, call: Call) -> None:
        """A write that creates what it was to change needs the right to create as well."""
        asked = Attributes(
            user=call.user,
            verb="create",
            group=call.resource.group,
            version=call.codec.version.name,
            resource=call.resource.plural,
            namespace=call.namespace,
            name=call.name,
        )
        self._require(asked)

    def permit(self, call: Call, obj: Object | None, old: Object | None) -> None:
        """What a write needs beside its verb. `obj` is None for a deletion, `old` for a creation."""
        if call.user is not SYSTEM:
            permit(self, call, obj, old)

    async def admit(self, call: Call, operation: str, obj: Object | None, old: Object | None, *, dry_run: bool) -> None:
        """Holds a write against the admission policies, where `policies.active`. The server's own are not asked about."""
        if call.user is not SYSTEM:
            await self.policies.admit(call, operation, obj, old, dry_run=dry_run)

    def internal(self, verb: str, resource: Resource, namespace: str, name: str, subresource: str = "") -> Call:
        """A call of the server's own."""
        request = Request(verb.upper(), "/", [(b"user-agent", b"homeostat")])
        return Call(request, SYSTEM, verb, resource, self.registry.codec(resource), namespace, name, subresource)

    async def act(
        self, qualified: str, namespace: str, name: str, change: write.Change, subresource: str = ""
    ) -> None:
        """Changes one object on behalf of a controller, the same way as everybody does. What is gone is let be."""
        resource = self.registry.get(qualified)
        if resource is None:
            return
        call = self.internal("patch", resource, namespace, name, subresource)
        options = WriteOptions(call, "PatchOptions")
        try:
            await write.change(self, call, change, options)
        except ApiError as error:
            if error.reason != "NotFound":
                raise


def _asked(call: Call) -> Attributes:
    """What a call wants to do, as roles speak of it."""
    resource, name = call.resource, call.name
    namespace = call.namespace or (name if resource.qualified == "namespaces" else "")
    if call.verb in ("list", "watch") and "fieldSelector" in call.request.query:
        name = named_by_selector(call.request) or name  # it is judged as a request for that one
    version = call.codec.version.name
    return Attributes(call.user, call.verb, resource.group, version, resource.plural, call.subresource, namespace, name)


def _refusal(request: Request, error: Exception) -> ApiError:
    """What a request that failed is told."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, Full | ReadOnly):
        return insufficient_storage(str(error))
    if isinstance(error, StoreError):
        log.error("the store failed: %s", error)
        return unavailable(str(error))
    if isinstance(error, RecursionError):
        return bad_request("the object is nested too deeply")
    log.error("%s %s failed", request.method, request.path, exc_info=error)
    return ApiError(500, "InternalError", "an internal error happened; the server's log has it")


def _deprecated(call: Call) -> str:
    return f"{call.codec.api_version} {call.resource.kind} is deprecated"
