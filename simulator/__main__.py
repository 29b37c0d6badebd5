"""`python -m simulator`, and the command `simulator`."""
import gc
import os
import sys

INTERRUPTED = 130               # 128 + SIGINT, as in shells
COLLECT_AFTER = 100_000         # objects; Python's 700 would collect garbage many times during imports: 10 ms


def main() -> int:
    """Execute the command line; Ctrl-C ends it quietly from the start."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")      # NumPy would start threads that nothing here uses: 40 ms
    gc.set_threshold(COLLECT_AFTER)
    try:
        from simulator.cli import main as run  # the imports take a while
        return run()
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        gc.freeze()             # or Python would collect garbage at exit: 40 ms


if __name__ == "__main__":
    sys.exit(main())
