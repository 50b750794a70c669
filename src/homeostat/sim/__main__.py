"""`python -m homeostat.sim --seed N` runs one seed, `--seeds A:B` many. The exit status says whether all was fine."""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import sys
import time

from homeostat.sim.seeds import run


def main() -> int:
    """Runs what the command line asks for."""
    asked = argparse.ArgumentParser(prog="python -m homeostat.sim", description=__doc__)
    asked.add_argument("--seed", type=int, help="one seed, told in full")
    asked.add_argument("--seeds", default="0:500", help="seeds FROM:TO (default: 0:500)")
    asked.add_argument("--jobs", type=int, default=2, help="processes (default: 2)")
    asked.add_argument("--verbose", action="store_true", help="show what the control plane logs")
    options = asked.parse_args()
    logging.basicConfig(level=logging.INFO if options.verbose else logging.CRITICAL)
    if options.seed is not None:
        report = run(options.seed)
        print(report.storm)
        print(report)
        return 0 if report.fine else 1
    first, _, last = options.seeds.partition(":")
    return _many(range(int(first), int(last)), options.jobs)


def _many(seeds: range, jobs: int) -> int:
    started, failed = time.monotonic(), 0
    with multiprocessing.Pool(jobs, logging.disable, (logging.CRITICAL,)) as pool:
        for report in pool.imap_unordered(run, seeds, chunksize=8):
            if not report.fine:
                failed += 1
                print(report, flush=True)
    took = time.monotonic() - started
    print(f"{len(seeds)} seeds, {failed} failed, {took:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
