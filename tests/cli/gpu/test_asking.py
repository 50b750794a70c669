"""Who has which GPUs, who waits and why: computed when it is asked, from what the server says then."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from tests.cli.conftest import COMMAND

from homeostat.cli import main
from homeostat.gpu.kinds import GROUP, NODE, POLICY, TENANT, WORKLOAD
from homeostat.guards.policy import POLICY_KIND
from homeostat.model.clock import format_micro_time, format_time
from homeostat.model.protocol import FINALIZER

from .conftest import Ask, Fleet


def test_quota_tells_what_is_used_borrowed_and_lent(ask: Ask, fleet: Fleet) -> None:
    rows = {row["tenant"]: row for row in json.loads(ask("quota", "-o", "json").stdout)}
    assert {name: (row["nominal"], row["used"], row["borrowed"], row["lent"]) for name, row in rows.items()} == {
        "vision": (4, 5, 1, 0),
        "speech": (4, 1, 0, 1),
    }
    assert rows["vision"]["dominantShareNow"] == pytest.approx(5 / 8 / 2, abs=1e-3)
    assert rows["speech"]["budget"]["gpuHours"] == 100
    text = ask("quota").stdout
    assert "TENANT" in text
    assert "of 100 GPU h" in text


def test_use_beyond_all_that_a_tenant_may_have_is_called_too_many_and_not_borrowed(ask: Ask, fleet: Fleet) -> None:
    fleet.tenant("alone", 1)
    fleet.workload("big", "alone", on=("n1", [6, 7]), resources={"gpus": 2})
    (row,) = json.loads(ask("quota", "alone", "-o", "json").stdout)
    assert (row["used"], row["borrowed"], row["over"]) == (2, 0, 1)
    assert "2, 1 too many" in ask("quota", "alone").stdout


def test_the_queue_is_in_order_with_what_binds_each(ask: Ask, fleet: Fleet) -> None:
    fleet.workload("late", "speech", resources={"gpus": 8})
    fleet.workload("urgent", "speech", resources={"gpus": 8}, priority=100)
    fleet.workload("lost", "nobody")
    rows = json.loads(ask("queue", "-o", "json").stdout)
    assert [(row["name"], row["position"], row["constraint"]) for row in rows] == [
        ("urgent", 1, "quota"),
        ("late", 2, "quota"),
        ("lost", 0, "tenant"),
    ]
    assert rows[1]["ahead"] == {"workloads": 1, "gpus": 8.0}
    mine = ask("queue", "--tenant", "speech", "--limit", "1")
    assert "default/urgent" in mine.stdout
    assert "default/late" not in mine.stdout
    assert "… and 1 more" in mine.stderr
    assert "nobody waits" in ask("queue", "-n", "elsewhere").stderr


def test_nobody_waits_is_said(ask: Ask, fleet: Fleet) -> None:
    done = ask("queue")
    assert (done.exit_code, done.stdout) == (0, "")
    assert "nobody waits" in done.stderr


def test_explain_names_what_binds_the_position_and_who_is_ahead_with_how_much(ask: Ask, fleet: Fleet) -> None:
    fleet.workload("first", "speech", resources={"gpus": 8}, priority=5)
    fleet.workload("second", "speech", resources={"gpus": 8})
    waits = json.loads(ask("explain", "second", "-o", "json").stdout)["waits"]
    assert (waits["constraint"], waits["position"], waits["queue"]) == ("quota", 2, 2)
    assert waits["ahead"] == [{"name": "default/first", "tenant": "speech", "gpus": "8", "why": "higher priority"}]
    assert waits["aheadGpus"] == 8
    said = ask("explain", "second").stdout
    assert "held back  by quota" in said
    assert "position   2 of 2; 1 workload ahead of it" in said
    assert "default/first  speech wants 8: higher priority" in said
    assert "homeostat gpu quota speech" in said


def test_explain_says_of_the_second_in_the_queue_that_the_first_wants_something_else(ask: Ask, fleet: Fleet) -> None:
    fleet.tenant("alone", 1)
    fleet.workload("first", "speech", resources={"gpus": 8}, priority=5)
    fleet.workload("other", "alone", resources={"gpus": 1}, replicas=2)
    said = ask("explain", "first").stdout + ask("explain", "other").stdout
    assert "position   1 of 2; nobody is ahead of it\n" in said
    assert "position   2 of 2; 1 workload ahead of it, none for the same GPUs or quota" in said


def test_explain_promises_nothing_to_one_that_no_end_of_other_work_lets_start(ask: Ask, fleet: Fleet) -> None:
    fleet.workload("odd", "speech", resources={"gpus": "1.5"})
    said = ask("explain", "odd").stdout
    assert "likely     not as things are" in said
    assert "next       nothing, until that is changed" in said


def test_explain_tells_a_promise_that_was_not_kept_and_does_not_take_the_telling_for_what_comes_next(ask: Ask, fleet: Fleet) -> None:
    missed = {"type": "SlaMet", "status": "False", "reason": "SlaMissed", "message": "its deadline passed 1 s ago"}
    missed["lastTransitionTime"] = format_time(time.time() - 90)
    fleet.workload("late", "speech", on=("n1", [6]), deadline="2020-01-01T00:00:00Z", status={"conditions": [missed]})
    said = ask("explain", "late").stdout
    assert "missed     1m3" in said
    assert "ago: its deadline passed 1 s ago" in said
    assert "next       nothing is planned: it runs on" in said


def test_explain_says_that_nobody_makes_way_while_the_preemptions_of_the_hour_are_used_up(ask: Ask, fleet: Fleet) -> None:
    memory = {"at": time.time(), "preemptions": [time.time() - 1800, time.time() - 60]}
    notebook = {"metadata": {"name": "homeostat-governor"}, "data": {"memory": json.dumps(memory)}}
    fleet.write("v1", "ConfigMap", notebook, namespace="kube-system")
    fleet.write(POLICY.api_version, "GpuPolicy", {"metadata": {"name": "default"}, "spec": {"preemption": {"perHour": 2}}})
    fleet.workload("urgent", "vision", resources={"gpus": 4}, priority=9)
    said = ask("explain", "urgent").stdout
    assert "nobody makes way for it for another 29m5" in said
    assert "2 preemptions in the last hour, and the GpuPolicy allows 2" in said


def test_explain_says_what_keeps_an_agent_from_starting_it(ask: Ask, fleet: Fleet) -> None:
    report = {"replica": 0, "node": "n1", "state": "Unknown", "gpus": [6], "reason": "No space left on device"}
    fleet.workload("stuck", "speech", on=("n1", [6]), status={"phase": "Starting", "reports": [report]})
    assert "next       n1 has still to run it: No space left on device" in ask("explain", "stuck").stdout


def test_explain_says_of_one_that_was_declared_anew_that_it_runs_as_before(ask: Ask, fleet: Fleet) -> None:
    fleet.workload("grown", "speech", on=("n1", [6, 7]), resources={"gpus": 4})
    fleet.workload("strange", "nobody", on=("n1", [5]), resources={"gpus": 1})
    assert "it holds 2 GPUs, as was declared when it began" in ask("explain", "grown").stdout
    assert "nobody is no tenant that its namespace may use: what it holds counts in no quota" in ask("explain", "strange").stdout
    fleet.workload("rests", "speech", on=("n1", [3]), resources={"gpus": 2}, status={"phase": "Suspended"})
    assert "it comes back with 1 GPU, as was declared when it began" in ask("explain", "rests").stdout
    fleet.workload("same", "speech", on=("n1", [4]), resources={"gpus": 1})
    assert "  but " not in ask("explain", "same").stdout


def test_explain_says_whom_it_counts_for_that_names_a_tenant_that_does_not_exist(ask: Ask, fleet: Fleet) -> None:
    fleet.workload("strange", "nobody", on=("n1", [5]), resources={"gpus": 1}, status={"tenant": "speech"})
    assert "nobody is no tenant that its namespace may use: what it holds counts for speech" in ask("explain", "strange").stdout


def _machine(fleet: Fleet, name: str, behind: float = 0.0, **status: object) -> None:
    spec = {"model": "H100", "gpus": [{"index": at} for at in range(4)]}
    fleet.write(NODE.api_version, "GpuNode", {"metadata": {"name": name}, "spec": spec}, {"reportedAt": format_time(time.time() - behind), **status})
    lease = {"holderIdentity": name, "renewTime": format_micro_time(time.time() - behind)}
    fleet.write("coordination.k8s.io/v1", "Lease", {"metadata": {"name": name}, "spec": lease}, namespace="kube-system")


def test_explain_says_that_nothing_is_taken_for_idle_on_a_node_with_a_wrong_clock(ask: Ask, fleet: Fleet) -> None:
    _machine(fleet, "slow", behind=602)
    fleet.workload("there", "speech", on=("slow", [0]))
    said = ask("explain", "there").stdout
    assert "but        the clock of slow is 10 min" in said
    assert "behind the server's: what it holds there is never taken for idle" in said
    assert "clock" not in ask("explain", "decode").stdout


def test_explain_and_top_say_that_a_node_takes_no_new_work_for_its_disk(ask: Ask, fleet: Fleet) -> None:
    _machine(fleet, "full", trouble="No space left on device")
    fleet.tenant("rich", 100)
    for gpus in (3, 8):
        fleet.workload(f"wants-{gpus}", "rich", resources={"gpus": gpus})
    assert "full takes no new work: No space left on device" in ask("explain", "wants-3").stdout
    assert "No space" not in ask("explain", "wants-8").stdout, "it would not fit there"
    assert "disk! " in ask("top", "--once").stdout


def test_doctor_finds_nodes_whose_disk_or_clock_is_wrong(ask: Ask, fleet: Fleet) -> None:
    since = {"lastTransitionTime": format_time(time.time()), "status": "True", "reason": "CannotWrite"}
    _machine(fleet, "full", conditions=[{"type": "DiskPressure", "message": "No space left on device", **since}])
    done = CliRunner(env={"KUBECONFIG": str(fleet.plane.kubeconfig)}).invoke(main, ["doctor"])
    assert "full: No space left on device" in done.stdout
    assert done.exit_code == 1


def test_where_so_many_nodes_are_silent_that_nothing_is_decided_that_and_the_way_out_is_told(ask: Ask, fleet: Fleet) -> None:
    runner = CliRunner(env={"KUBECONFIG": str(fleet.plane.kubeconfig)})
    assert "silent" not in runner.invoke(main, ["doctor"]).stdout
    for name in ("s1", "s2", "s3"):
        fleet.node(name, heard=500.0)
    for said in (runner.invoke(main, ["doctor"]).stdout, ask("top", "--once").output, ask("quota").output):
        assert "3 of 4 nodes fell silent at once" in said
        assert "kubectl delete gpunode" in said


def test_what_could_start_and_is_held_by_a_guard_waits_and_does_not_start_now(ask: Ask, fleet: Fleet) -> None:
    held = {"type": "Reconciling", "status": "False", "reason": "Held", "message": "held by freeze: under repair", "lastTransitionTime": format_time(time.time())}
    fleet.workload("held", "speech", status={"conditions": [held]})
    [row] = json.loads(ask("queue", "-o", "json").stdout)
    assert (row["constraint"], row["estimatedStart"]) == ("freeze", None)
    assert "it could start, and is held by freeze: under repair" in row["reason"]
    [speech] = json.loads(ask("quota", "speech", "-o", "json").stdout)
    assert speech["waiting"] == 1


def test_what_helps_is_what_would_help(ask: Ask, fleet: Fleet) -> None:
    fleet.workload("huge", "vision", resources={"gpus": 8}, replicas=4)
    said = ask("explain", "huge").stdout
    assert "may never have more than 8" in said
    assert "a larger quota of vision or of its cohort" in said
    assert "the end of" not in said
    fleet.raise_quota("vision", 100)
    said = ask("explain", "huge").stdout
    assert "more nodes join, or it asks for fewer replicas" in said
    assert "GPUs come free" not in said


def test_a_small_budget_is_told_as_exactly_as_it_is_given(ask: Ask, fleet: Fleet) -> None:
    fleet.tenant("small", 1, budget={"gpuHours": 0.02})
    memory = {"at": time.time(), "spent": {"small": [time.time() - 60, 0.0123]}}
    notebook = {"metadata": {"name": "homeostat-governor"}, "data": {"memory": json.dumps(memory)}}
    fleet.write("v1", "ConfigMap", notebook, namespace="kube-system")
    assert "0.0123 of 0.02 GPU h" in ask("quota", "small").stdout


def test_explain_goes_by_what_is_now_and_not_by_what_the_status_said(ask: Ask, fleet: Fleet) -> None:
    stale = {
        "phase": "Pending",
        "reason": "it wants 2 of H100, and speech uses 4 of its 4",
        "constraint": "quota",
        "position": 7,
    }
    fleet.workload("job", "speech", resources={"gpus": 2}, status=stale)
    found = json.loads(ask("explain", "job", "-o", "json").stdout)
    assert found["waits"] is None
    assert found["next"]["verb"] == "admit"
    assert "the governor wants to admit it" in ask("explain", "job").stdout


def test_explain_tells_why_a_suspended_one_was_suspended_by_whom_and_what_brings_it_back(
    ask: Ask, fleet: Fleet
) -> None:
    rival = fleet.workload("rival", "vision", on=("n1", [6, 7]), resources={"gpus": 2})
    at = format_time(time.time() - 90)
    decision = {
        "verb": "preempt",
        "reason": "rival comes first",
        "constraint": "priority",
        "at": at,
        "beneficiary": rival,
    }
    status = {
        "phase": "Suspended",
        "suspensions": 1,
        "gpuHours": 2.5,
        "decision": decision,
        "assignment": [{"replica": 0, "node": "n1", "gpus": [6, 7]}],
    }
    fleet.workload("victim", "speech", resources={"gpus": 2}, status=status)
    said = ask("explain", "victim").stdout
    assert "preempted  1m3" in said
    assert "for priority: rival comes first" in said
    assert "to make room for default/rival" in said
    assert "lies on n1 GPU 6,7" in said
    assert "2.5 GPU hours are done and kept" in said
    cleared = "held back  by capacity" in said and "GPUs are being cleared for it" in said  # what is its own, once that is decided
    assert cleared or "held back  by quota" in said, said  # the cohort has lent it all
    assert json.loads(ask("explain", "victim", "-o", "json").stdout)["lastDecision"]["beneficiary"] == "default/rival"


@pytest.mark.parametrize("where", [{"node": "gone", "gpus": [0]}, {"node": "n1", "gpus": [9]}])
def test_explain_says_that_the_state_of_a_suspended_one_is_lost_with_its_gpus(ask: Ask, fleet: Fleet, where: dict[str, object]) -> None:
    status = {"phase": "Suspended", "suspensions": 1, "gpuHours": 2.5, "assignment": [{"replica": 0, **where}]}
    fleet.workload("victim", "speech", status=status)
    said = ask("explain", "victim").stdout
    assert "it cannot go on there, and begins anew where there is room" in said
    assert "kept" not in said


def test_explain_says_what_is_about_to_happen_to_one_that_runs_and_who_stops_it(ask: Ask, fleet: Fleet) -> None:
    assert "nothing is planned: it runs on" in ask("explain", "train").stdout
    fleet.raise_quota("vision", 0)
    fleet.raise_quota("speech", 2)  # the cohort has two, and five are used
    said = ask("explain", "train").stdout
    assert "the governor wants to suspend it (quota: vision borrowed 5 GPUs, and its cohort lent 4 GPUs more than it has" in said
    halt = {"guard": "mass-drift", "reason": "9 of 15 would be changed", "since": format_time(time.time())}
    policy = {"metadata": {"name": WORKLOAD.name}, "spec": {"fleet": {"kinds": [WORKLOAD.name]}}}
    fleet.write(POLICY_KIND.api_version, POLICY_KIND.kind, policy, {"halts": [halt]})
    assert "but the guards have halted: 9 of 15 would be changed" in ask("explain", "train").stdout
    fleet.raise_quota("speech", 8)
    fleet.workload("own", "speech", resources={"gpus": 7})
    assert "others are to make way for it, but the guards have halted: 9 of 15 would be changed" in ask("explain", "own").stdout
    assert "HALTED by mass-drift: 9 of 15 would be changed" in ask("top").stdout


def test_explain_names_the_guard_that_holds_what_would_be_done(ask: Ask, fleet: Fleet) -> None:
    held = {"type": "Reconciling", "status": "True", "reason": "Held", "message": "held by freeze: until Monday"}
    stamped = {**held, "lastTransitionTime": format_time(time.time()), "observedGeneration": 1}
    fleet.workload("job", "speech", status={"conditions": [stamped]})
    said = ask("explain", "job").stdout
    assert "the governor wants to admit it" in said
    assert "but it is held by freeze: until Monday" in said


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("trian", "Did you mean 'default/train'?"),
        ("lab/train", "Did you mean 'default/train'?"),
        ("zzzzz", "kubectl get workloads -A"),
    ],
)
def test_a_mistyped_workload_is_told_with_the_one_that_may_be_meant(
    ask: Ask, fleet: Fleet, word: str, hint: str
) -> None:
    done = ask("explain", word)
    assert done.exit_code == 1
    assert hint in done.stderr
    assert "Traceback" not in done.output


def test_a_mistyped_tenant_and_command_are_told_with_the_one_that_may_be_meant(ask: Ask, fleet: Fleet) -> None:
    assert "Did you mean 'vision'?" in ask("quota", "visoin").stderr
    assert "Did you mean 'vision'?" in ask("queue", "--tenant", "vison").stderr
    assert "Did you mean 'explain'?" in ask("explian").stderr


def test_top_shows_which_nodes_take_no_work_whether_by_people_or_by_the_governor(ask: Ask, fleet: Fleet) -> None:
    for name, change, part in (("n2", {"stage": "Cordoned"}, "status"), ("n3", {"drain": True}, "")):
        fleet.node(name)
        body = {part or "spec": change}
        fleet.plane._call(lambda client, n=name, b=body, p=part: client.kind(NODE.api_version, "GpuNode").patch(n, b, subresource=p))
    lines = {line.split()[0]: line for line in ask("top").stdout.splitlines() if line.startswith("n")}
    assert "cordoned" in lines["n2"]
    assert "draining" in lines["n3"]
    assert "cordoned" not in lines["n1"]


def test_a_workload_counts_in_one_row_of_its_tenant_by_the_type_that_it_has_or_waits_for(ask: Ask, fleet: Fleet) -> None:
    fleet.node("n2")
    fleet.plane._call(lambda client: client.kind(NODE.api_version, "GpuNode").patch("n2", {"spec": {"model": "A100"}}))
    quotas = [{"model": model, "nominal": 1} for model in ("A100", "B200", "H100")]
    fleet.tenant("lab", 0, quotas=quotas)
    fleet.workload("old", "lab", on=("n2", [0]))
    fleet.workload("new", "lab", on=("n1", [6]))
    for name, models in (("more", ["A100"]), ("most", ["H100"]), ("odd", ["X1"])):
        fleet.workload(name, "lab", resources={"gpus": 2, "models": models})
    fleet.workload("off", "lab", resources={"gpus": 2, "models": ["H100"]}, status={"phase": "Suspended"})
    rows = [row for row in json.loads(ask("top", "-o", "json").stdout)["tenants"] if row["tenant"] == "lab"]
    found = {row["model"]: tuple(row[name] for name in ("running", "pending", "suspended", "waiting")) for row in rows}
    assert found == {"A100": (1, 2, 0, 2), "B200": (0, 0, 0, 0), "H100": (1, 1, 1, 2)}


def test_a_tenant_that_is_being_deleted_is_shown_as_such_and_why_it_is_still_there(ask: Ask, fleet: Fleet) -> None:
    fleet.workload("next", "speech")
    fleet.plane._call(lambda client: client.kind(TENANT.api_version, "Tenant").patch("speech", {"metadata": {"finalizers": [FINALIZER]}}))
    fleet.plane._call(lambda client: client.kind(TENANT.api_version, "Tenant").delete("speech"))
    for command in (["quota"], ["top"]):
        (row,) = [line for line in ask(*command).stdout.splitlines() if "speech" in line]
        assert "speech (being deleted)" in row
    assert "speech is being deleted: what it holds counts for speech, and it does not start again" in ask("explain", "decode").stdout
    waits = ask("explain", "next").stdout
    assert "by tenant, for" in waits
    assert "its tenant is being deleted: nothing more of it starts" in waits


def test_explain_says_why_what_was_taken_back_as_idle_stays_off_and_how_to_have_it_back(ask: Ask, fleet: Fleet) -> None:
    said = {"verb": "reclaim", "at": format_time(time.time() - 600), "constraint": "idle", "reason": "it was idle"}
    fleet.workload("lazy", "speech", status={"phase": "Suspended", "reclaims": 1, "decision": said})
    told = ask("explain", "lazy").stdout
    assert "held back  by idle" in told
    assert "in about 50m, when its pause is over and there is room" in told
    assert """kubectl patch workload lazy -n default --type=merge -p '{"spec":{"idle":{"mode":"Warn"}}}'""" in told


def test_top_shows_who_holds_each_gpu_how_it_is_and_which_node_is_lost(ask: Ask, fleet: Fleet) -> None:
    fleet.node("n2", gpus=2, heard=300.0, health="Failed", reason="XID 79")
    found = yaml.safe_load(ask("top", "-o", "yaml").stdout)
    n1, n2 = found["nodes"]
    assert [[one["workload"] for one in gpu["holders"]] for gpu in n1["gpus"]] == [["default/train"]] * 5 + [
        ["default/decode"]
    ] + [[], []]
    assert n1["gpus"][0] | {"holders": 0} == {
        "index": 0, "health": "Healthy", "reason": "", "utilisation": 0.5, "memoryUsedMib": 2048, "memoryMib": 81920, "powerWatts": 300.0,
        "temperature": 0.0, "holders": 0, "unknownProcesses": False,
    }  # fmt: skip
    assert (n1["lost"], n2["lost"]) == (False, True)
    lines = ask("top").stdout.splitlines()
    assert next(line for line in lines if line.startswith("n1")).endswith("B50  B50  B50  B50  B50  A50   ·    ·  ")
    assert "LOST" in next(line for line in lines if line.startswith("n2"))
    assert "x" in next(line for line in lines if line.startswith("n2"))
    each = ask("top", "--gpus").stdout
    assert "default/train (vision)" in each
    assert "Failed: XID 79" in each


@pytest.mark.parametrize("wrong", [-420, 420])
def test_a_node_whose_clock_is_minutes_off_is_neither_lost_nor_does_it_set_the_time(ask: Ask, fleet: Fleet, wrong: int) -> None:
    renewed = {"spec": {"renewTime": format_micro_time(time.time() + wrong)}}
    fleet.plane._call(lambda client: client.kind("coordination.k8s.io/v1", "Lease").patch("n1", renewed, namespace="kube-system"))
    (node,) = json.loads(ask("top", "-o", "json").stdout)["nodes"]
    assert (node["lost"], node["heardSecondsAgo"] < 10) == (False, True)
    said = ask("explain", "train").stdout
    assert "for 10m" in said
    assert "nothing is planned: it runs on" in said


def test_top_tells_gpus_that_take_no_work_from_free_ones(ask: Ask, fleet: Fleet) -> None:
    fleet.node("n2", 1, health="Suspect", reason="MIG is on")
    (row,) = [line for line in ask("top").stdout.splitlines() if line.startswith("n2 ")]
    assert row.rstrip().endswith(" !")


def test_nothing_is_coloured_where_there_is_no_terminal(ask: Ask, fleet: Fleet) -> None:
    for command in (["top"], ["quota"], ["explain", "train"]):
        assert "\x1b" not in ask(*command).output


def test_that_no_loop_shares_out_is_said(ask: Ask, fleet: Fleet) -> None:
    assert "no loop shares out GPUs at present" in ask("quota").stderr


def test_a_server_that_knows_nothing_of_gpus_says_what_to_do(ask: Ask) -> None:
    for command in (["top"], ["queue"], ["quota"], ["explain", "x"]):
        done = ask(*command)
        assert done.exit_code == 1
        assert "homeostat up --allow gpu" in done.stderr


def test_in_a_terminal_top_goes_on_and_shows_what_changes_until_ctrl_c(fleet: Fleet) -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 120, 0, 0))
    env = {**os.environ, "KUBECONFIG": str(fleet.plane.kubeconfig), "TERM": "xterm-256color"}
    process = subprocess.Popen(
        [*COMMAND, "gpu", "top", "--every", "0.2"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=env,
        start_new_session=True,
    )
    os.close(theirs)
    seen = ""

    def read_until(word: str) -> None:
        nonlocal seen
        give_up = time.monotonic() + 60
        while word not in seen:
            assert time.monotonic() < give_up, seen[-2000:]
            if select.select([ours], [], [], 0.5)[0]:
                seen += os.read(ours, 65536).decode(errors="replace")

    try:
        read_until("B50")
        assert "\x1b[36m" in seen  # a tenant has its colour
        fleet.workload("more", "speech", resources={"gpus": 8})
        read_until("1 waits; first default/more")
        process.send_signal(signal.SIGINT)
        read_until("\x1b[?1049l")  # the screen is as it was before
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def test_who_may_not_read_heartbeats_gets_an_answer_and_is_told_that_it_is_less_exact(
    fleet: Fleet, ask: Ask, tmp_path: Path
) -> None:
    roles = f"""
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {{name: gpus}}
rules: [{{apiGroups: [{GROUP}], resources: ["*"], verbs: [get, list]}}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {{name: ada}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: gpus}}
subjects: [{{apiGroup: rbac.authorization.k8s.io, kind: User, name: ada}}]
"""
    fleet.plane.apply(roles)
    env = {**os.environ, "KUBECONFIG": str(fleet.plane.kubeconfig)}
    words = [*COMMAND, "token", "create", "--user", "ada", "-o", "kubeconfig"]
    (tmp_path / "ada").write_text(subprocess.run(words, env=env, capture_output=True, text=True, check=True).stdout)
    done = ask("quota", "--kubeconfig", tmp_path / "ada")
    assert done.exit_code == 0, done.output
    assert "vision" in done.stdout
    assert "heartbeats cannot be read" in done.stderr
    assert "past use cannot be read" in done.stderr


@pytest.mark.parametrize("words", [("top",), ("queue",), ("quota",), ("explain", "job")])
def test_where_there_is_no_server_it_says_so_and_nothing_else(tmp_path: Path, words: tuple[str, ...]) -> None:
    nowhere = {"server": "https://127.0.0.1:1", "insecure-skip-tls-verify": True}
    config = {
        "clusters": [{"name": "x", "cluster": nowhere}],
        "users": [{"name": "x", "user": {"token": "x"}}],
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
    }
    (tmp_path / "nowhere").write_text(json.dumps({"apiVersion": "v1", "kind": "Config", "current-context": "x", **config}))
    done = subprocess.run([*COMMAND, "gpu", *words, "--kubeconfig", tmp_path / "nowhere"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    [said] = done.stderr.splitlines()
    assert said.startswith("Error: cannot reach https://127.0.0.1:1")
