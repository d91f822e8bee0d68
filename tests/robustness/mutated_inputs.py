"""Wrong inputs by the thousand: whatever comes in, ampsim does it or says in one line why not.

    python tests/robustness/mutated_inputs.py --calls 10000 --seed 0
    python tests/robustness/mutated_inputs.py --seed 0 --only model:17

A case is a call of a command or of a public function with something wrong in it: a file that a
user writes, a model, a folder that ampsim wrote, a data file, a word of the command line, an
argument. It is made from the seed, its kind and its number alone, so that `--only` makes it again
and shows it. Each runs in a process of its own with 2 GiB of memory more than an idle one; one in
fifty calls of a command starts a Python of its own. A fault is a traceback, more or less than one
line on standard error, a control character on the terminal, another exit code than documented, a
call that does not end, a process or a temporary file that is left.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import gc
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

from mutation import child, judge, shared
from mutation.case import Call, Command, Place
from mutation.kinds import KINDS, sequence

REAL_EVERY = 50
LIMIT_S = 20.0
CALLS = 2000
SAY_EVERY = 500


def main() -> int:
    """Make the calls, count how they end, and tell each fault."""
    chosen = _arguments()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    root = Path(tempfile.mkdtemp(prefix="mutated-inputs-"))
    try:
        started_s = time.monotonic()
        shared.warm_up(root)
        gc.freeze()  # what is there by now is no garbage in any child
        faults = _one(chosen, root) if chosen.only else _many(chosen, root)
        print(f"{time.monotonic() - started_s:.0f} s, {faults} faults")
        return 1 if faults else 0
    finally:
        shared.remove(root)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=CALLS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", choices=list(KINDS), action="append", help="may be repeated")
    parser.add_argument("--only", metavar="KIND:NUMBER", help="one case, shown whole")
    parser.add_argument("--limit-s", type=float, default=LIMIT_S, help="a longer call hangs")
    return parser.parse_args()


def _many(chosen: argparse.Namespace, root: Path) -> int:
    """Make many calls; return how many were faulty."""
    counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    seconds: dict[str, float] = collections.defaultdict(float)
    classes: collections.Counter[str] = collections.Counter()
    with contextlib.suppress(KeyboardInterrupt):  # counts what was done by then
        for number, kind in enumerate(sequence(chosen.kind or list(KINDS), chosen.calls)):
            started_s = time.monotonic()
            call, ended, found = _try(kind, number, chosen, root)
            seconds[kind] += time.monotonic() - started_s
            counts[kind]["fault" if found else judge.outcome(call, ended)] += 1
            if found:
                classes[f"{kind}: {judge.class_of(found)}"] += 1
                name = f"--seed {chosen.seed} --only {kind}:{number}"
                print(f"{name}  {'; '.join(found)}  {str(call)[:400]}", flush=True)
            if number % SAY_EVERY == SAY_EVERY - 1:
                sys.stderr.write(f"{number + 1} calls, {classes.total()} faults\n")
    for name, count in classes.most_common():
        print(f"{count:6}  {name}")
    _print_counts(counts, seconds)
    return classes.total()


def _print_counts(counts: dict[str, collections.Counter[str]], seconds: dict[str, float]) -> None:
    """Print how often each kind ended in which way, and the time that its calls took."""
    outcomes = sorted({outcome for one in counts.values() for outcome in one})
    print(f"{'':14}{''.join(f'{outcome:>10}' for outcome in outcomes)}{'calls':>10}{'seconds':>10}")
    counts = {**counts, "all": sum(counts.values(), collections.Counter[str]())}
    for kind, one in counts.items():
        row = "".join(f"{one[outcome]:10}" for outcome in outcomes)
        taken_s = seconds.get(kind, sum(seconds.values()))
        print(f"{kind:14}{row}{one.total():10}{taken_s:10.0f}")


def _one(chosen: argparse.Namespace, root: Path) -> int:
    """Make one call and show it."""
    kind, _, number = chosen.only.partition(":")
    folder = Path(tempfile.mkdtemp(prefix="mutated-input-"))
    call, ended, found = _try(kind, int(number), chosen, root, folder)
    print(f"in {folder}: {call}\nexit code {ended.code}\n{ended.out[:4000]}\n{ended.err[:9000]}")
    print("; ".join(found) or "no fault")
    return len(found)


def _try(
    kind: str, number: int, chosen: argparse.Namespace, root: Path, folder: Path | None = None
) -> tuple[Call, child.Ended, list[str]]:
    """Make a case and its call; a call that hangs has a second chance with twice the time."""
    folder = folder or root / "case"
    folder.mkdir(exist_ok=True)
    try:
        chance = random.Random(f"{chosen.seed}/{kind}/{number}")
        is_real = chance.randrange(REAL_EVERY) == 0
        os.chdir(folder)  # what makes a case may name its files
        call = KINDS[kind].make(Place(folder, root / "shared", chance))
        ended = child.run(call, folder, root / "notes", limit_s=chosen.limit_s, is_real=is_real)
        if ended.is_hung and isinstance(call, Command):
            ended = child.run(
                call, folder, root / "notes", limit_s=2 * chosen.limit_s, is_real=is_real
            )
        return call, ended, judge.faults(call, ended, folder)
    finally:
        os.chdir(root)
        if folder.parent == root:
            shared.remove(folder)


if __name__ == "__main__":
    sys.exit(main())
