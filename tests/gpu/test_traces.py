"""Published formats are read as they are published; a trace comes from a seed."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from homeostat.gpu.kinds import WHOLE
from homeostat.gpu.simulator import Timing, generate, read_openb, read_openb_nodes, read_philly, read_pollux, simulate
from homeostat.gpu.simulator.trace import TraceError, gang, read_trace

PUBLISHED = Path(__file__).parents[3] / "shared" / "data" / "gpu-traces"


def test_philly_is_read_in_the_order_of_submission(tmp_path: Path) -> None:
    file = tmp_path / "philly.csv"
    file.write_text(
        "timestamp,duration,num_gpus,gpu_time,cluster\n2017-10-09 07:01:55,66.0,16,66.0,b\n2017-10-09 07:00:55,2951.0,1,2951.0,a\n"
    )
    trace = read_philly(file)
    assert [(job.tenant, job.submitted, job.duration, job.replicas, job.milli) for job in trace.jobs] == [
        ("a", 0.0, 2951.0, 1, 1000),
        ("b", 60.0, 66.0, 2, 8000),
    ]
    assert [job.submitted for job in trace.between(30.0, 90.0).jobs] == [30.0]


def test_a_trace_may_be_packed_and_have_line_ends_of_any_kind(tmp_path: Path) -> None:
    text = "timestamp,duration,num_gpus,gpu_time,cluster\r\n2017-10-09 07:01:55,66.0,1,66.0,b\r\n"
    file = tmp_path / "philly.csv.gz"
    file.write_bytes(gzip.compress(text.encode()))
    assert [(job.tenant, job.duration) for job in read_trace(file).jobs] == [("b", 66.0)]
    file.write_bytes(gzip.compress(text.encode())[:-12])
    with pytest.raises(TraceError, match=r"philly\.csv\.gz: it is no table"):
        read_trace(file)


def test_openb_keeps_fractions_and_models(tmp_path: Path) -> None:
    pods, nodes = tmp_path / "pods.csv", tmp_path / "nodes.csv"
    pods.write_text(
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
        "p0,12000,16384,1,460,,LS,Running,0,100,0\np1,6000,12288,2,1000,G2|P100,BE,Running,10,50,10\np2,6000,12288,0,0,,LS,Running,10,50,10\n"
    )
    nodes.write_text("sn,cpu_milli,memory_mib,gpu,model\nn1,64000,262144,2,P100\nn0,64000,262144,8,G2\n")
    trace = read_openb(pods)
    assert [(job.uid, job.milli, job.models, job.tenant) for job in trace.jobs] == [
        ("p0", 460, (), "LS"),
        ("p1", 2000, ("G2", "P100"), "BE"),
    ]
    result = simulate(trace, None, read_openb_nodes(nodes, trace.tenants), timing=Timing(every=1.0))
    assert (result.finished, result.wait_max < 2) == (2, True)


OPENB = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,creation_time,deletion_time\n"
POLLUX = "name,time,application,num_replicas,batch_size\n"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (OPENB + "p0,1,1,1,460,,LS,100,50\n", "line 2, column deletion_time: 50 is before its creation_time, 100"),
        (OPENB + "p0,1,1,1,460,,LS,100,\n", "line 2, column deletion_time: it is empty"),
        (POLLUX + "a,1,cifar10,6,2048\nb,1,llama,6,2048\n", r"line 3, column application: how long llama runs is not known \(known is that of cifar10, "),
    ],
)
def test_a_job_of_which_nobody_knows_how_long_it_runs_is_told(tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "trace.csv"
    file.write_text(text)
    with pytest.raises(TraceError, match=told):
        read_trace(file)


def test_pollux_names_applications(tmp_path: Path) -> None:
    file = tmp_path / "workload.csv"
    file.write_text("name,time,application,num_replicas,batch_size\ncifar10-0,107,cifar10,6,2048\n")
    (job,) = read_pollux(file).jobs
    assert (job.tenant, job.submitted, job.replicas, job.milli) == ("cifar10", 107.0, 2, 3000)


@pytest.mark.parametrize(
    ("gpus", "shape"),
    [(1, (1, 1000)), (8, (1, 8000)), (12, (2, 6000)), (16, (2, 8000)), (128, (16, 8000)), (13, (13, 1000))],
)
def test_a_number_of_gpus_becomes_as_few_nodes_as_can_be(gpus: int, shape: tuple[int, int]) -> None:
    assert gang(gpus, 8) == shape


def test_a_seed_gives_one_trace() -> None:
    assert generate(4) == generate(4) != generate(5)
    assert all(job.milli <= 8 * WHOLE and job.duration > 0 for job in generate(4).jobs)


def test_the_published_files_are_read() -> None:
    if not PUBLISHED.is_dir():
        pytest.skip("the published traces are not beside the project")
    assert len(read_philly(PUBLISHED / "philly" / "philly_jobs.csv").jobs) == 82_247
    pods = read_openb(PUBLISHED / "openb" / "openb_pod_list_default.csv")
    assert read_openb_nodes(PUBLISHED / "openb" / "openb_node_list_gpu_node.csv", pods.tenants).gpus == 6_212
    assert len(read_pollux(PUBLISHED / "pollux" / "workloads" / "workload-1.csv").jobs) == 160
