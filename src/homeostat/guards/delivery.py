"""Tells people: listens to the loop, keeps a book for each receiver, and delivers what is owed in the background.

Every word is delivered at least once: it is owed until its receiver has answered 2xx, and tried again after growing pauses. What was
told is kept in the status of the policy, so a restart says it again only when it is time to. Nothing of this can hold the loop up.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from homeostat.client import Client
from homeostat.guards.alerts import CALM_SECONDS, Book, Line, State, receiver_id, situations
from homeostat.guards.gate import DEFAULT, PolicyGate
from homeostat.guards.messages import alertmanager, document, host_of, is_alertmanager
from homeostat.guards.policy import Alert
from homeostat.guards.posting import AGAIN, Hosts, NotDelivered, Poster
from homeostat.loop.fleet import Fleet, Verdict
from homeostat.loop.listener import Listener
from homeostat.model.clock import Clock
from homeostat.model.conditions import set_condition

log = logging.getLogger("homeostat.guards")


class Receiver:
    """One webhook: its book, and what is the matter with it."""

    def __init__(self, alert: Alert, calm: float) -> None:
        self.alert = alert
        self.id = receiver_id(alert)
        self.host = host_of(alert.webhook)
        self.book = Book(alert.remind_after.total_seconds(), calm)
        self.wake = asyncio.Event()
        self.failures = 0
        self.error = ""
        self.task: asyncio.Task[None] | None = None


class Alerts(Listener):
    """Delivers alerts. `start` it before the engine and `stop` it after.

    `always` hear of every fleet, beside those whom its policies name. `hosts` says where may be connected to; without, anywhere.
    `calm` is how long (seconds) something must be gone before it is said to be over.
    """

    def __init__(
        self,
        client: Client,
        gate: PolicyGate,
        always: Sequence[Alert] = (),
        *,
        clock: Clock | None = None,
        hosts: Hosts | None = None,
        calm: float = CALM_SECONDS,
        source: random.Random | None = None,
    ) -> None:
        self._poster = Poster(client, hosts)
        self._gate = gate
        self._always = tuple(always)
        self._clock = clock or Clock()
        self._calm = calm
        self._random = source or random.Random()
        self._receivers: dict[str, Receiver] = {}
        self._policies: dict[str, tuple[str, ...]] = {}  # of each fleet
        self.changed: Callable[[str], None] = lambda policy: None
        """Told the name of each policy whose status has something new to show."""
        self.kept: Callable[[str], Mapping[str, Any]] = lambda policy: {}
        """The status of a policy as it was written last."""

    async def stop(self) -> None:
        """Ends it. What is owed is owed to those who look at the status next."""
        tasks = [one.task for one in self._receivers.values() if one.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._poster.close()

    # What the loop says

    def decided(self, fleet: Fleet, verdict: Verdict, seconds: float) -> None:
        names = self._gate.names(fleet) or (fleet.name.removeprefix(DEFAULT),)
        wanted = self._wanted(names)
        if not wanted and fleet.name not in self._policies:
            return
        now, first = self._clock.now(), fleet.name not in self._policies
        self._policies[fleet.name] = names
        on = {kind for alert in wanted.values() for kind in alert.on}
        standing = situations(self._gate.policy(fleet), fleet, verdict, now, on)
        for key, alert in wanted.items():
            receiver = self._receiver(key, alert)
            if first:
                self._restore(receiver, fleet.name, names)
            told = {about: one for about, one in standing.items() if one.on in alert.on}
            if told or receiver.book.lines:
                receiver.book.enter(fleet.name, told, now, whole=fleet.passes_done > 0)
                receiver.wake.set()
        self._drop_unwanted(fleet.name, wanted)

    def _wanted(self, names: Iterable[str]) -> dict[str, Alert]:
        gate = self._gate
        found = [p for name in names if (p := gate.policies.get(name) or gate.built_in.get(name)) is not None]
        return {receiver_id(a): a for a in (*self._always, *(a for policy in found for a in policy.alerts))}

    def _receiver(self, key: str, alert: Alert) -> Receiver:
        found = self._receivers.get(key)
        if found is None:
            found = self._receivers[key] = Receiver(alert, self._calm)
            run = self._deliver_forever(found)
            found.task = asyncio.get_running_loop().create_task(run, name=f"alerts to {found.host}")
        elif found.alert != alert:
            found.alert = alert
            found.book.remind_after = alert.remind_after.total_seconds()
        return found

    def _restore(self, receiver: Receiver, fleet: str, names: Iterable[str]) -> None:
        for name in names:
            for kept in self.kept(name).get("alerts") or ():
                if kept["receiver"] == receiver.id and kept["fleet"] == fleet:
                    receiver.book.restore(kept)

    def _drop_unwanted(self, fleet: str, wanted: Mapping[str, Alert]) -> None:
        """Who is no longer to be told of a fleet is owed nothing about it."""
        for key, receiver in self._receivers.items():
            if key not in wanted:
                for line in [line for line in receiver.book.lines if line[0] == fleet]:
                    del receiver.book.lines[line]

    # What the policies show

    def show(self, policy: str, status: dict[str, Any]) -> dict[str, Any]:
        """The status of a policy with what people were told about its fleets, and whether they could be."""
        fleets = {fleet for fleet, names in self._policies.items() if policy in names}
        if not fleets:
            return status
        shown = {"status": {**status, "conditions": [*status.get("conditions", ())]}}
        receivers = [one for key, one in self._receivers.items() if key in self._wanted((policy,))]
        shown["status"]["alerts"] = sorted(
            (line for one in receivers for fleet, line in one.book.shown(one.id) if fleet in fleets),
            key=lambda line: (line["fleet"], line["about"], line["receiver"]),
        )
        if receivers:
            failing = "; ".join(f"{one.host}: {one.error}" for one in receivers if one.error)
            set_condition(
                shown,
                "AlertsDelivered",
                "False" if failing else "True",
                now=self._clock.timestamp(),
                reason="NotDelivered" if failing else "Delivered",
                message=failing,
                observed_generation=status.get("observedGeneration"),
            )
        return shown["status"]

    def _show_again(self, fleets: Iterable[str]) -> None:
        for name in dict.fromkeys(name for fleet in fleets for name in self._policies.get(fleet, ())):
            self.changed(name)

    # Delivery

    async def _deliver_forever(self, receiver: Receiver) -> None:
        book = receiver.book
        await asyncio.to_thread(importlib.import_module, "aiohttp")  # half a second that no alert should wait for
        while True:
            await self._until_owed(receiver)
            receiver.wake.clear()
            book.give_up(self._clock.now())
            owed = book.owed(self._clock.now())
            if not owed:
                continue
            pause = 0.0
            try:
                await self._deliver(receiver, owed)
                receiver.failures, receiver.error = 0, ""
            except Exception as error:
                if not isinstance(error, NotDelivered):
                    log.exception("an alert to %s could not be made", receiver.host)
                    error = NotDelivered(f"it could not be made: {type(error).__name__}")
                receiver.failures += 1
                receiver.error = str(error)
                pause = max(error.wait, AGAIN.delay(receiver.failures, self._random))
                log.warning("%s could not be told, and will be again in %.0f s: %s", receiver.host, pause, error)
            self._show_again(line.fleet for line, _ in owed)
            await asyncio.sleep(pause)

    async def _until_owed(self, receiver: Receiver) -> None:
        while not receiver.wake.is_set():
            due = receiver.book.next()
            delay = None if due is None else due - self._clock.now()
            if delay is not None and delay <= 0:
                return
            try:
                async with asyncio.timeout(delay):
                    await receiver.wake.wait()
            except TimeoutError:
                return

    async def _deliver(self, receiver: Receiver, owed: Sequence[tuple[Line, State]]) -> None:
        """Sends what is owed: to Alertmanager all at once, to others one after the other."""
        book, now = receiver.book, self._clock.now()
        if is_alertmanager(receiver.alert.webhook):
            plans = [line.situation.plan for line, _ in owed]  # as it goes out: it may move meanwhile
            alerts = [alertmanager(o, s, self._policies[o.fleet], now, book.remind_after) for o, s in owed]
            await self._poster.post(receiver.alert.webhook, alerts, receiver.alert.secret)
            for (line, state), plan in zip(owed, plans, strict=True):
                book.said(line, state, plan, self._clock.now())
            return
        for line, state in owed:
            plan = line.situation.plan
            message = document(line, state, self._policies[line.fleet], now)
            await self._poster.post(receiver.alert.webhook, message, receiver.alert.secret)
            book.said(line, state, plan, self._clock.now())
