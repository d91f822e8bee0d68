"""Random programs on the dependency engine by the hundred thousand, each checked as in the tests.

    python tests/robustness/many_dependency_programs.py --programs 100000 --seed 0

Each is compared with its operations run one by one, in push order: values, versions, conflicting
pairs, the critical path. It ends with 1 at the first that differs, and names its seed.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "property"))

from dependency_programs import check


def main() -> int:
    """Run them all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    start_s = time.process_time()
    for seed in range(chosen.seed, chosen.seed + chosen.programs):
        try:
            check(seed)
        except AssertionError as error:
            print(f"program {seed} differs: {error}")
            return 1
    print(f"{chosen.programs:,} programs, {time.process_time() - start_s:.0f} s, none differs")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
