"""Operator tables of two models: `profile-gpu --quick`, ended when its time is over."""
import csv
import signal
import subprocess
import sys
from pathlib import Path

from campaign.record import OutOfTime, Part

MODELS = ("llama-3.2-1b", "qwen3-30b-a3b")      # a small dense model, a small mixture
GRACE_S = 15                                    # in which an interrupted profile writes its provenance


def profiles(part: Part, root: Path, folder: Path, device: str, models=MODELS) -> None:
    """Measure each model's operators in equal shares of the part's remaining time; keep the tables' rows."""
    for i, model in enumerate(models):
        seconds = part.remaining_s() / (len(models) - i)
        if seconds <= 0:
            raise OutOfTime
        out = folder / Path(model).stem
        part.rows.append({"model": Path(model).stem} | _profile(root, model, out, device, seconds))


def _profile(root: Path, model: str, out: Path, device: str, seconds: float) -> dict:
    command = [sys.executable, "-m", "simulator", "profile-gpu", model, "--quick", "--out", str(out),
               "--device", device, "--kernels", "torch"]
    process = subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        text, faults = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        try:
            text, faults = process.communicate(timeout=GRACE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            text, faults = process.communicate()
    tables = {}
    for file in sorted(out.glob("*.csv")) if out.is_dir() else ():
        with open(file, newline="", encoding="utf-8") as lines:
            columns, *rows = list(csv.reader(lines)) or [[]]
        tables[file.stem] = {"columns": columns, "rows": rows}
    return {"exit_status": process.returncode, "printed": text[-2000:], "faults": faults[-1000:], "tables": tables}
