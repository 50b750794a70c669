"""`homeostat gpu simulate`: a trace in virtual time, through the decisions that govern the real fleet."""

from __future__ import annotations

import contextlib
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from homeostat.cli.duration import seconds
from homeostat.cli.number import Number
from homeostat.cli.show import count, echo_lines, emit, output_option, table

if TYPE_CHECKING:
    from homeostat.gpu.decisions import Plan
    from homeostat.gpu.kinds import GpuPolicySpec
    from homeostat.gpu.simulator import Cluster, Result, Simulation, Trace
    from homeostat.gpu.simulator.engine import Scheduler

    Object = dict[str, Any]

BASELINES = ("fifo", "priority-backfill", "las")
"""What a policy can be set beside: by submission; by priority with backfill; least attained service (Tiresias), of which `las:16h` says after how
many GPU hours work belongs to the second queue."""
MADE_UP_FLEET = "8x8xH100"
"""On which a trace that is made up runs, where nobody says."""
OWN = "homeostat"
"""What the governor with all defaults is called."""
_SHOWN_EVERY = 0.2
_DEFAULTS = (
    "note: without --policy all defaults hold, which have no time sharing: short work waits for long work."
    " examples/gpu/time-sharing.yaml, for one, has it"
)


@click.command()
@click.option(
    "--trace", "file", type=click.Path(path_type=Path), help="A trace in the format of openb, Philly or Pollux."
)
@click.option(
    "--format", "form", type=click.Choice(["openb", "philly", "pollux"]), help="Default: found out by the columns."
)
@click.option("--generate", type=click.IntRange(min=1), metavar="JOBS", help="Make up a trace of so many jobs instead.")
@click.option(
    "--seed", type=int, default=0, show_default=True, help="Of the one that is made up: the same seed, the same trace."
)
@click.option(
    "--teams", type=click.IntRange(min=1), default=4, show_default=True, help="Tenants of the one that is made up."
)
@click.option(
    "--load",
    type=Number(min=0.01, max=100),
    default=1.2,
    show_default=True,
    help="How much the one that is made up asks for: 1 is all GPUs all the time.",
)
@click.option(
    "--from",
    "start",
    callback=seconds,
    default="0s",
    help="Leave out what was submitted before: 9h, 63d. Default: nothing.",
)
@click.option(
    "--for", "length", callback=seconds, default=None, help="Of a part this long: 24h, 7d. Default: all of it."
)
@click.option(
    "--fleet", metavar="NxGxTYPE[@COST]", help="Machines, GPUs of each, type, cost of a GPU hour; several with commas."
)
@click.option(
    "--nodes", type=click.Path(path_type=Path), help="The machines as GpuNode manifests, or a list of openb (.csv)."
)
@click.option(
    "--tenants", type=click.Path(path_type=Path), help="Tenant manifests. Default: all have equal parts and borrow."
)
@click.option("--max-wait", callback=seconds, default=None, help="What each tenant was promised: 4h. Default: nothing.")
@click.option("--policy", type=click.Path(path_type=Path), help="A GpuPolicy manifest. Default: all defaults.")
@click.option(
    "--compare",
    metavar="POLICY…",
    multiple=True,
    help=f"Set beside it: files, or {', '.join(BASELINES)} (las:16h: two queues, split at 16 GPU hours), or all of these.",
)
@click.argument("others", metavar="", nargs=-1)
@click.option("--every", callback=seconds, default="30s", show_default=True, help="Between two decisions, at least.")
@click.option("--chart/--no-chart", default=None, help="Draw it in the terminal. Default: where there is one.")
@click.option(
    "--plot", type=click.Path(path_type=Path, dir_okay=False), help="Draw it into this file, which ends in .svg."
)
@output_option("table", "json", "yaml")
def command(file: Path | None, form: str | None, compare: tuple[str, ...], others: tuple[str, ...], policy: Path | None, chart: bool | None, plot: Path | None, output: str, every: int, **options: Any) -> None:  # fmt: skip
    """Replay a trace in virtual time, through the same decisions that govern the real fleet, and print what became of it.

    Nothing real is touched, and no server is needed. With --compare several policies run side by side on the same jobs and machines.

    \b
    Examples:
      homeostat gpu simulate --generate 500 --seed 7
      homeostat gpu simulate --trace philly_jobs.csv --from 63d --for 7d --fleet 50x8xV100 --policy examples/gpu/time-sharing.yaml
      homeostat gpu simulate --trace philly_jobs.csv --for 7d --fleet 50x8xV100 --compare fifo las mine.yaml --plot week.svg
      homeostat gpu simulate --trace openb_pod_list_default.csv --nodes openb_node_list_gpu_node.csv

    Exits with 0, or 1 where a file makes no sense: the message says the line.
    """
    from homeostat.cli.gpu.facts import needs_numpy

    if others and not compare:
        raise click.UsageError(f"{' '.join(others)}: policies to compare with come after --compare")
    if plot is not None and plot.suffix != ".svg":
        raise click.BadParameter(
            f"{plot}: an SVG is drawn, which every browser shows; let the name end in .svg", param_hint="--plot"
        )
    needs_numpy()
    from homeostat.gpu.simulator import TraceError

    try:
        trace, teams = _trace(file, form, options)
        nodes = _machines(trace, options)
        if file is None:
            trace = _spread(trace, nodes, options["load"])
        cluster = _cluster(trace, teams, nodes, options)
    except TraceError as error:
        raise click.ClickException(str(error)) from None
    if policy is None and output == "table":
        click.echo(_DEFAULTS, err=True)
    policies, baselines = _policies(policy, [word for text in (*compare, *others) for word in text.split(",") if word])
    results, undone = _run(trace, cluster, policies, baselines, every)
    if plot is not None:
        _draw(plot, results, trace, cluster)
    if output != "table":
        import msgspec

        emit(
            {
                "trace": trace.name,
                "gpus": cluster.gpus,
                "results": {name: msgspec.to_builtins(one) for name, one in results.items()},
            },
            output,
        )
        return
    click.echo(
        f"{trace.name}: {count(len(trace.jobs), 'job')} of {count(len(trace.tenants), 'tenant')} on {count(cluster.gpus, 'GPU')} "
        f"in {count(len(cluster.nodes), 'machine')}"
    )
    echo_lines([*figures(results), *undone])
    if sys.stdout.isatty() if chart is None else chart:
        from homeostat.cli.gpu.plot import chart as drawn

        click.echo()
        echo_lines(drawn(results, min(shutil.get_terminal_size((100, 24)).columns, 160)))


def _trace(file: Path | None, form: str | None, options: dict[str, Any]) -> tuple[Trace, list[str]]:
    """What is replayed, and all tenants of the file: one that asks for nothing in a part of it has its quota all the same."""
    from homeostat.gpu.simulator import TraceError, generate, read_trace

    if (file is None) == (options["generate"] is None):
        raise click.UsageError("say which trace: --trace FILE, or --generate JOBS for one that is made up")
    if file is not None:
        trace = read_trace(file, form or "")
    else:
        trace = generate(options["seed"], jobs=options["generate"], tenants=options["teams"], seconds=1.0)
        if options["start"] or options["length"]:
            raise click.UsageError(
                "--from and --for are for a part of a file; how long a trace is made is said by --generate and --load"
            )
    start, length, teams = float(options["start"]), options["length"], trace.tenants
    if start or length:
        last = max(job.submitted for job in trace.jobs)
        trace = trace.between(start, start + length if length else float("inf"))
        if not trace.jobs:
            raise TraceError(
                f"{file or 'the trace'}: nothing was submitted in that part of it; it is {last / 86_400:.1f} days long"
            )
    return trace, teams


def _spread(trace: Trace, nodes: list[Object], load: float) -> Trace:
    """The same jobs, submitted over so long that they ask for this much of the machines."""
    from msgspec.structs import replace

    gpus = sum(len(node["spec"]["gpus"]) for node in nodes)
    seconds = trace.gpu_seconds / gpus / load
    return trace.changed(lambda job: replace(job, submitted=job.submitted * seconds))


def _machines(trace: Trace, options: dict[str, Any]) -> list[Object]:
    from homeostat.cli.gpu import whatif

    if options["fleet"] and options["nodes"]:
        raise click.UsageError("--fleet and --nodes both say what the machines are: leave one out")
    if options["fleet"] or (options["generate"] and not options["nodes"]):
        return whatif.fleet_nodes(options["fleet"] or MADE_UP_FLEET)
    if options["nodes"]:
        return whatif.file_nodes(options["nodes"])
    nodes = whatif.sized_for(trace)
    click.echo(
        f"note: without --fleet or --nodes there are {len(nodes)} machines with 8 GPUs, about as many as this trace keeps busy",
        err=True,
    )
    return nodes


def _cluster(trace: Trace, teams: list[str], nodes: list[Object], options: dict[str, Any]) -> Cluster:
    from homeostat.cli.gpu import whatif

    if options["tenants"]:
        tenants = whatif.manifests(options["tenants"], "Tenant")
        if options["max_wait"]:
            raise click.UsageError(
                "--max-wait is for tenants that nobody declares: say it in the manifests, as spec.sla.maxWait"
            )
    else:
        tenants = whatif.even_tenants(teams, nodes, options["max_wait"])
    cluster = whatif.cluster_of(trace, nodes, tenants)
    lost = sum(
        bool(job.models) and not set(job.models) & {node["spec"]["model"] for node in nodes} for job in trace.jobs
    )
    if lost:
        click.echo(f"note: {lost} jobs ask for types that no machine has, and will never start", err=True)
    return cluster


def _policies(policy: Path | None, words: list[str]) -> tuple[dict[str, GpuPolicySpec | None], dict[str, Scheduler]]:
    """The governor with each policy, and the baselines, by the names that they are told by."""
    from homeostat.cli.gpu.whatif import read_policy
    from homeostat.gpu.simulator.baselines import fifo, least_attained_service, priority_backfill

    known: dict[str, Scheduler] = dict(zip(BASELINES, (fifo, priority_backfill, least_attained_service()), strict=True))
    chosen: dict[str, Scheduler] = {}
    policies: dict[str, GpuPolicySpec | None] = {
        OWN if policy is None else policy.stem: None if policy is None else read_policy(policy)
    }
    for word in words:
        if word == "all":
            chosen |= known
        elif word in known:
            chosen[word] = known[word]
        elif word.startswith("las:"):
            chosen[word] = least_attained_service(_threshold(word))
        elif word == OWN:
            policies[OWN] = None
        elif Path(word).suffix or Path(word).exists():
            name = Path(word).stem if Path(word).stem not in policies else word
            policies[name] = read_policy(Path(word))
        else:
            import difflib

            near = difflib.get_close_matches(word, [*known, OWN, "all"], n=1)
            hint = (
                f" Did you mean '{near[0]}'?"
                if near
                else f" There are {', '.join(known)}, {OWN} and all; or name a file."
            )
            raise click.UsageError(f"--compare {word}: there is no such policy.{hint}")
    return policies, chosen


def _threshold(word: str) -> float:
    """The GPU seconds of `las:16h`."""
    hours = word.removeprefix("las:").removesuffix("h")
    if not word.endswith("h") or not hours.isdecimal() or not int(hours):
        raise click.UsageError(f"--compare {word}: write how many GPU hours, such as las:16h")
    return int(hours) * 3600.0


def _run(
    trace: Trace,
    cluster: Cluster,
    policies: Mapping[str, GpuPolicySpec | None],
    baselines: Mapping[str, Scheduler],
    every: int,
) -> tuple[dict[str, Result], list[str]]:
    """The results, and a line for each run that left something undone."""
    from homeostat.gpu.simulator import Timing, compare

    last: dict[str, Plan] = {}
    with _progress(list(policies) + list(baselines), len(trace.jobs)) as show:

        def watch(name: str, run: Simulation, plan: Plan) -> None:
            last[name] = plan
            show(name, run)

        found = compare(
            trace, cluster, policies, baselines=baselines, timing=Timing(every=float(max(every, 1))), watch=watch
        )
    return found, [_undone(name, one, last[name]) for name, one in found.items() if one.finished < one.jobs]


def _undone(name: str, result: Result, last: Plan) -> str:
    """How many jobs never ended, and what held them back at the end, where the scheduler can say."""
    waits = list(last.pending)
    found: dict[str, int] = {}
    for why in waits:
        found[str(why.constraint)] = found.get(str(why.constraint), 0) + 1
    reasons = ", ".join(f"{number} by {constraint}" for constraint, number in sorted(found.items()))
    example = f"; {waits[0].name}: {waits[0].reason}" if waits else ""
    return f"{name} left {count(result.jobs - result.finished, 'job')} undone{': held back ' if reasons else ''}{reasons}{example}"


@contextlib.contextmanager
def _progress(names: list[str], jobs: int) -> Iterator[Callable[[str, Simulation], None]]:
    """A bar with an estimate on standard error, where somebody looks."""
    if not sys.stderr.isatty():
        yield lambda name, run: None
        return
    import numpy as np

    from homeostat.cli.progress import progress

    width = max(map(len, names))
    with progress(jobs * len(names), names[0].ljust(width)) as bar:
        shown = time.monotonic()

        def watch(name: str, run: Simulation) -> None:
            nonlocal shown
            if time.monotonic() - shown >= _SHOWN_EVERY:
                shown = time.monotonic()
                done = jobs * names.index(name) + int((~np.isnan(run.meter.finished)).sum())
                bar.at(max(done, bar.done), name.ljust(width))

        yield watch


def _draw(plot: Path, results: Mapping[str, Result], trace: Trace, cluster: Cluster) -> None:
    from homeostat.cli.gpu.plot import svg

    try:
        plot.write_text(svg(results, f"{trace.name}: {len(trace.jobs)} jobs on {cluster.gpus} GPUs"), encoding="utf-8")
    except OSError as error:
        raise click.ClickException(f"{plot}: {error.strerror}") from None
    click.echo(f"drawn into {plot}", err=True)


# For people

_FIGURES: tuple[tuple[str, str, Callable[[Any], str], int], ...] = (
    ("jobs done", "finished", lambda v: f"{v:,}", +1),
    ("GPUs in use", "utilisation", lambda v: f"{v:.1%}", 0),
    ("free while somebody waits", "stranded", lambda v: f"{v:.1%}", -1),
    ("fragmented", "fragmentation", lambda v: f"{v:.1%}", -1),
    ("wait, mean", "wait_mean", lambda v: _span(v), -1),
    ("wait, p50", "wait_p50", lambda v: _span(v), -1),
    ("wait, p99", "wait_p99", lambda v: _span(v), -1),
    ("wait, longest", "wait_max", lambda v: _span(v), -1),
    ("fairness of shares (Jain)", "fairness", lambda v: f"{v:.4f}", +1),
    ("least share of a tenant", "worst_share", lambda v: f"{v:.1%}", +1),
    ("fairness of speeds (Jain)", "fairness_of_waits", lambda v: f"{v:.4f}", +1),
    ("preemptions", "preemptions", lambda v: f"{v:,}", 0),
    ("suspensions", "suspensions", lambda v: f"{v:,}", 0),
    ("migrations", "migrations", lambda v: f"{v:,}", 0),
    ("starved (waited over a day)", "starved", lambda v: f"{v:,}", -1),
    ("promises not kept (SLA)", "sla_misses", lambda v: f"{v:,}", -1),
    ("cost of GPUs held", "cost", lambda v: f"{v:,.0f}", 0),
    ("last one done after", "makespan", lambda v: _span(v), 0),
)
"""What it is called, where it stands, how it is written, and whether more (+1) or less (-1) is better."""


def _span(value: float) -> str:
    from homeostat.gpu.cycle import span

    return span(value)


def figures(results: Mapping[str, Result]) -> list[str]:
    """A line a figure, a column a run; the best of several is marked."""
    rows = [["", *results]]
    for title, field, written, better in _FIGURES:
        values = [getattr(one, field) for one in results.values()]
        texts = [written(value) for value in values]
        best = written(max(values) if better > 0 else min(values))
        if better and len(set(texts)) > 1:
            texts = [f"{text} *" if text == best else text for text in texts]
        rows.append([title, *texts])
    return [*table(rows), *(["* the best of them"] if len(results) > 1 else [])]
