"""`python -m simulator`, and the command `simulator`."""
import os
import sys

INTERRUPTED = 130               # 128 + SIGINT, as shells say


def main() -> int:
    """Do what the command line asks; Ctrl-C ends it quietly from the start."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")      # NumPy would start threads that nothing here uses: 40 ms
    try:
        from simulator.cli import main as run  # the imports take a while
        return run()
    except KeyboardInterrupt:
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
