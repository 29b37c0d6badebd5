"""`python -m simulator`, and the command `simulator`."""
import gc
import os
import sys

INTERRUPTED = 130               # 128 + SIGINT, as shells say
COLLECT_AFTER = 100_000         # objects; after Python's 700, what is imported is looked through again and again: 10 ms


def main() -> int:
    """Do what the command line asks; Ctrl-C ends it quietly from the start."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")      # NumPy would start threads that nothing here uses: 40 ms
    gc.set_threshold(COLLECT_AFTER)
    try:
        from simulator.cli import main as run  # the imports take a while
        return run()
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        gc.freeze()             # Python would look through all that is left before it ends: 40 ms


if __name__ == "__main__":
    sys.exit(main())
