"""A policy, compiled, and what it says of one write."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from homeostat.api.cel.rules import LONGEST_MESSAGE, OBJECT_LIMIT, RULE_LIMIT
from homeostat.api.policies.environment import Environment, Expression, values_for
from homeostat.api.policies.matching import Matching
from homeostat.api.resource import Object
from homeostat.model.cel.types import BOOL, NULL, STRING
from homeostat.model.cel.values import BudgetExceeded, CelError

LONGEST_ANNOTATION = 10 * 1024
_SPENT = "validation failed due to running out of cost budget, no further validation rules will be run"


class Objection(msgspec.Struct):
    """Something that a policy has against a write. `index` is that of the validation that failed."""

    message: str
    reason: str = ""
    index: int = 0


class Verdict(msgspec.Struct):
    """What a policy says of one write with one parameter. `errors` refuse it whatever the binding would do."""

    objections: list[Objection] = msgspec.field(default_factory=list)
    annotations: list[tuple[str, str]] = msgspec.field(default_factory=list)
    errors: list[Objection] = msgspec.field(default_factory=list)


class Validation(msgspec.Struct):
    """One demand: what must hold, and what is said where it does not."""

    test: Expression
    text: str
    message: str
    message_code: Expression | None
    reason: str


class Policy:
    """One ValidatingAdmissionPolicy. Its expressions are compiled when the first write that it means comes by."""

    def __init__(self, obj: Object) -> None:
        spec = obj.get("spec") or {}
        self.name: str = obj["metadata"]["name"]
        self.spec = spec
        self.param_kind: dict[str, str] | None = spec.get("paramKind")
        self.ignores_failure = spec.get("failurePolicy") == "Ignore"
        self.constraints = Matching(spec.get("matchConstraints") or {})
        self._compiled: Compiled | None = None

    @property
    def compiled(self) -> Compiled:
        if self._compiled is None:
            self._compiled = Compiled(self.spec)
        return self._compiled

    def judge(self, bindings: dict[str, Any]) -> Verdict:
        """What it has against a write. `bindings` are the variables of the expressions."""
        verdict = Verdict()
        run = _Run(self.compiled, bindings)
        try:
            if not self._conditions_hold(run):
                return verdict
            self._validate(run, verdict)
            self._annotate(run, verdict)
        except BudgetExceeded:
            verdict = Verdict([Objection(_SPENT)])
        except CelError as error:
            verdict = Verdict([Objection(str(error))])
        else:
            return verdict
        return Verdict() if self.ignores_failure else verdict

    def _conditions_hold(self, run: _Run) -> bool:
        problems = []
        for condition in self.compiled.conditions:
            try:
                if run.evaluate(condition, before_match=True) is False:
                    return False
            except CelError as error:
                problems.append(str(error))
        if problems and not self.ignores_failure:
            raise CelError(problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]")
        return not problems

    def _validate(self, run: _Run, verdict: Verdict) -> None:
        for index, validation in enumerate(self.compiled.validations):
            try:
                if run.evaluate(validation.test) is True:
                    continue
            except CelError as error:
                if not self.ignores_failure:
                    verdict.objections.append(Objection(str(error), index=index))
                continue
            verdict.objections.append(Objection(run.message(validation), validation.reason or "Invalid", index))

    def _annotate(self, run: _Run, verdict: Verdict) -> None:
        for key, expression in self.compiled.annotations:
            try:
                value = run.evaluate(expression)
            except CelError as error:
                if not self.ignores_failure:
                    verdict.errors.append(Objection(str(error)))
                continue
            text = value.strip() if isinstance(value, str) else ""
            if text:
                verdict.annotations.append((key, text.encode()[:LONGEST_ANNOTATION].decode(errors="ignore")))


class Compiled:
    """Every expression of a policy."""

    def __init__(self, spec: dict[str, Any]) -> None:
        env = Environment(params=bool(spec.get("paramKind")))
        self.conditions = [env.compile(c["expression"], (BOOL,), composed=False) for c in spec.get("matchConditions") or ()]
        self.variables = {v["name"]: env.define(v["name"], v["expression"]) for v in spec.get("variables") or ()}
        self.validations = [_validation(env, raw) for raw in spec.get("validations") or ()]
        self.annotations: Sequence[tuple[str, Expression]] = [
            (raw["key"], env.compile(raw["valueExpression"], (STRING, NULL))) for raw in spec.get("auditAnnotations") or ()
        ]


def _validation(env: Environment, raw: dict[str, Any]) -> Validation:
    message = raw.get("messageExpression")
    return Validation(
        env.compile(raw["expression"], (BOOL,)),
        raw["expression"].strip(),
        (raw.get("message") or "").strip(),
        env.compile(message, (STRING,), authorizer=False) if message else None,
        raw.get("reason") or "",
    )


class _Variables(dict[str, Any]):
    """The variables of a policy: each is evaluated when it is first asked for, once."""

    def __init__(self, run: _Run, expressions: dict[str, Expression]) -> None:
        self._run = run
        self._expressions = expressions
        self._failed: dict[str, CelError] = {}

    def __missing__(self, name: str) -> Any:
        if name in self._failed:
            raise self._failed[name]
        expression = self._expressions[name]
        try:
            value = self[name] = self._run.raw(expression)
        except CelError as error:
            self._failed[name] = CelError(f'composited variable "{name}" fails to evaluate: {error}')
            raise self._failed[name] from None
        return value


class _Run:
    """One evaluation of a policy, and what it may still cost."""

    def __init__(self, compiled: Compiled, bindings: dict[str, Any]) -> None:
        self._left = OBJECT_LIMIT
        # Conditions come before everything else, and do not know the namespace yet.
        self._before = values_for({**bindings, "namespaceObject": None})
        self._values = values_for({**bindings, "variables": _Variables(self, compiled.variables)})

    def raw(self, expression: Expression, *, before_match: bool = False) -> Any:
        if expression.code is None:
            raise CelError(f"compilation error: {expression.error}")
        limit = min(RULE_LIMIT, self._left)
        value, cost = expression.code.evaluate(self._before if before_match else self._values, limit)
        self._left -= cost
        if self._left < 0:
            raise BudgetExceeded
        return value

    def evaluate(self, expression: Expression, *, before_match: bool = False) -> Any:
        """The value of an expression; CelError says which one it was that failed."""
        try:
            return self.raw(expression, before_match=before_match)
        except CelError as error:
            if expression.code is None:
                raise
            raise CelError(f"expression '{expression.text}' resulted in error: {error}") from None

    def message(self, validation: Validation) -> str:
        """What is said of a demand that is not met."""
        text = ""
        if validation.message_code is not None:
            try:
                made = self.raw(validation.message_code)
            except CelError:
                made = None  # the plain message is what is left for this case
            text = made.strip() if isinstance(made, str) else ""
        if "\n" in text or len(text.encode()) > LONGEST_MESSAGE:
            text = ""
        return text or validation.message or f"failed expression: {validation.text}"
