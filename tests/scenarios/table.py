"""Prints the table of docs/safety.md: what each incident costs with our guards, and with a loop that obeys.

python -m tests.scenarios.table
"""

from __future__ import annotations

import contextlib
import importlib
import io
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from tests.scenarios.fleet import Figures, live_through

ORDER = (
    "health_path_typo",
    "stale_plan",
    "empty_configuration",
    "lost_verdict",
    "empty_selector",
    "freeze_lifted_by_others",
    "template_edit",
    "template_edit_from_git",
    "reused_name",
    "reused_name_from_git",
    "failed_list",
    "lost_repository",
    "remirroring_storm",
    "fault_domains",
    "blank_field",
    "rules_of_others",
    "wrong_ids",
    "mistyped_number",
    "observer_suspected",
    "starved_and_idle",
    "two_controllers_fighting",
    "guard_that_never_clears",
    "definition_deleted",
    "own_judge",
    "label_edit",
    "clock_set",
    "empty_page",
    "slow_poison",
    "many_small_pushes",
    "restart_loop",
    "renamed_children",
    "selector_typo",
    "overlapping_policies",
)


def incidents() -> Iterator[ModuleType]:
    """The scenarios, in the order of the table; one that is not in it comes last."""
    found = {path.stem.removeprefix("test_") for path in Path(__file__).parent.glob("test_*.py")}
    for name in (*ORDER, *sorted(found - set(ORDER))):
        module = importlib.import_module(f"tests.scenarios.test_{name}")
        if hasattr(module, "incident"):
            yield module


def row(module: ModuleType) -> str:
    """An incident: what must hold, its three figures, the damage without guards, and how an honest change gets through."""
    live = getattr(module, "live", live_through)  # those from Git are in real time
    with contextlib.redirect_stdout(io.StringIO()):
        guarded = live(module.incident)
        naive = live(getattr(module, "obedient", module.incident), naive=True)
        honest = live(module.honest)
    twin = f"{module.honest.__doc__}: {honest.came_back}"
    cells = (
        module.INCIDENT,
        module.MUST_HOLD,
        _damage(guarded),
        _damage(naive),
        "nobody was needed" if guarded.told_after is None else f"{guarded.told_after:.1f} s",
        guarded.came_back,
        twin,
    )
    return f"| {' | '.join(cells)} |"


def _damage(figures: Figures) -> str:
    return f"{figures.damage} of {figures.of}"


def table() -> str:
    """The table as Markdown."""
    head = (
        "incident",
        "what must hold",
        "damage",
        "of a naive loop",
        "a person was told after",
        "it came back",
        "an honest change",
    )
    return "\n".join([f"| {' | '.join(head)} |", "|---" * len(head) + "|", *map(row, incidents())])


if __name__ == "__main__":
    import logging

    logging.disable(logging.CRITICAL)
    print(table())
