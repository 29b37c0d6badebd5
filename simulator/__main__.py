"""`python -m simulator`, and the command `simulator`."""
import sys

INTERRUPTED = 130               # 128 + SIGINT, as shells say


def main() -> int:
    """Do what the command line asks; Ctrl-C ends it quietly from the start."""
    try:
        from simulator.cli import main as run  # the imports take a while
        return run()
    except KeyboardInterrupt:
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
