"""The live example of `homeostat up --demo`: a house whose rooms keep the temperature that was declared.

It is the smallest thing that shows the whole idea. Every second it **observes** (physics has moved each room's
temperature), **compares** (with `spec.target`), **acts** (the heater goes on or off) and reports: status, conditions
and events, written only where something changed. It talks to the control plane as any controller does.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass
from typing import Any

from homeostat.api.local import local_client
from homeostat.api.server import Server
from homeostat.client import Client, Informer, Resource, Unreachable
from homeostat.model.clock import Clock
from homeostat.model.conditions import condition_is, set_condition
from homeostat.model.errors import ApiError

log = logging.getLogger("homeostat.demo")

GROUP = "demo.homeostat.dev"
API_VERSION = f"{GROUP}/v1"
NAME = "homeostat-demo"
NAMESPACE = "default"

TICK_SECONDS = 1.0
OUTSIDE = 8.0
"""°C; where every room drifts to when nobody heats."""
LEAK = 0.012
"""The part of the difference to the outside that a room loses in a second."""
KILOWATT = 0.2
"""°C that one kilowatt adds in a second."""
NEAR = 1.0
"""°C from the target within which a room is as declared."""

TRY = [
    "kubectl get thermostats -w",
    "kubectl patch thermostat kitchen --type=merge -p '{\"spec\":{\"target\":24}}'",
    "kubectl wait --for=condition=Ready thermostat/kitchen --timeout=60s",
    "kubectl describe thermostat kitchen",
    "kubectl explain thermostat.spec",
]

ROOMS = {"kitchen": (21, 2), "bedroom": (18, 2), "study": (20, 2), "cellar": (12, 1)}
"""Target in °C and heater in kilowatts."""


def definition() -> dict[str, Any]:
    """The CustomResourceDefinition of Thermostat."""
    spec = {
        "type": "object",
        "description": "What the room should be like.",
        "required": ["target"],
        "properties": {
            "target": {
                "type": "number",
                "minimum": 5,
                "maximum": 30,
                "description": "The temperature to keep, in °C.",
            },
            "heater": {
                "type": "number",
                "minimum": 0,
                "maximum": 5,
                "default": 2,
                "description": "The power of the heater, in kilowatts; 0 means that there is none.",
            },
        },
    }
    condition = {
        "type": "object",
        "required": ["type", "status"],
        "properties": {
            "type": {"type": "string"},
            "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
            "reason": {"type": "string"},
            "message": {"type": "string"},
            "observedGeneration": {"type": "integer", "format": "int64"},
            "lastTransitionTime": {"type": "string", "format": "date-time"},
        },
    }
    status = {
        "type": "object",
        "description": "What the room is like.",
        "properties": {
            "temperature": {"type": "number", "description": "As last observed, in °C."},
            "heating": {"type": "boolean", "description": "Whether the heater is on."},
            "observedGeneration": {"type": "integer", "format": "int64"},
            "conditions": {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["type"],
                "items": condition,
            },
        },
    }
    columns = [
        {"name": "Target", "type": "number", "jsonPath": ".spec.target"},
        {"name": "Temperature", "type": "number", "jsonPath": ".status.temperature"},
        {"name": "Ready", "type": "string", "jsonPath": '.status.conditions[?(@.type=="Ready")].status'},
        {"name": "Reason", "type": "string", "jsonPath": '.status.conditions[?(@.type=="Ready")].reason', "priority": 1},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ]
    schema = {
        "type": "object",
        "description": "A room that keeps its temperature.",
        "required": ["spec"],
        "properties": {"spec": spec, "status": status},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"thermostats.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": "Thermostat",
                "plural": "thermostats",
                "singular": "thermostat",
                "shortNames": ["thermo"],
                "categories": ["all"],
            },
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": columns,
                }
            ],
        },
    }


@dataclass(frozen=True, slots=True)
class Reading:
    """What one look at a room gives: how warm it is, what the heater does, and how that compares."""

    temperature: float
    heating: bool
    ready: bool
    reason: str
    message: str


def step(spec: dict[str, Any], temperature: float, heating: bool) -> Reading:
    """One second of a room: physics moves the temperature, the thermostat decides on the heater. Pure."""
    target, heater = float(spec["target"]), float(spec.get("heater", 2))
    temperature += (OUTSIDE - temperature) * LEAK + (heater * KILOWATT if heating else 0.0)
    # Between the two the heater stays as it is, or it would click on and off each second. It goes off at the target:
    # the strongest heater adds less than NEAR in a second, so a room that is as declared stays so.
    if temperature < target - NEAR / 2:
        heating = heater > 0
    elif temperature > target:
        heating = False
    gap = target - temperature
    if abs(gap) <= NEAR:
        return Reading(temperature, heating, True, "AsDeclared", f"within {NEAR:g} °C of {target:g} °C")
    if gap < 0:
        return Reading(temperature, heating, False, "CoolingDown", f"{-gap:.0f} °C too warm; the heater is off")
    warmest = OUTSIDE + heater * KILOWATT / LEAK
    if warmest < target:
        return Reading(
            temperature, heating, False, "HeaterTooWeak", f"{heater:g} kW cannot warm it beyond {warmest:.0f} °C"
        )
    return Reading(temperature, heating, False, "HeatingUp", f"{gap:.0f} °C too cold; the heater is on")


def report(room: dict[str, Any], reading: Reading, now: str) -> dict[str, Any] | None:
    """The status that says so, or None where it is said already."""
    generation = room["metadata"].get("generation", 1)
    said = room.get("status") or {}
    told = {"status": {**said, "conditions": [dict(c) for c in said.get("conditions") or ()]}}
    for kind, holds in (("Ready", reading.ready), ("Progressing", not reading.ready)):
        set_condition(
            told,
            kind,
            str(holds),
            now=now,
            reason=reading.reason,
            message=reading.message,
            observed_generation=generation,
        )
    told["status"] |= {
        "temperature": round(reading.temperature, 1),
        "heating": reading.heating,
        "observedGeneration": generation,
    }
    return told["status"] if told["status"] != said else None


class Demo:
    """The house, beside a server that runs. What people changed in it is kept over restarts."""

    def __init__(self, server: Server) -> None:
        self._client: Client = local_client(server.plane, NAME)
        self._clock: Clock = server.plane.clock
        self._rooms: Resource[dict[str, Any]] = self._client.kind(API_VERSION, "Thermostat")
        self._informer: Informer[dict[str, Any]] = self._rooms.informer()
        self._temperatures: dict[str, float] = {}  # by uid, finer than status shows them
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Declares the kind and the rooms where they are not there, and begins to keep them."""
        await self._declare()
        self._informer.start()
        await self._informer.wait_synced()
        self._task = asyncio.get_running_loop().create_task(self._live(), name="demo")

    async def stop(self) -> None:
        """Leaves everything as it is."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        await self._client.close()

    async def _declare(self) -> None:
        crds = self._client.kind("apiextensions.k8s.io/v1", "CustomResourceDefinition")
        wanted = definition()
        await crds.apply(wanted, field_manager=NAME, force=True)
        async with crds.watch(fields=f"metadata.name={wanted['metadata']['name']}") as events:
            async for event in events:
                if condition_is(event.object, "Established"):
                    break
        if await self._rooms.list(namespace=NAMESPACE):
            return  # a restart: the house is as its people left it
        for name, (target, heater) in ROOMS.items():
            room = {"metadata": {"name": name}, "spec": {"target": target, "heater": heater}}
            await self._rooms.create(room, namespace=NAMESPACE)

    async def _live(self) -> None:
        while True:
            for room in self._informer.all():
                try:
                    await self._keep(room)
                except (ApiError, Unreachable) as error:
                    log.info("%s: %s; again in a second", room["metadata"]["name"], error)
            await asyncio.sleep(TICK_SECONDS)

    async def _keep(self, room: dict[str, Any]) -> None:
        meta, said = room["metadata"], room.get("status") or {}
        if meta.get("deletionTimestamp"):
            return
        before = self._temperatures.get(meta["uid"], float(said.get("temperature", OUTSIDE + 8)))
        reading = step(room["spec"], before, bool(said.get("heating")))
        self._temperatures[meta["uid"]] = reading.temperature
        status = report(room, reading, self._clock.timestamp())
        if status is None:
            return
        # Who changed the room meanwhile is right: the next look, a second later, sees what they want.
        patch = {"metadata": {"resourceVersion": meta["resourceVersion"]}, "status": status}
        with contextlib.suppress(_Overtaken):
            await self._write(room, patch)
            if _reason(said) != reading.reason:
                await self._tell(room, reading)

    async def _write(self, room: dict[str, Any], patch: dict[str, Any]) -> None:
        meta = room["metadata"]
        try:
            await self._rooms.patch(meta["name"], patch, namespace=meta["namespace"], subresource="status")
        except ApiError as error:
            if error.code in (404, 409):
                raise _Overtaken from None
            raise

    async def _tell(self, room: dict[str, Any], reading: Reading) -> None:
        """An event, as `kubectl describe` and `kubectl events` show it."""
        meta, now = room["metadata"], self._clock.timestamp()
        event = {
            "metadata": {"generateName": f"{meta['name']}-", "namespace": meta["namespace"]},
            "type": "Warning" if reading.reason == "HeaterTooWeak" else "Normal",
            "reason": reading.reason,
            "message": f"{reading.temperature:.1f} °C: {reading.message}",
            "involvedObject": {
                "apiVersion": API_VERSION,
                "kind": "Thermostat",
                "name": meta["name"],
                "namespace": meta["namespace"],
                "uid": meta["uid"],
                "resourceVersion": meta["resourceVersion"],
            },
            "source": {"component": NAME},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        await self._client.kind("v1", "Event").create(event)


class _Overtaken(Exception):
    """Somebody else changed or deleted the room first."""


def _reason(status: dict[str, Any]) -> str:
    ready = [c for c in status.get("conditions") or () if c.get("type") == "Ready"]
    return str(ready[0].get("reason", "")) if ready else ""
