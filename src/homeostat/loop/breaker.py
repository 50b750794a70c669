"""Breakers and rate limits: how a target that fails is left alone, and one that works is not overrun.

State in, time in, state out: nothing here waits, and nothing looks at a clock.

A breaker is closed while things work. After some failures in a row it opens: for a while nobody asks the target at all.
Then it is half open: one caller may try. If that works it closes, else it opens again. A breaker stops acting, never
observing.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from enum import StrEnum

import msgspec
from msgspec.structs import replace


class Circuit(StrEnum):
    """The three positions of a breaker."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


class BreakerPolicy(msgspec.Struct, frozen=True):
    """When a breaker opens, and for how long."""

    failures: int = 5
    """So many failures in a row open it."""
    open_for: float = 30.0
    """Seconds until it lets a probe through. A probe that is not heard of for as long is taken for lost, and another
    may try."""

    def __post_init__(self) -> None:
        if self.failures < 1 or not self.open_for > 0:
            raise ValueError(f"a breaker needs failures ≥ 1 and open_for > 0: {self}")


class Permit(msgspec.Struct, frozen=True):
    """Leave to ask the target once. It is handed back with the outcome, which counts only while it is about the present:
    what was begun before the breaker last moved says nothing of how the target is now."""

    epoch: int
    probe: bool = False


class Refusal(msgspec.Struct, frozen=True):
    """The target is not to be asked. `until` is when it may be worth asking again."""

    until: float
    reason: str


class Breaker(msgspec.Struct, frozen=True):
    """The breaker of one target, as it stands. Every method gives the breaker as it stands after."""

    circuit: Circuit = Circuit.CLOSED
    failures: int = 0
    """In a row, the last included."""
    since: float = 0.0
    """When it came into this position, or, half open, when its probe began."""
    reason: str = ""
    """What the last failure said."""
    epoch: int = 0

    def ask(self, policy: BreakerPolicy, now: float) -> tuple[Breaker, Permit | Refusal]:
        """Asks whether the target may be asked now. Whoever gets a permit must report `succeeded`, `failed` or `dropped`."""
        if self.circuit is Circuit.CLOSED:
            return self, Permit(self.epoch)
        until = self.since + policy.open_for
        if now < until:
            what = "a probe is under way" if self.circuit is Circuit.HALF_OPEN else "nothing is tried"
            return self, Refusal(
                until, f"the circuit is {self.circuit} after {self.failures} failures in a row; {what}"
            )
        probing = replace(self, circuit=Circuit.HALF_OPEN, since=now, epoch=self.epoch + 1)
        return probing, Permit(probing.epoch, probe=True)

    def succeeded(self, permit: Permit, now: float) -> Breaker:
        """What was permitted worked."""
        if permit.epoch != self.epoch or self.circuit is Circuit.OPEN:
            return self
        if self.circuit is Circuit.HALF_OPEN:
            return Breaker(since=now, epoch=self.epoch + 1)
        return replace(self, failures=0, reason="") if self.failures else self

    def failed(self, permit: Permit, policy: BreakerPolicy, now: float, reason: str = "") -> Breaker:
        """What was permitted failed, for a cause that lies with the target."""
        if permit.epoch != self.epoch or self.circuit is Circuit.OPEN:
            return self
        failures = self.failures + 1
        if self.circuit is Circuit.CLOSED and failures < policy.failures:
            return replace(self, failures=failures, reason=reason)
        return Breaker(Circuit.OPEN, failures, now, reason, self.epoch + 1)

    def dropped(self, permit: Permit, policy: BreakerPolicy) -> Breaker:
        """What was permitted was not done, or says nothing of the target. A probe may then be made by another at once."""
        if permit.epoch != self.epoch or not permit.probe or self.circuit is not Circuit.HALF_OPEN:
            return self
        # open, as of so long ago that the next who asks is let through
        return replace(self, circuit=Circuit.OPEN, since=self.since - policy.open_for, epoch=self.epoch + 1)


class Breakers:
    """A breaker for each target, all with one policy. Targets that never failed take no room."""

    __slots__ = ("_breakers", "policy")

    def __init__(self, policy: BreakerPolicy | None = None) -> None:
        self.policy = policy or BreakerPolicy()
        self._breakers: dict[Hashable, Breaker] = {}

    def get(self, target: Hashable) -> Breaker:
        """The breaker of a target as it stands."""
        return self._breakers.get(target, _CLOSED)

    def ask(self, target: Hashable, now: float) -> Permit | Refusal:
        """Asks whether the target may be asked now. Report what became of a permit."""
        after, answer = self.get(target).ask(self.policy, now)
        self._keep(target, after)
        return answer

    def succeeded(self, target: Hashable, permit: Permit, now: float) -> None:
        self._keep(target, self.get(target).succeeded(permit, now))

    def failed(self, target: Hashable, permit: Permit, now: float, reason: str = "") -> None:
        self._keep(target, self.get(target).failed(permit, self.policy, now, reason))

    def dropped(self, target: Hashable, permit: Permit) -> None:
        self._keep(target, self.get(target).dropped(permit, self.policy))

    def forget(self, target: Hashable) -> None:
        """The target is gone."""
        self._breakers.pop(target, None)

    def tripped(self) -> Iterator[tuple[Hashable, Breaker]]:
        """The targets whose breaker is not closed."""
        return ((target, one) for target, one in self._breakers.items() if one.circuit is not Circuit.CLOSED)

    def _keep(self, target: Hashable, breaker: Breaker) -> None:
        if breaker == _CLOSED:
            self._breakers.pop(target, None)
        else:
            self._breakers[target] = breaker


_CLOSED = Breaker()


_GRAIN = 1e-6
"""A token is there when so little of it is missing: who waits exactly as told must not be sent away by a rounding error."""


class TokenBucket(msgspec.Struct, frozen=True):
    """A rate limit: `rate` tokens a second, of which at most `burst` are saved up. Begins full.

    A clock that goes backwards gives no tokens and takes none.
    """

    rate: float
    burst: float
    tokens: float
    at: float

    @classmethod
    def full(cls, rate: float, burst: float, now: float) -> TokenBucket:
        """A bucket that has not been used yet."""
        if not (rate > 0 and burst >= 1):
            raise ValueError(f"a rate limit needs rate > 0 and burst ≥ 1: rate {rate:g}, burst {burst:g}")
        return cls(rate, burst, burst, now)

    def take(self, now: float, count: int = 1) -> tuple[TokenBucket, float]:
        """Takes tokens if they are there: the wait is 0. Else nothing is taken, and the wait in seconds says when
        they would be, if nobody else came first. More than `burst` at once never comes: that raises ValueError."""
        if count > self.burst:
            raise ValueError(f"{count} at once never fit into a burst of {self.burst:g}")
        filled = self._filled(now)
        if filled.tokens >= count - _GRAIN:
            return replace(filled, tokens=filled.tokens - count), 0.0
        return filled, (count - filled.tokens) / self.rate

    def reserve(self, now: float, count: int = 1) -> tuple[TokenBucket, float]:
        """Takes tokens, on credit if need be, and says for how many seconds to wait before acting. In turn, so that
        whoever comes later waits longer."""
        filled = self._filled(now)
        left = filled.tokens - count
        return replace(filled, tokens=left), max(0.0, -left / self.rate)

    def _filled(self, now: float) -> TokenBucket:
        if now <= self.at:
            return self
        return replace(self, tokens=min(self.burst, self.tokens + (now - self.at) * self.rate), at=now)
