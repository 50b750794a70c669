"""Runs storms by seed, and stories with a death at each step. The exit status says whether all was fine.

`--seed N` goes through one storm and tells it in full, `--seeds A:B` through many; `--stories` tells every reference story with a
death at each `--every`th step; `--story NAME --dies engine:123` tells one of them again. With `--gpu` it is the GPU service that is
simulated: the governor, agents and machines.
"""

from __future__ import annotations

import argparse
import functools
import logging
import multiprocessing
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from homeostat.sim.seeds import Report, run
from homeostat.sim.stories import STORIES, Death, deaths, tell


def main() -> int:
    """Runs what the command line asks for."""
    asked = argparse.ArgumentParser(
        prog="python -m homeostat.sim", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    asked.add_argument("--seed", type=int, help="one seed, told in full")
    asked.add_argument("--seeds", default="0:500", help="seeds FROM:TO (default: 0:500)")
    asked.add_argument("--story", choices=STORIES, help="one story, told in full")
    asked.add_argument("--dies", type=_death, help="who dies in it, and after how many steps: engine:STEPS or server:STEPS")
    asked.add_argument("--stories", action="store_true", help="all stories, with a death at each step")
    asked.add_argument("--every", type=int, default=1, help="of these steps, each so many-th (default: 1)")
    asked.add_argument("--jobs", type=int, default=2, help="processes (default: 2)")
    asked.add_argument("--gpu", action="store_true", help="the GPU service: `--seed` and `--seeds` are its own")
    asked.add_argument("--verbose", action="store_true", help="show what the control plane logs")
    options = asked.parse_args()
    logging.basicConfig(level=logging.INFO if options.verbose else logging.CRITICAL)
    if options.gpu:
        return _gpu(options)
    if options.seed is not None or options.story:
        report = run(options.seed) if options.seed is not None else tell(STORIES[options.story], options.dies)
        print(report.storm)
        print(report)
        return 0 if report.fine else 1
    if options.stories:
        told = [(name, death) for name, story in STORIES.items() for death in deaths(story, options.every)]
        return _many(_tell, told, "deaths", options.jobs)
    first, _, last = options.seeds.partition(":")
    return _many(run, range(int(first), int(last)), "seeds", options.jobs)


def _gpu(options: argparse.Namespace) -> int:
    from homeostat.sim import gpu

    if options.seed is None:
        first, _, last = options.seeds.partition(":")
        return _many(gpu.run, range(int(first), int(last)), "GPU seeds", options.jobs)
    report = gpu.run(options.seed)
    print(report.storm)
    print(report)
    return 0 if report.fine else 1


def _death(text: str) -> Death:
    who, _, steps = text.partition(":")
    if who not in ("engine", "server") or not steps.isdigit():
        raise argparse.ArgumentTypeError(f"engine:STEPS or server:STEPS, not {text!r}")
    return Death(who, int(steps))


def _tell(told: tuple[str, Death]) -> Report:
    return tell(STORIES[told[0]], told[1])


def _many(work: Callable[[Any], Any], what: Sequence[Any], word: str, jobs: int) -> int:
    started, failed = time.monotonic(), 0
    with multiprocessing.Pool(jobs, functools.partial(logging.disable, logging.CRITICAL)) as pool:
        for report in pool.imap_unordered(work, what, chunksize=8):
            if not report.fine:
                failed += 1
                print(report, flush=True)
    print(f"{len(what)} {word}, {failed} failed, {time.monotonic() - started:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
