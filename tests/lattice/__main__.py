"""Hunt: `python -m tests.lattice --count 10000 --seed 1`."""
import argparse
import signal
import sys
import tempfile
from collections import Counter
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS), str(TESTS.parent)]

from lattice.hunt import LIMIT_S, Hunt, Job, write_case  # noqa: E402
from lattice.known import unknown  # noqa: E402
from lattice.minimise import minimal  # noqa: E402


def main(arguments: list[str] | None = None) -> int:
    """Examine experiments; return 1 if a fault was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.lattice", description=__doc__)
    parser.add_argument("--count", type=int, default=300, help="experiments (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the first of them (default: %(default)s)")
    parser.add_argument("--workers", type=int, default=1, help="processes (default: %(default)s)")
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="seconds for one (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Path("lattice-faults"), help="for what is found (%(default)s)")
    parser.add_argument("--no-minimise", action="store_true", help="write experiments as they were drawn")
    parser.add_argument("--with-known", action="store_true", help="tell known faults, too")
    args = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)     # ends the processes, too
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder, Hunt(Path(folder), args.workers, args.limit) as hunt:
        seeds = range(args.seed, args.seed + args.count)
        try:
            for job, examined in hunt.outcomes(map(Job, seeds)):
                counts["refused" if examined.refused is not None else "accepted"] += 1
                found = examined.faults[:1] if args.with_known else unknown(examined.drawn.data, examined.faults)
                counts["known"] += len(examined.faults) > 0 and not found
                for kind, text in found:
                    counts[kind] += 1
                    _tell(args, job, examined, kind, text)
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
    print("\n".join(f"{count:7} {kind}" for kind, count in counts.most_common()))
    return 1 if counts.keys() - {"accepted", "refused", "known"} else 0


def _tell(args, job, examined, kind: str, text: str) -> None:
    """Print a fault, and write the smallest experiment that shows it."""
    print(f"seed {job.seed}: {kind}: {text[-1500:].strip()}", flush=True)
    drawn = examined.drawn
    if not args.no_minimise:
        with tempfile.TemporaryDirectory() as folder, Hunt(Path(folder), 1, 5.0) as hunt:
            family = kind if kind.startswith("crash") else kind.partition(":")[0]
            drawn = minimal(drawn, lambda other: any(
                each.startswith(family) for each, _ in hunt.examine(other).faults))
    path = write_case(drawn, args.out, f"{kind.replace(':', '-').replace('/', '-').replace(' ', '_')}-{job.seed}")
    print(f"  {path}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
