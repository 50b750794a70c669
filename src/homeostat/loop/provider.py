"""What a user writes: how one kind of real thing is observed and changed. Everything else is the engine's.

    class File(Provider[FileSpec, FileState], group="files.homeostat.dev"):
        async def observe(self, spec): ...      # FileState, ABSENT, or raise: then it is unknown
        async def apply(self, spec, diff): ...  # idempotent; called only through the gate
        async def delete(self, spec): ...

A provider proposes and never decides: it is called to change something only after the guards let it through, and what it
did is read back before it counts.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextvars import ContextVar
from inspect import iscoroutinefunction, isfunction
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar, cast, get_args, get_origin

import msgspec

from homeostat.client import Client
from homeostat.loop.diff import Diff
from homeostat.loop.failure import Mistake, NoKind, check_type
from homeostat.loop.fleet import Parts, Ref
from homeostat.loop.observation import Absent, State, Unknown
from homeostat.model.kinds import Column, KindInfo, Spec
from homeostat.model.kinds.definition import Scale, Scope

SpecT = TypeVar("SpecT", bound=Spec)
StateT = TypeVar("StateT", bound=Spec)

DEADLINE = 30.0
"""Seconds that one observation or action may take."""
CATEGORY = "homeostat"
"""The category of every kind that the loop keeps: `kubectl get homeostat` shows them all."""


class Moved(Exception):
    """What an action was decided on is no longer so: nothing was done, and it is looked at and decided anew."""


class Refused(Exception):
    """An action was refused, by the other side or by the provider itself, and nothing was done.

    Any other exception leaves open whether something was: then the world is looked at before anything else.
    """


class Task(msgspec.Struct, gc=False):
    """For whom a provider works at this moment; `current()` gives it inside `observe`, `apply` and `delete`.

    `key` is the same for every try of one creation: hand it to the other side, and nothing is made twice. `identity` is what
    `Provider.identity` said of the thing that we made or took over; empty while there is none.
    """

    ref: Ref
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    key: str = ""
    identity: str = ""
    deleting: bool = False
    """Whether the resource is to go: what is observed now is only what is left of it."""
    last_applied: Mapping[str, Any] | None = None
    """What was made true last; None where nothing was."""
    observed: State | None = None
    """While acting: the state that this was decided on."""
    shown: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """What the status shows of the state, by `Provider.shown`, as it was written last: after a restart, what was seen before it."""
    kept: dict[str, Any] = msgspec.field(default_factory=dict)
    """What a provider notes of its work, such as what it made itself. Notes made while acting stay, in the status, where all may read."""


class Undeclared(NamedTuple):
    """Something real that nobody declared: what it is called, and what is known of it."""

    name: str
    what: str


class Declared(NamedTuple, Generic[SpecT]):
    """A declaration, and the identity of what was made or taken over for it; empty where that is not known."""

    ref: Ref
    spec: SpecT
    identity: str


_current: ContextVar[Task] = ContextVar("homeostat_task")


class Working:
    """While it lasts, `current()` is this task."""

    __slots__ = ("_task", "_token")

    def __init__(self, task: Task) -> None:
        self._task = task

    def __enter__(self) -> Task:
        self._token = _current.set(self._task)
        return self._task

    def __exit__(self, *_: object) -> None:
        _current.reset(self._token)


def current() -> Task:
    """The resource being worked on. LookupError outside of a provider's methods."""
    return _current.get()


class Provider(Generic[SpecT, StateT]):
    """One kind of real thing. Class options: `group` (required), `version`, `kind`, `plural`, `scope`, `short_names`, `columns`, `scale`.

    `host=True` is for what runs or writes on the host of the loop: who declares one needs the verb `operate` on it as well.
    `shown` names fields of the state that the status shows, as `kubectl get` and the scale subresource want it. `contested=False` is
    for what ends by itself: that it drifts again and again is then not somebody else's doing, and the flap guard lets it be repaired.
    `adopts=True` is for what is always somebody else's, such as the number of replicas of a target: naming it is enough to act on it.

    Fields of the state that the spec has too, by name, are compared. A field of the spec that the state lacks, such as a password, cannot be
    seen: it is taken to be as it was applied last, so a change of it is applied, and what others do to it is not noticed. `means` names those
    that say how something is done and not what it is, such as a timeout: a change of one alone is nothing to be applied. Where `wanted` says
    what will be seen, nothing else is compared.
    """

    info: ClassVar[KindInfo] = cast(KindInfo, NoKind())
    state_type: ClassVar[type[Spec]]
    deadline: ClassVar[float] = DEADLINE
    shown: ClassVar[tuple[str, ...]] = ()
    contested: ClassVar[bool] = True
    adopts: ClassVar[bool] = False
    means: ClassVar[tuple[str, ...]] = ()
    beside: ClassVar[frozenset[str]] = frozenset()
    """Fields of the status that others write, or the provider itself does: the loop leaves them as they are."""
    journaled: ClassVar[bool] = True
    """Whether an action is written down before it is begun. Not where it is one write to the declaration itself: that is done or not."""
    controller: ClassVar[type[Any] | None] = None
    """A `loop.controller.Controller` of its own, for a kind that can be looked at in a cheaper way; None: the usual one."""

    def __init_subclass__(
        cls,
        *,
        group: str = "",
        version: str = "v1",
        kind: str = "",
        plural: str = "",
        scope: Scope = "Namespaced",
        short_names: tuple[str, ...] = (),
        columns: tuple[Column, ...] = (),
        host: bool = False,
        scale: Scale | None = None,
        shown: tuple[str, ...] = (),
        contested: bool = True,
        adopts: bool = False,
        means: tuple[str, ...] = (),
        **options: Any,
    ) -> None:
        super().__init_subclass__(**options)
        types = _types(cls)
        if types is None and group:
            raise TypeError(f"{cls.__name__}: name its types, as in class {cls.__name__}(Provider[ItsSpec, ItsState], group={group!r})")
        if types is None or not group:
            return  # a class in between: the kind is declared further down
        _check(cls, *types, shown, means)
        cls.state_type, cls.shown, cls.contested, cls.adopts, cls.means = types[1], shown, contested, adopts, means
        cls.info = KindInfo(
            group=group,
            version=version,
            kind=kind or cls.__name__,
            spec=types[0],
            plural=plural,
            scope=scope,
            short_names=short_names,
            columns=columns,
            host=host,
            scale=scale,
            categories=(CATEGORY,),
            description=(cls.__doc__ or "").strip().partition("\n")[0],
        )

    async def open(self, client: Client) -> None:
        """Called once before anything else, with the API that declarations come from: for Secrets, ConfigMaps and the like."""

    async def close(self) -> None:
        """Called once after everything else: lets go of connections and tasks, never of the things themselves."""

    def forget(self, ref: Ref) -> None:
        """A resource is gone, or has changed its fleet: what is kept in memory for it may go."""

    async def observe(self, spec: SpecT) -> StateT | Absent:
        """What is there now. Raise where it cannot be told: a failed read is unknown, never absent."""
        raise Mistake(f"{type(self).__name__} has no `observe`: nothing of it can be seen")

    async def wanted(self, spec: SpecT) -> StateT | None:
        """What an observation will show once the spec is true; None, as here, where it shows the fields of the spec themselves.

        For what is not declared as it is seen: a file is declared by its content and seen by its digest. Fields that are None in it
        are not compared. Raise where it cannot be told: the resource is unknown then.
        """
        return None

    async def apply(self, spec: SpecT, diff: Diff) -> None:
        """Makes it so. May be called again after a crash with the same spec: must be idempotent."""
        raise Mistake(f"{type(self).__name__} has no `apply`: nothing can be made or changed by it")

    async def delete(self, spec: SpecT) -> None:
        """Takes it away. Fine if it is gone already."""
        raise Mistake(f"{type(self).__name__} has no `delete`: nothing can be taken away by it")

    async def observe_all(self, specs: Mapping[Ref, SpecT]) -> Mapping[Ref, StateT | Absent | Unknown]:
        """The whole fleet in one call, where the other side can. What the answer leaves out is unknown."""
        raise NotImplementedError

    async def discover(self, declared: Sequence[Declared[SpecT]]) -> list[Undeclared]:
        """What is there of this kind that none of these declares, as far as it can be seen. For reports: nothing is done about it.

        What cannot be told is said as one of them, instead of being left out. Called without `observe`, after `open`.
        """
        raise NotImplementedError

    def watch(self) -> AsyncIterator[Ref] | None:
        """Hints where to look, as they come; None where there are none. Lost or doubled hints do no harm."""
        return None

    async def unhealthy(self, spec: SpecT, state: StateT) -> str:
        """Why a thing that is as declared does not do its work; empty where it does. Raise where that cannot be told: it is unknown then."""
        return ""

    def holds(self, declaration: Mapping[str, Any]) -> bool:
        """Whether there is, or may be, something to take away before this declaration may go. It is held before it is acted on, anyway."""
        return True

    def tells(self, declaration: Mapping[str, Any], status: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """What of the fields `beside` is to be written along with what the loop says in `status`; None: nothing at all is, for now."""
        return {}

    def facts(self, ref: Ref) -> Mapping[str, Any] | None:
        """What health expressions and invariants see as the state of a thing that was just observed; None, as here: its state.

        For what knows more than it compares: of an object on a Kubernetes API, all of it. It has the fields of the state, and more.
        """
        return None

    def identity(self, spec: SpecT, state: StateT) -> str:
        """What tells this thing from another of the same name: a uid, a URL. A namesake of what we made is not ours."""
        return ""

    def leaves(self, spec: SpecT) -> bool:
        """Whether the thing stays when its declaration is deleted."""
        return False

    def attribute(self, spec: SpecT, diff: Diff) -> Diff:
        """Puts the name of who changed it beside each change, where the other side tells.

        Where what is `wanted` follows reality, it may say too that the declaration is not the cause of the whole: then it is a repair.
        """
        return diff

    def foreign(self, spec: SpecT, diff: Diff) -> str:
        """Why this change is not ours to make, for people; empty where it is. It is then held, and reported."""
        return ""

    def harmless(self, spec: SpecT, diff: Diff) -> bool:
        """Whether this change of what is there harms nothing that is at work, as when something is begun that stood still.

        Guards count it as a creation then.
        """
        return False

    def counts(self, spec: SpecT, state: StateT) -> bool:
        """Whether it is one of those that the limits of a fleet are a share of; what stands still and waits may not be."""
        return True

    def parts(self, spec: SpecT, state: StateT) -> Parts | None:
        """What a difference does inside of a thing that consists of many; None, as here, where it is one.

        Guards hold it to the same limits as a fleet. It cannot be taken apart into waves, so what is beyond them waits for a person.
        """
        return None

    def change_set(self, spec: SpecT, diff: Diff) -> str:
        """What this change belongs to, where that is not who wrote the declaration last; empty: it is."""
        return ""

    def takes(self, spec: SpecT) -> float:
        """Seconds that one action on it may take; default: `deadline`."""
        return self.deadline

    def target(self, spec: SpecT) -> str:
        """What a circuit breaker protects: things with the same target fail together."""
        return ""

    def domain(self, spec: SpecT) -> str:
        """The fault domain; only one is worked on at a time where a policy says so."""
        return ""

    @classmethod
    def translates(cls) -> bool:
        """Whether `wanted` is there."""
        return cls.wanted is not Provider.wanted

    @classmethod
    def discovers(cls) -> bool:
        """Whether `discover` is there."""
        return cls.discover is not Provider.discover

    @classmethod
    def batches(cls) -> bool:
        """Whether `observe_all` is there."""
        return cls.observe_all is not Provider.observe_all


def _types(cls: type) -> tuple[type[Spec], type[Spec]] | None:
    for base in getattr(cls, "__orig_bases__", ()):
        if get_origin(base) is Provider:
            spec, state = get_args(base)
            if not (isinstance(spec, TypeVar) or isinstance(state, TypeVar)):
                return cast(tuple[type[Spec], type[Spec]], (spec, state))
    return None


def _check(cls: type[Provider[Any, Any]], spec: type[Spec], state: type[Spec], shown: tuple[str, ...], means: tuple[str, ...]) -> None:
    """TypeError where a class cannot do what it says."""
    for name, method in vars(Provider).items():
        if isfunction(method) and not iscoroutinefunction(method) and name != "watch" and iscoroutinefunction(getattr(cls, name)):
            raise TypeError(f"{cls.__name__}.{name} is to be written `def`, without async: what it returned would be no answer")
    check_type(cls, spec, "spec")
    check_type(cls, state, "state")
    declared, seen = set(spec.__struct_encode_fields__), set(state.__struct_encode_fields__)
    if unknown := sorted(set(shown) - seen):
        raise TypeError(f"{cls.__name__}: `shown` names {', '.join(unknown)}, and {state.__name__} has only {', '.join(sorted(seen))}")
    if unknown := sorted(set(means) - (declared - seen)):
        raise TypeError(f"{cls.__name__}: `means` names {', '.join(unknown)}; it names fields of {spec.__name__} that {state.__name__} has not")
    if declared and seen and not cls.translates() and not declared & seen:
        raise TypeError(
            f"{cls.__name__}: no field of {state.__name__} ({', '.join(sorted(seen))}) is one of {spec.__name__} ({', '.join(sorted(declared))}), so nothing could"
            " ever differ: name what is compared alike in both, or say by `wanted` what will be seen"
        )
