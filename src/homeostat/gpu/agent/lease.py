"""The Lease of a node: while it is renewed, its agent lives. Named as the node, in kube-system; it also keeps a second agent from the name."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from homeostat.client import Client, Unreachable
from homeostat.gpu.agent.origin import Origin
from homeostat.loop.election import NAMESPACE, Candidacy, Timing, elapsed
from homeostat.model.clock import Clock
from homeostat.model.errors import ApiError

log = logging.getLogger("homeostat.gpu.agent")

TIMING = Timing(lease=40.0, deadline=35.0, renew=10.0, retry=2.0, patience=8.0)
"""A node is lost after 40 s without a word, as Kubernetes has it; it gives word every 10 s."""
_MOVED = ("Conflict", "AlreadyExists", "NotFound")
_GONE = "resourceVersion should not be set"
"""What a server says of the renewal of a lease that somebody deleted: it takes it for a creation."""


def timing_for(lease: float) -> Timing:
    """The same for a node that is lost after so many seconds."""
    part = lease / TIMING.lease
    return Timing(lease, TIMING.deadline * part, TIMING.renew * part, TIMING.retry * part, TIMING.patience * part)


class Replaced(Exception):
    """Another agent took the name while this one could not be heard of."""


class Heartbeat:
    """Renews the lease of a node. `held` is set once it is ours; a stop does not give it back, for the processes run on."""

    def __init__(
        self,
        client: Client,
        node: str,
        identity: str,
        *,
        timing: Timing = TIMING,
        clock: Clock | None = None,
        now: Callable[[], float] = elapsed,
        origin: Origin | None = None,
    ) -> None:
        self.held = asyncio.Event()
        self.back: Callable[[], None] = lambda: None
        """Called when it is renewed after it could not be: from now on the node counts as heard of, and should hear."""
        self._leases = client.kind("coordination.k8s.io/v1", "Lease", namespace=NAMESPACE)
        self._node = node
        self._candidacy = Candidacy(identity, timing)
        self._timing = timing
        self._clock = clock or Clock()
        self._now = now
        self._origin = origin
        self._said = ""

    async def run(self) -> None:
        """Renews it until it is cancelled. `Replaced` where it was ours and is another's now; `OtherServer` where it is not the right one to
        renew it with; `ApiError` where it may not be had at all.
        """
        while True:
            await self._try()
            now = self._now()
            await asyncio.sleep(self._timing.retry if self._candidacy.due <= now else self._candidacy.due - now)

    async def _try(self) -> None:
        candidacy = self._candidacy
        try:
            async with asyncio.timeout(self._timing.patience):
                if not (candidacy.leads(self._now()) and await self._write()):
                    candidacy.saw(await self._read(), self._now())
                    await self._write()
        except (ApiError, Unreachable, TimeoutError) as error:
            if isinstance(error, ApiError) and error.code in (401, 403) and not self.held.is_set():
                raise
            self._say(f"the lease of {self._node} cannot be renewed: {str(error) or 'no answer'}")
            return
        if candidacy.holder == candidacy.identity:
            self.held.set()
            if self._said:
                self._say("")
                self.back()
            return
        trouble = (
            f"{self._node} is kept by another agent, {candidacy.holder}: give this one another --name, or stop that one"
        )
        if self.held.is_set():
            raise Replaced(trouble)
        self._say(trouble)

    async def _read(self) -> dict[str, Any] | None:
        if self._origin is not None:
            return await self._origin.read(self._node)
        try:
            return await self._leases.get(self._node)
        except ApiError as error:
            if error.reason != "NotFound":
                raise
            return None

    async def _write(self) -> bool:
        """Writes what is wished for, if anything; False where somebody came first."""
        candidacy = self._candidacy
        spec = candidacy.wish(self._now(), self._clock.now())
        if spec is None:
            return True
        asked = self._now()
        try:
            written = await self._put(candidacy.lease, spec)
            candidacy.wrote(written, asked)
        except ApiError as error:
            if error.reason not in _MOVED and _GONE not in error.message:
                raise
            return False
        if self._origin is not None:
            await self._origin.wrote(self._node, written)
        return True

    async def _put(self, lease: dict[str, Any] | None, spec: dict[str, Any]) -> dict[str, Any]:
        """An apply where there is none: a role can allow that for this very name, which it cannot for a plain creation."""
        if lease is None:
            made = {"metadata": {"name": self._node}, "spec": spec}
            return await self._leases.apply(made, field_manager=self._candidacy.identity[:128])
        return await self._leases.replace({**lease, "spec": spec})

    def _say(self, trouble: str) -> None:
        if trouble != self._said:
            self._said = trouble
            log.warning("%s", trouble or f"the lease of {self._node} is renewed again")
