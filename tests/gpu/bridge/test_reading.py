"""What clusters print, and what a bridge makes of it."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from homeostat.gpu.agent.devices import Held
from homeostat.gpu.agent.wanted import Declared
from homeostat.gpu.bridge.cluster import Job, Mark, Member, Order, Stage, Unreadable
from homeostat.gpu.bridge.environment import environment
from homeostat.gpu.bridge.kubernetes import Options
from homeostat.gpu.bridge.kubernetes.pods import pod_of
from homeostat.gpu.bridge.kubernetes.reading import booked, job_of, last_words, mark_of, member_of
from homeostat.gpu.bridge.models import Models
from homeostat.gpu.bridge.nodes import readings
from homeostat.gpu.bridge.slurm import Slurm
from homeostat.gpu.bridge.slurm.reading import gpus, jobs_of, listed, members_of
from homeostat.gpu.bridge.slurm.script import script
from homeostat.gpu.kinds import Phase, Place, WorkloadSpec
from homeostat.loop.provider import Refused
from homeostat.model.kinds import decode

Object = dict[str, Any]
MARK = Mark("7f1c2b9e-0000-4000-8000-000000000001", 3, 1, 2, "n1")
MODELS = Models()


def slurm_job(**fields: Any) -> Object:
    return {"job_id": 17, "comment": f"homeostat:{MARK}", "job_state": "RUNNING", "gres_detail": ["gpu:h100:2(IDX:0,5)"], **fields}


def one_job(exit_status: int | None = None, **fields: Any) -> Job:
    (found,) = jobs_of([slurm_job(**fields)], lambda mark: exit_status)
    return found


# Marks and names


@pytest.mark.parametrize("text", ["", "x", f"{MARK}x!", str(MARK).replace("@", "."), "homeostat", "a b.0.0.1@n1"])
def test_what_is_no_mark_is_nobody_s(text: str) -> None:
    assert Mark.parse(text) is None
    assert Mark.parse(str(MARK)) == MARK


def test_gpus_are_called_as_people_call_them() -> None:
    assert [MODELS.of(kind)[0] for kind in ("h100", "nvidia_a100-sxm4-80gb", "NVIDIA H100 80GB HBM3", "")] == ["H100", "A100", "H100", "GPU"]
    assert Models.parse(["h100=H100:80G", "tesla=V100"]).of("H100") == ("H100", 81_920)
    with pytest.raises(ValueError, match="h100=H100:80G"):
        Models.parse(["h100"])
    assert (Models(prefix="a-").name_of("Node7"), Models().name_of("bad_name")) == ("a-node7", "")


# Slurm


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("gpu:h100:8", {"h100": (8, "")}),
        ("gpu:8(S:0-1)", {"": (8, "")}),
        ("gpu:h100:3(IDX:0,2-3)", {"h100": (3, "0,2-3")}),
        ("gpu:h100:0(IDX:N/A)", {"h100": (0, "")}),
        ("nic:2,gpu:a100:4(S:0),gpu:v100:2", {"a100": (4, ""), "v100": (2, "")}),
        ("gres:gpu:h100:2", {"h100": (2, "")}),
        ("craynetwork:4", {}),
        (None, {}),
    ],
)
def test_gpus_are_counted_in_all_the_ways_that_slurm_writes_them(text: str | None, found: dict[str, tuple[int, str]]) -> None:
    assert gpus(text) == found


@pytest.mark.parametrize(
    ("state", "flags", "alive", "cordoned"),
    [
        ("idle", [], True, False),
        ("mixed", ["DRAIN"], True, True),
        ("idle", ["NOT_RESPONDING"], False, False),
        ("down", [], False, False),
        (["ALLOCATED"], None, True, False),
        (["IDLE", "DRAIN"], None, True, True),
        (["DOWN", "NOT_RESPONDING"], None, False, False),
    ],
)
def test_machines_live_and_are_open_by_what_slurm_says(state: Any, flags: Any, alive: bool, cordoned: bool) -> None:
    node = {"name": "n1", "gres": "gpu:h100:8", "gres_used": "gpu:h100:3(IDX:0-2)", "state": state, "state_flags": flags, "cpus": 64, "partitions": ["p"]}
    (found,) = members_of([node, {"name": "login", "gres": ""}], MODELS.name_of, MODELS.of, "")
    assert (found.alive, found.cordoned, found.gpus, found.used, found.model) == (alive, cordoned, 8, 3, "H100")
    assert not members_of([node], MODELS.name_of, MODELS.of, "other")


def test_jobs_stand_as_slurm_says_in_the_words_of_old_and_of_new_versions() -> None:
    new = {"set": True, "infinite": False, "number": 1700000000}
    running = one_job(job_state=["RUNNING"], start_time=new)
    assert (running.stage, running.holds, running.since, running.words) == (Stage.ON, 2, 1700000000, "Slurm job 17, GPU 0,5")
    waiting = one_job(job_state=["PENDING"], state_reason="Resources", gres_detail=[])
    assert (waiting.stage, waiting.holds, waiting.words) == (Stage.WAITING, 0, "Slurm job 17 waits: Resources")
    ended = one_job(job_state=["FAILED"], exit_code={"return_code": {"set": True, "number": 3}, "signal": {"id": {"set": False, "number": 0}}})
    assert (ended.stage, ended.status) == (Stage.OVER, 3)
    assert one_job(job_state="FAILED", exit_code=3 << 8).status == 3
    assert one_job(job_state="FAILED", exit_code=9).status == -9
    assert one_job(job_state="FAILED", exit_code=137 << 8).status == -9
    assert one_job(job_state="COMPLETING").stage is Stage.ON
    assert one_job(job_state=["CANCELLED", "COMPLETING"]).stage is Stage.ON
    assert one_job(job_state="A_STATE_OF_TOMORROW").stage is Stage.ON


def test_what_a_job_wrote_down_counts_before_what_slurm_says() -> None:
    assert one_job(job_state="CANCELLED").status is None
    assert one_job(0, job_state="CANCELLED", exit_code=15).status == 0
    lost = one_job(job_state="NODE_FAIL", exit_code=1)
    assert (lost.status, lost.taken) == (None, True)
    again = one_job(job_state="FAILED", exit_code=122 << 8)
    assert (again.status, again.taken) == (None, True)


def test_jobs_of_others_are_not_ours_whatever_they_are_called() -> None:
    others = [slurm_job(comment=""), slurm_job(comment=str(MARK)), slurm_job(comment="homeostat:x"), {"job_id": 1}]
    assert jobs_of(others, lambda mark: None) == []


@pytest.mark.parametrize("document", [{}, [], {"jobs": "x"}, {"jobs": [], "errors": [{"error": "Unspecified error"}]}])
def test_what_slurm_prints_when_it_cannot_tell_is_not_an_empty_list(document: Any) -> None:
    with pytest.raises(Unreadable):
        listed(document, "jobs")


def test_how_a_job_ended_that_slurm_has_forgotten_is_in_its_files(tmp_path: Path) -> None:
    slurm = Slurm(tmp_path)
    folder = tmp_path / "jobs" / MARK.node / MARK.uid
    folder.mkdir(parents=True)
    assert slurm._left(MARK) is None
    (folder / "3.1.2.begun").mkdir()
    found = slurm._left(MARK)
    assert found is not None
    assert found.status is None
    (folder / "3.1.2.exit").write_text(f'{{"mark": "{MARK}", "status": 143}}')
    found = slurm._left(MARK)
    assert found is not None
    assert found.status == -15
    slurm._forget(MARK)
    assert not folder.exists()


def test_a_script_runs_its_command_as_it_is_and_only_once(tmp_path: Path) -> None:
    nasty = ["$(touch pwned)", "`id`", "a'b\"c", "two\nlines", "#SBATCH --uid=0", "*", "-n", "\\", "é"]
    text = script(tmp_path, "0.0.1", "m", ["printf", "%s|", *nasty], {"X": "'; exit 9 #"}, str(tmp_path))
    (tmp_path / "job.sh").write_text(text)
    done = subprocess.run(["sh", "job.sh"], cwd=tmp_path, capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stdout) == (0, "".join(f"{word}|" for word in nasty))
    assert not (tmp_path / "pwned").exists()
    assert (tmp_path / "0.0.1.exit").read_text() == '{"mark": "m", "status": 0}\n'
    assert subprocess.run(["sh", "job.sh"], cwd=tmp_path, capture_output=True, text=True, timeout=30).returncode == 122


def test_a_script_says_what_ails_it(tmp_path: Path) -> None:
    text = script(tmp_path / "missing", "0.0.1", "m", ["true"], {}, "/")
    done = subprocess.run(["sh"], input=text, capture_output=True, text=True, timeout=30)
    assert done.returncode == 121
    assert "a file system that all nodes share" in done.stderr
    for command, env, where in ((["a\0"], {}, "/"), (["A=b"], {}, "/"), (["x"], {"A": "\0"}, "/"), (["x"], {}, "here")):
        with pytest.raises(Refused):
            script(tmp_path, "s", "m", command, env, where)


# Kubernetes


def workload(**spec: Any) -> Declared:
    made = decode(WorkloadSpec, {"tenant": "t", "command": ["run", "$(HOME)"], **spec})
    return Declared("u", "default", "train", made, Phase.RUNNING, 0, {0: Place(replica=0, node="n1", gpus=(0, 1))})


def order(**spec: Any) -> Order:
    made = workload(**spec)
    return Order(MARK, made, made.places[0], Member("n1", "node-1", "H100", 8), {"HOMEOSTAT_INDEX": "0"})


def test_a_pod_is_made_after_the_template_and_for_the_workload() -> None:
    base = {"name": "x", "image": "base:1", "env": [{"name": "A", "value": "1"}], "volumeMounts": [{"name": "data", "mountPath": "/data"}]}
    template = {"metadata": {"labels": {"team": "a"}}, "spec": {"containers": [base], "volumes": [{"name": "data", "emptyDir": {}}], "nodeName": "other"}}
    pod = pod_of(order(env={"B": "$(A)"}, resources={"gpus": 2, "cpuMilli": 1500, "memoryMib": 64}), Options(template=template, image="none"))
    spec, container = pod["spec"], pod["spec"]["containers"][0]
    assert (spec["nodeName"], spec["restartPolicy"], container["image"]) == ("node-1", "Never", "base:1")
    assert container["command"] == ["run", "$$(HOME)"]
    assert [(one["name"], one["value"]) for one in container["env"]] == [("A", "1"), ("B", "$$(A)"), ("HOMEOSTAT_INDEX", "0")]
    assert container["resources"] == {"limits": {"nvidia.com/gpu": "2"}, "requests": {"cpu": "1500m", "memory": "64Mi", "nvidia.com/gpu": "2"}}
    assert (container["volumeMounts"], spec["volumes"], pod["metadata"]["labels"]["team"]) == (base["volumeMounts"], [{"name": "data", "emptyDir": {}}], "a")
    assert mark_of(pod) == MARK
    assert template["spec"]["containers"][0] == base  # type: ignore[index]


def test_what_kubernetes_cannot_do_is_refused_with_the_way_out() -> None:
    with pytest.raises(Refused, match=r"spec\.image"):
        pod_of(order(), Options())
    with pytest.raises(Refused, match=r"spec\.preemption\.signal"):
        pod_of(order(preemption={"mode": "Checkpoint", "signal": "SIGUSR1"}), Options(image="x"))
    for name in ("1A", "A-B", "HOMEOSTAT_X", "SLURM_X"):
        with pytest.raises(Refused, match="env"):
            environment({name: ""}, {}, "SLURM_")
    assert environment({"CUDA_VISIBLE_DEVICES": "0", "A": "1"}, {}, "SLURM_") == {"A": "1"}


def pod(phase: str, state: Object | None = None, *, deleted: bool = False, **status: Any) -> Object:
    made = pod_of(order(resources={"gpus": 2}), Options(image="x"))
    made["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 30} if deleted else {}
    made["status"] = {"phase": phase, **status, **({"containerStatuses": [{"name": "main", "state": state}]} if state else {})}
    return made


def seen(made: Object) -> Job:
    return job_of(made, MARK, "nvidia.com/gpu")


def test_pods_stand_as_their_node_says() -> None:
    waiting = seen(pod("Pending", {"waiting": {"reason": "ImagePullBackOff"}}))
    assert (waiting.stage, waiting.holds) == (Stage.WAITING, 2)
    assert waiting.words.endswith("waits: ImagePullBackOff")
    assert seen(pod("Running", {"running": {}}, deleted=True)).stage is Stage.ON
    assert seen(pod("Unknown")).stage is Stage.ON
    killed = seen(pod("Failed", {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}))
    assert (killed.stage, killed.status, killed.taken, killed.holds) == (Stage.OVER, -9, False, 0)
    assert killed.words.endswith(": OOMKilled")
    assert last_words(pod("Failed", {"terminated": {"exitCode": 1, "message": "a\nb\n\n"}})) == "b"


def test_what_the_cluster_took_away_did_not_end_by_itself() -> None:
    assert seen(pod("Failed", reason="OutOfnvidia.com/gpu", message="no room")).taken
    evicted = pod("Failed", {"terminated": {"exitCode": 137}}, conditions=[{"type": "DisruptionTarget", "status": "True"}])
    assert seen(evicted).taken
    assert seen(pod("Failed", {"terminated": {"exitCode": 143}}, deleted=True)).taken


def node(**spec: Any) -> Object:
    status = {"allocatable": {"nvidia.com/gpu": "8", "cpu": "63500m", "memory": "1000Mi"}, "conditions": [{"type": "Ready", "status": "True"}]}
    return {"metadata": {"name": "node-1", "labels": {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}}, "spec": spec, "status": status}


def test_nodes_are_open_by_their_taints_and_what_the_template_tolerates() -> None:
    found = member_of(node(taints=[{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]), 3, Options())
    assert found is not None
    assert (found.model, found.gpus, found.used, found.cpu_milli, found.memory_mib, found.cordoned) == ("A100", 8, 3, 63_500, 1000, False)
    tainted = node(taints=[{"key": "team", "value": "a", "effect": "NoSchedule"}])
    template = {"spec": {"tolerations": [{"key": "team", "operator": "Equal", "value": "a"}]}}
    closed, opened = member_of(tainted, 0, Options()), member_of(tainted, 0, Options(template=template))
    assert closed is not None
    assert opened is not None
    assert (closed.cordoned, opened.cordoned) == (True, False)
    assert member_of({"metadata": {"name": "cpu"}, "status": {"allocatable": {"cpu": "4"}}}, 0, Options()) is None


def test_gpus_are_booked_by_pods_that_have_not_ended_and_are_on_a_node() -> None:
    assert booked([pod("Running"), pod("Pending"), pod("Succeeded")], "nvidia.com/gpu") == {"node-1": 4}


# What is told of GPUs


def test_others_are_said_of_gpus_that_the_governor_has_given_to_nobody() -> None:
    told = readings(4, {0: Held(("u",))}, {0, 3}, 1, "")
    assert [one.health for one in told] == ["Healthy", "Healthy", "Suspect", "Healthy"]
    assert [one.health for one in readings(4, {}, {0, 1, 2, 3}, 2, "")] == ["Healthy"] * 4
    assert [one.health for one in readings(3, {}, {0}, 0, "not asked")] == ["Healthy", "Suspect", "Suspect"]
    assert told[0].held_by == ("u",)
    assert all(one.cpu is None for one in told)
