"""Has Ansible tell what it does, one JSON object for each task and host, into the file that HOMEOSTAT_RESULTS names.

Ansible loads this; nothing of Homeostat is at hand here. What a task hides by `no_log` comes in hidden already.
"""
# mypy: ignore-errors

import json
import os

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
    name: homeostat
    type: stdout
    short_description: results as lines of JSON
    description: Writes the result of each task on each host to a file.
"""


class CallbackModule(CallbackBase):
    """Told by Ansible of everything that happens."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "homeostat"

    def __init__(self):
        super().__init__()
        self._file = open(os.environ["HOMEOSTAT_RESULTS"], "a", encoding="utf-8")  # noqa: SIM115

    def v2_runner_on_ok(self, result):
        self._tell("ok", result)

    def v2_runner_on_failed(self, result, ignore_errors=False):
        self._tell("ignored" if ignore_errors else "failed", result)

    def v2_runner_on_skipped(self, result):
        self._tell("skipped", result)

    def v2_runner_on_unreachable(self, result):
        self._tell("unreachable", result)

    def v2_playbook_on_no_hosts_matched(self):
        self._write({"how": "no hosts"})

    def v2_playbook_on_stats(self, stats):
        self._write({"how": "end"})

    def _tell(self, how, result):
        task, found = result._task, result._result
        hidden = bool(found.get("_ansible_no_log") or getattr(task, "no_log", False))
        said = {
            "how": how,
            "host": result._host.get_name(),
            "task": task.get_name(),
            "action": task.action,
            "where": task.get_path() or "",
            "changed": bool(found.get("changed")),
            "message": "" if hidden else str(found.get("msg", "")),
            "arguments": {} if hidden else {k: v for k, v in task.args.items() if not k.startswith("_ansible_")},
            "diff": None if hidden else _diffs(found),
        }
        self._write(said)

    def _write(self, said):
        self._file.write(json.dumps(said, default=str) + "\n")
        self._file.flush()


def _diffs(found):
    """All diffs of a result, those of the items of a loop among them."""
    diffs = found.get("diff") or []
    diffs = list(diffs) if isinstance(diffs, list) else [diffs]
    for item in found.get("results") or []:
        if isinstance(item, dict) and not item.get("_ansible_no_log"):
            diffs += _diffs(item)
    return diffs
