"""A trace in virtual time: the formats as they are published, policies side by side, and files that make no sense."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from click.testing import CliRunner, Result

from homeostat.cli import main
from homeostat.cli.gpu.plot import spark, ticks
from homeostat.cli.gpu.whatif import even_tenants, fleet_nodes
from homeostat.gpu.kinds import WHOLE
from homeostat.gpu.simulator import even_cluster, generate, simulate
from homeostat.gpu.simulator.metrics import fragmented
from homeostat.gpu.simulator.trace import format_of
from homeostat.gpu.snapshot import ANY_MODEL

PUBLISHED = Path(__file__).parents[4] / "shared" / "data" / "gpu-traces"
PHILLY = "timestamp,duration,num_gpus,gpu_time,cluster\n"
POLLUX = "name,time,application,num_replicas,batch_size\n"
OPENB = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
)
NODES = "sn,cpu_milli,memory_mib,gpu,model\nn0,64000,262144,2,P100\nn1,64000,262144,8,G2\n"
Simulate = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Simulate:
    """`homeostat gpu simulate …` in a directory of its own, with no server anywhere."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KUBECONFIG", raising=False)
    return lambda *arguments: CliRunner().invoke(main, ["gpu", "simulate", *map(str, arguments)])


def results(done: Result) -> dict[str, dict[str, object]]:
    assert done.exit_code == 0, done.output
    found: dict[str, dict[str, object]] = json.loads(done.stdout)["results"]
    return found


def test_each_format_is_found_out_and_replayed(run: Simulate, tmp_path: Path) -> None:
    (tmp_path / "philly.csv").write_text(
        PHILLY + "2017-10-09T07:01:55Z,600.0,8,600.0,b\n2017-10-09 07:00:55,3000.0,8,3000.0,a\n"
    )
    (one,) = results(run("--trace", "philly.csv", "--fleet", "1x8xV100", "-o", "json")).values()
    assert (one["trace"], one["finished"], one["preemptions"]) == ("philly", 2, 0)
    assert one["wait_max"] == pytest.approx(2940, abs=60)  # it came a minute after one that had all GPUs for 3000 s

    (tmp_path / "pollux.csv").write_text(POLLUX + "cifar10-0,107,cifar10,6,2048\nncf-1,1427,ncf,1,32768\n")
    (one,) = results(run("--trace", "pollux.csv", "--fleet", "2x4xT4", "-o", "json")).values()
    assert (one["trace"], one["finished"]) == ("pollux", 2)

    (tmp_path / "pods.csv").write_text(
        OPENB
        + "p0,12000,16384,1,460,,LS,Running,1000,1100,1000\np1,6000,12288,2,1000,G2|P100,BE,Running,1010,1050,1010\n"
    )
    (tmp_path / "nodes.csv").write_text(NODES)
    (one,) = results(run("--trace", "pods.csv", "--nodes", "nodes.csv", "-o", "json")).values()
    assert (one["trace"], one["finished"]) == ("openb", 2)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            PHILLY + "2017-10-09 07:01:55,66.0,1,66.0,a\n2017-10-09 07:01:55,66.0,one,66.0,a\n",
            ["line 3", "column num_gpus", "'one' is no number"],
        ),
        (PHILLY + "yesterday,66.0,1,66.0,a\n", ["line 2", "column timestamp", "'yesterday' is no time such as"]),
        (PHILLY + "2017-10-09 07:01:55,66.0,0,66.0,a\n", ["line 2", "column num_gpus", "no whole number of 1 or more"]),
        (PHILLY + "2017-10-09 07:01:55,66.0,1.5,66.0,a\n", ["line 2", "column num_gpus", "1.5 is no whole number"]),
        (PHILLY + "2017-10-09 07:01:55,-1,1,66.0,a\n", ["line 2", "column duration", "no number of 0 or more"]),
        (PHILLY + "2017-10-09 07:01:55,1e300,1,66.0,a\n", ["line 2", "column duration", "1e300 is more than anything"]),
        (PHILLY + "2017-10-09 07:01:55,1e10,1,66.0,a\n", ["line 2", "column duration", "more than ten years"]),
        (PHILLY + "2017-10-09 07:01:55,66.0,99999999,66.0,a\n", ["line 2", "column num_gpus", "99999999 GPUs are more than"]),
        (
            PHILLY + "9999-10-09 07:01:55,66.0,1,66.0,a\n0001-10-09 07:01:55,66.0,1,66.0,a\n",
            ["philly-000001 is submitted more than ten years after philly-000000"],
        ),
        (PHILLY + "2017-10-09 07:01:55,66.0,1,66.0\n", ["line 2", "column cluster", "the line ends before it"]),
        (PHILLY + "2017-10-09 07:01:55,66.0,1,66.0,a,b\n", ["line 2", "more values than the 5 columns"]),
        (POLLUX + "a,1,ncf,1,1\na,2,ncf,1,1\n", ["line 3", "column name", "a stands in line 2 already"]),
        (OPENB + "p0,1,1,1,2000,,LS,Running,0,9,0\n", ["line 2", "column gpu_milli", "more than the 1000 thousandths"]),
        (OPENB + "p0,1,1,0,0,,LS,Running,0,9,0\n", ["no job in it asks for a GPU"]),
        (
            "name,cpu_milli,memory_mib,num_gpu,gpu_milli\np0,1,1,1,500\n",
            ["line 1", "no column creation_time, deletion_time"],
        ),
        ("when,what\n1,2\n", ["line 1", "no known format has the columns when, what", "philly has timestamp"]),
        ("", ["no known format", "(none)"]),
        ('a,"b\n', ["trace.csv"]),
        ("\xff\xfe", ["trace.csv"]),
    ],
)
def test_a_line_that_makes_no_sense_is_named_with_its_column_and_what_to_do(
    run: Simulate, tmp_path: Path, text: str, said: list[str]
) -> None:
    (tmp_path / "trace.csv").write_bytes(text.encode("latin-1"))
    done = run("--trace", "trace.csv", "--fleet", "1x8xV100")
    assert done.exit_code == 1
    for part in ("trace.csv", *said):
        assert part in done.stderr
    assert done.stdout == ""
    assert isinstance(done.exception, SystemExit)


def test_a_policy_that_a_server_would_refuse_is_refused_here(run: Simulate, tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text("fairShare: {halfLife: 0s}\n")
    done = run("--generate", 5, "--policy", "policy.yaml")
    assert isinstance(done.exception, SystemExit)
    assert "policy.yaml: spec.fairShare.halfLife: Invalid value" in done.stderr


def test_policies_stand_side_by_side_on_the_same_jobs(run: Simulate, tmp_path: Path) -> None:
    (tmp_path / "patient.yaml").write_text("preemption: {enabled: false}\n")
    manifest = (
        "apiVersion: gpu.homeostat.dev/v1alpha1\nkind: GpuPolicy\nmetadata: {name: default}\nspec: {backfill: false}\n"
    )
    (tmp_path / "plain.yaml").write_text(manifest)
    some = ("--generate", 25, "--fleet", "2x8xH100", "--load", 2)
    found = results(
        run(
            *some,
            "--policy",
            "patient.yaml",
            "--compare",
            "fifo",
            "las",
            "plain.yaml",
            "--plot",
            "out.svg",
            "-o",
            "json",
        )
    )
    assert list(found) == ["patient", "plain", "fifo", "las"]
    assert found["patient"]["preemptions"] == 0
    assert {one["jobs"] for one in found.values()} == {25}
    drawn = ElementTree.parse(tmp_path / "out.svg").getroot()
    assert len(drawn.findall(".//{*}polyline")) == 4 * len(found)
    for line in drawn.findall(".//{*}polyline"):
        points = [tuple(map(float, point.split(","))) for point in line.attrib["points"].split()]
        assert all(-1 <= x <= 441 and -1 <= y <= 231 for x, y in points)
    text = run(*some, "--compare", "fifo", "--chart").stdout
    assert "GPUs in use" in text
    assert "* the best of them" in text
    assert "▁" in text


def test_one_seed_gives_one_result_and_it_is_that_of_the_library(run: Simulate) -> None:
    first, again = (results(run("--generate", 30, "--seed", 5, "-o", "json")) for _ in range(2))
    other = results(run("--generate", 30, "--seed", 6, "-o", "json"))
    assert first == again != other
    timeline = first["homeostat"]["timeline"]
    assert isinstance(timeline, dict)
    assert {len(values) for values in timeline["shares"].values()} == {len(timeline["waiting"])}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "--trace FILE, or --generate JOBS"),
        (["--generate", 5, "--trace", "x"], "--trace FILE, or --generate JOBS"),
        (["--trace", "missing.csv"], "missing.csv: No such file"),
        (["--generate", 5, "--fleet", "8H100"], "write MACHINESxGPUSxTYPE"),
        (["--generate", 5, "--fleet", "0x8xH100"], "write MACHINESxGPUSxTYPE"),
        (["--generate", 5, "--fleet", "1x65xH100"], "with 64 GPUs each"),
        (["--generate", 5, "--load", "nan"], "nan is no number that can be reckoned with"),
        (["--generate", 5, "--compare", "fito"], "Did you mean 'fifo'?"),
        (["--generate", 5, "fifo"], "come after --compare"),
        (["--generate", 5, "--plot", "x.png"], "let the name end in .svg"),
        (
            ["--generate", 5, "--policy", "policy.yaml"],
            "policy.yaml: spec.preemption.perHuor: there is no such field; did you mean perHour?",
        ),
        (["--generate", 5, "--policy", "wrong.yaml"], "wrong.yaml"),
        (
            ["--generate", 5, "--tenants", "tenants.yaml"],
            "no Tenant is declared with that name. Did you mean 'tenant-9'?",
        ),
        (["--generate", 5, "--nodes", "policy.yaml"], "policy.yaml"),
        (["--generate", 5, "--from", "1d"], "--from and --for are for a part of a file"),
        (["--generate", 5, "--plot", "no/such/place.svg"], "no/such/place.svg: No such file"),
    ],
)
def test_what_cannot_be_run_is_told_and_nothing_is_printed(
    run: Simulate, tmp_path: Path, arguments: list[object], said: str
) -> None:
    (tmp_path / "policy.yaml").write_text("preemption: {perHuor: 3}\n")
    (tmp_path / "wrong.yaml").write_text("backfill: maybe\n")
    (tmp_path / "tenants.yaml").write_text(
        "apiVersion: gpu.homeostat.dev/v1alpha1\nkind: Tenant\nmetadata: {name: tenant-9}\nspec: {quotas: [{model: H100, nominal: 8}]}\n"
    )
    done = run(*arguments)
    assert done.exit_code != 0
    assert said in done.stderr
    assert done.stdout == ""
    assert isinstance(done.exception, SystemExit)


def test_tenants_and_machines_of_manifests_are_held_to(run: Simulate, tmp_path: Path) -> None:
    head = "apiVersion: gpu.homeostat.dev/v1alpha1\nkind: "
    quota = "{{name: {}}}\nspec: {{quotas: [{{model: H100, nominal: {}}}]}}\n"
    tenants = [f"{head}Tenant\nmetadata: {quota.format(f'tenant-{n}', 8 if n else 0)}" for n in range(2)]
    (tmp_path / "tenants.yaml").write_text("---\n".join(tenants))
    node = f"{head}GpuNode\nmetadata: {{name: n1}}\nspec: {{model: H100, gpus: [{', '.join(f'{{index: {i}}}' for i in range(8))}]}}\n"
    (tmp_path / "nodes.yaml").write_text(node)
    made = ("--generate", 20, "--teams", 2, "--nodes", "nodes.yaml", "--tenants", "tenants.yaml")
    (one,) = results(run(*made, "-o", "json")).values()
    jobs = generate(0, jobs=20, tenants=2).jobs
    assert one["finished"] == sum(
        job.tenant == "tenant-1" and job.total <= 8 * WHOLE for job in jobs
    )  # the other may have none
    assert "undone: held back" in run(*made).stdout
    assert "all done" not in run(*made).stdout
    assert "tenant-0 uses 0 of its 0" in run(*made).stdout


def test_tenants_that_nobody_declares_share_the_whole_fleet_evenly() -> None:
    nodes = fleet_nodes("1x2xH100,1x5xA100@3")
    quotas = [tenant["spec"]["quotas"][0]["nominal"] for tenant in even_tenants(["a", "b", "c"], nodes, 3600)]
    assert quotas == ["2334m", "2333m", "2333m"]
    assert [node["spec"]["costPerHour"] for node in nodes] == [4.0, 15.0]


def test_what_is_fragmented_is_what_is_free_and_of_no_use() -> None:
    free, model = np.array([[500, 500, 1000, 1000]]), np.array([0])
    assert fragmented(free, model, [(1000, ANY_MODEL, 1.0)]) == 1000
    assert fragmented(free, model, [(3000, ANY_MODEL, 1.0)]) == 3000
    assert fragmented(free, model, [(500, ANY_MODEL, 1.0)]) == 0
    assert fragmented(free, model, [(600, ANY_MODEL, 0.5), (500, 0b10, 0.5)]) == 0.5 * 1000 + 0.5 * 3000


def test_the_timeline_adds_up_to_what_was_held() -> None:
    trace = generate(3, jobs=60, tenants=3)
    cluster = even_cluster(trace.tenants, nodes=6)
    found = simulate(trace, None, cluster)
    line = found.timeline
    assert line is not None
    held = sum(line.utilisation) * line.seconds * cluster.gpus / 3600
    assert held * 2.0 == pytest.approx(found.cost, rel=0.02)  # two an hour, and the last part is not full
    assert found.waits == sorted(found.waits)
    assert (found.waits[50], found.waits[99]) == (found.wait_p50, found.wait_p99)


def test_blocks_and_marks_are_drawn_to_scale() -> None:
    assert spark([0, 0.5, 1.0, None], 4, 1.0) == "▁▅█ "
    assert spark([0.0, 0.0, 1.0, 1.0], 2, 1.0) == "▁█"
    assert ticks(1.0) == [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    assert ticks(437) == [0, 100, 200, 300, 400]


def test_the_published_files_are_known_by_their_columns() -> None:
    if not PUBLISHED.is_dir():
        pytest.skip("the published traces are not beside the project")
    assert format_of(PUBLISHED / "philly" / "philly_jobs.csv") == "philly"
    assert format_of(PUBLISHED / "openb" / "openb_pod_list_default.csv") == "openb"
    assert format_of(PUBLISHED / "pollux" / "workloads" / "workload-3.csv") == "pollux"


def test_which_policy_runs_is_said_where_nobody_chose_one(run: Simulate) -> None:
    some = ("--generate", 5, "--fleet", "2x8xH100")
    shipped = Path(__file__).parents[3] / "examples" / "gpu" / "time-sharing.yaml"
    assert "without --policy all defaults hold" in run(*some).stderr
    done = run(*some, "--policy", shipped)
    assert done.exit_code == 0, done.output
    assert "without --policy" not in done.stderr
    assert "time-sharing" in done.stdout


def test_a_tenant_that_asks_for_nothing_in_a_part_of_a_trace_has_its_quota_in_it(run: Simulate, tmp_path: Path) -> None:
    lines = [f"2017-10-0{day} 07:00:00,600.0,8,600.0,{tenant}\n" for day, tenant in ((2, "early"), (9, "a"), (9, "b"))]
    (tmp_path / "philly.csv").write_text(PHILLY + "".join(lines))
    policy = tmp_path / "own.yaml"
    policy.write_text("fairShare: {enabled: false}\n")
    seen = run("--trace", "philly.csv", "--from", "7d", "--fleet", "2x8xV100", "--policy", policy, "-o", "json")
    (one,) = results(seen).values()
    assert list(one["timeline"]["shares"]) == ["a", "b", "early"]  # type: ignore[index]


def test_the_queues_of_least_attained_service_are_split_where_one_says(run: Simulate) -> None:
    some = ("--generate", 40, "--fleet", "1x8xH100", "--load", 3, "-o", "json")
    found = results(run(*some, "--compare", "las", "las:1h", "las:900h"))
    assert found["las"]["wait_mean"] == found["las:1h"]["wait_mean"] != found["las:900h"]["wait_mean"]
    for wrong in ("las:", "las:16", "las:0h", "las:-1h", "las:xh"):
        done = run(*some, "--compare", wrong)
        assert done.exit_code == 2
        assert "such as las:16h" in done.stderr
