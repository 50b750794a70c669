"""Where the numbers of an autoscaler come from. What cannot be read is `Unknown`, with the reason; it is never 0."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from homeostat.client import Client, Unreachable
from homeostat.loop.live import is_secret
from homeostat.loop.observation import Unknown
from homeostat.loop.prometheus import BadQuery, Combine, PrometheusSource, Query
from homeostat.loop.readings import Metric, MetricSource, Reading, rate
from homeostat.model.clock import Clock
from homeostat.model.errors import ApiError
from homeostat.model.kinds import encode
from homeostat.providers.addresses import Forbidden, Hosts
from homeostat.providers.autoscaler.spec import Cel, MetricSpec, Prometheus

if TYPE_CHECKING:
    import aiohttp
    from aiohttp.abc import AbstractResolver

COST_LIMIT = 1_000_000
"""What one evaluation of an expression may cost; the laws look again soon, and the loop has others to serve."""


class Sources:
    """Makes sources, over connections that are kept. Pages are got only from hosts that the administrator allows."""

    def __init__(self, client: Client, hosts: Hosts, clock: Clock) -> None:
        self._client = client
        self._hosts = hosts
        self._clock = clock
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Ends the connections."""
        if self._session is not None:
            await self._session.close()

    def make(self, metrics: list[MetricSpec], namespace: str) -> list[MetricSource]:
        """A source for each metric. ValueError names the field that makes no sense, `Forbidden` the host that may not be asked."""
        return [self._one(metric, f"spec.metrics[{index}]", namespace) for index, metric in enumerate(metrics)]

    def _one(self, metric: MetricSpec, path: str, namespace: str) -> MetricSource:
        if metric.prometheus is not None:
            return self._page(metric.prometheus, f"{path}.prometheus")
        if metric.cel is not None:
            return Objects(self._client, metric.cel, f"{path}.cel", namespace, self._clock)
        raise ValueError(f"{path}: a metric has exactly one of prometheus and cel")

    def _page(self, spec: Prometheus, path: str) -> MetricSource:
        from yarl import URL

        try:
            url = URL(spec.url)
            self._hosts.check(url.host or "", url.port or 0)
        except ValueError as error:
            raise ValueError(f"{path}.url: {error}") from None
        except Forbidden as error:
            raise Forbidden(f"{path}.url: {error}; it takes --allow http:{url.host}") from None
        try:
            query = Query.parse(spec.series, Combine(spec.aggregation))
        except BadQuery as error:
            raise ValueError(f"{path}.series: {error}") from None
        source = PrometheusSource(spec.url, query, now=self._clock.now, session=self._connections())
        return Growth(source) if spec.per_second else source

    def _connections(self) -> aiohttp.ClientSession:
        import aiohttp

        if self._session is None:
            resolver = cast("AbstractResolver", self._hosts.resolver())
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(resolver=resolver, keepalive_timeout=15),
                auto_decompress=False,
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None),
                headers={"User-Agent": "homeostat"},
            )
        return self._session


class Growth:
    """By how much a counter grew a second since it was read before. The first reading says nothing yet."""

    def __init__(self, source: MetricSource) -> None:
        self._source = source
        self._before: Metric = Unknown("this is the first")

    async def read(self) -> Metric:
        metric = await self._source.read()
        grown = rate(self._before, metric)
        if isinstance(metric, Reading):
            self._before = metric
        return grown


class Objects:
    """What an expression says of objects, listed fresh from the API."""

    def __init__(self, client: Client, spec: Cel, path: str, namespace: str, clock: Clock) -> None:
        from homeostat.model.cel.expression import compile_expression
        from homeostat.model.cel.syntax import InvalidExpression

        if is_secret(encode(spec.over)):
            raise Forbidden(f"{path}.over: what Secrets hold is not for a status to show")
        try:
            self._program = compile_expression(spec.expression, {"objects": "list(dyn)"})
        except InvalidExpression as error:
            raise ValueError(f"{path}.expression: {error}") from None
        self._kind = client.kind(spec.over.api_version, spec.over.kind)
        self._labels = spec.over.labels or ""
        self._namespace = namespace
        self._path = path
        self._clock = clock

    async def read(self) -> Metric:
        from homeostat.model.cel.values import CelError

        try:
            if not (await self._kind.served()).namespaced:
                return Unknown(
                    f"{self._path}.over.kind: a {self._kind.kind} is in no namespace, and only what is in this one is read"
                )
            at = self._clock.now()
            objects = await self._kind.list(namespace=self._namespace, labels=self._labels)
        except ApiError as error:
            return Unknown(f"{self._path}.over: {error.message}")
        except (Unreachable, OSError) as error:
            return Unknown(f"{self._path}.over: {error}")
        try:
            value = self._program.evaluate(COST_LIMIT, objects=list(objects))
        except CelError as error:
            return Unknown(f"{self._path}.expression: {error}")
        return _number(value, at, f"{self._path}.expression")


def _number(value: Any, at: float, path: str) -> Metric:
    if isinstance(value, bool) or not isinstance(value, int | float):
        kind = "a map" if isinstance(value, Mapping) else f"a {type(value).__name__}"
        return Unknown(f"{path}: it gives {kind}, and has to give a number")
    if not math.isfinite(value):
        return Unknown(f"{path}: it gives {value}")
    return Reading(float(value), at)
