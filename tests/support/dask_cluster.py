"""A scheduler of Dask and its workers, as processes of this machine that speak over TCP."""
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
PATIENCE_S = 60.0


@contextmanager
def cluster(folder, num_workers=2):
    """Yield the scheduler's file and the worker processes; end them all."""
    file = Path(folder) / "scheduler.json"
    with ExitStack() as running:
        start(running, folder, "scheduler", "--host", "127.0.0.1", "--port", "0", "--scheduler-file", str(file),
              "--no-dashboard", "--no-show")
        wait_until(file.exists)
        yield file, [start(running, folder, "worker", "--scheduler-file", str(file), "--nthreads", "1", "--no-nanny",
                           "--no-dashboard", "--host", "127.0.0.1", "--name", str(number), "--death-timeout", "60")
                     for number in range(num_workers)]


def start(running, folder, *words):
    process = subprocess.Popen([sys.executable, "-m", "dask", *words], cwd=folder, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": str(ROOT)})
    running.callback(end, process)
    return process


def end(process):
    if process.poll() is None:
        process.send_signal(signal.SIGKILL)
    process.wait()


def wait_until(is_so, patience_s=PATIENCE_S):
    deadline_s = time.monotonic() + patience_s
    while not is_so():
        assert time.monotonic() < deadline_s, "it took too long"
        time.sleep(0.02)
