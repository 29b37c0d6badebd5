"""Stand-ins for sbatch, srun and scontrol: they run a job array here, as Slurm would on its nodes.

What they know is what sbatch(1) says of job arrays, `--signal`, `--requeue` and restarts. Options that nobody listed
are an error, so that a script with a misspelt one does not pass.
"""
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

KNOWN = {"job-name", "array", "cpus-per-task", "mem", "time", "signal", "requeue", "open-mode", "output"}
MOST_TURNS = 20

SRUN = """#!{python}
import os, sys
arguments = sys.argv[1:]
assert arguments[0] == "-c" and arguments[1] == os.environ["SLURM_CPUS_PER_TASK"], arguments
os.environ["SLURM_STEP_ID"] = "0"
os.execvp(arguments[2], arguments[2:])
"""
SCONTROL = """#!{python}
import sys
from pathlib import Path
assert sys.argv[1] == "requeue" and len(sys.argv) == 3, sys.argv
Path({folder!r}, "requeue-" + sys.argv[2]).touch()
"""


class Slurm:
    """A cluster of one machine.

    folder : for its own files. environment : of all jobs, beside what Slurm adds.
    """

    def __init__(self, folder, environment):
        self.folder = Path(folder)
        self.folder.mkdir()
        for name, text in (("srun", SRUN), ("scontrol", SCONTROL)):
            path = self.folder / name
            path.write_text(text.format(python=sys.executable, folder=str(self.folder)))
            path.chmod(0o755)
        self.environment = {**os.environ, **environment,
                            "PATH": os.pathsep.join([str(self.folder), os.path.dirname(sys.executable),
                                                     os.environ["PATH"]])}

    def sbatch(self, script, cwd, warn_after=None):
        """Run all tasks of an array, one after the other, those that are put back into the queue too.

        warn_after : in the first turn of each task `--signal` comes once this has grown, as it is called again and
            again, by ten; None: it has time enough.

        Returns {task: [exit status of each turn]}.
        """
        options = options_of(script.read_text())
        first, last, step = array_of(options["array"])
        tasks = range(first, last + 1, step)
        ended = {}
        for task in tasks:
            more = {"SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": str(task), "SLURM_ARRAY_TASK_MIN": str(first),
                    "SLURM_ARRAY_TASK_MAX": str(tasks[-1]), "SLURM_ARRAY_TASK_STEP": str(step),
                    "SLURM_ARRAY_TASK_COUNT": str(len(tasks)), "SLURM_CPUS_PER_TASK": options["cpus-per-task"]}
            name = options["output"].replace("%x", options["job-name"]).replace("%A", "7").replace("%a", str(task))
            output = cwd / name
            ended[task] = self._turns(script, cwd, output, more, options, warn_after)
        return ended

    def _turns(self, script, cwd, output, more, options, warn_after):
        ended, flag = [], self.folder / f"requeue-7_{more['SLURM_ARRAY_TASK_ID']}"
        while len(ended) < MOST_TURNS:
            count = {"SLURM_RESTART_COUNT": str(len(ended))} if ended else {}
            with open(output, "a" if options["open-mode"] == "append" else "w") as log:
                job = subprocess.Popen(["bash", str(script)], cwd=cwd, stdout=log, stderr=log, start_new_session=True,
                                       env=self.environment | more | count)
                if warn_after is not None and not ended:
                    warn(job, options["signal"], warn_after)
                ended.append(job.wait(timeout=120))
            if not flag.exists():
                return ended
            assert "requeue" in options
            flag.unlink()
        raise AssertionError("a task never ends")


def warn(job, option, count):
    """Send the signal to the job's step, not to its shell: `--signal` without B:."""
    name, _, _ = option.partition("@")
    assert not name.startswith("B:")
    before = count()
    while job.poll() is None and count() < before + 10:
        time.sleep(0.01)
    for process in steps_of(job.pid):
        os.kill(process, getattr(signal, f"SIG{name}"))


def steps_of(shell):
    """Return the processes that a shell waits for, and all that these have started."""
    found, waiting = [], [shell]
    while waiting:
        process = waiting.pop()
        try:
            children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
        except OSError:
            continue
        found += map(int, children)
        waiting += map(int, children)
    return found


def options_of(text):
    """Return the options in the lines #SBATCH of a script."""
    words = [word for line in text.splitlines() if line.startswith("#SBATCH ") for word in shlex.split(line[8:])]
    options = {}
    for word in words:
        name, _, value = word.removeprefix("--").partition("=")
        assert word.startswith("--") and name in KNOWN, word
        options[name] = value
    return options


def array_of(text):
    """Return first, last and step of `0-31:2%16`."""
    match = re.fullmatch(r"(\d+)-(\d+)(?::(\d+))?(?:%\d+)?", text)
    assert match, text
    return int(match[1]), int(match[2]), int(match[3] or 1)
