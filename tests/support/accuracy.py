"""Made-up data sets for `score`."""
import hashlib
import json

from simulator import cli
from support.data_sets import PROVENANCE, TEN_MS

HEAD = ("id,hardware,model,dtype,kv_cache_dtype,tensor_parallel,input_tokens,output_tokens,concurrency,ttft_ms,tpot_ms,"
        "peer_ttft_ms,peer_tpot_ms")
POINTS = (  # an iteration takes 10 ms: TTFT is 10 ms, and TPOT, too
    "a,h100-sxm-80gb,llama-3.1-8b,,,1,100,20,1,20,12.5,30,10",
    "b,h100-sxm-80gb,llama-3.1-8b,,,1,100,20,1,8,10,8,10",
    "c,h100-sxm-80gb,llama-9000,,,1,100,20,1,20,10,20,10",          # nobody wrote its facts
    "d,h100-sxm-80gb,llama-3.1-405b,,,1,100,20,1,20,10,20,10")      # does not fit on one
TEXT = 'name = "made-up"' + PROVENANCE + """fits = ["roofline"]
form = "closed_loop"
noise = {ttft = 0.02}
[reader]
requests_per_client = 2
shortest_share = 1.0
[experiment.engine]
async_scheduling = false
enable_prefix_caching = false
""" + TEN_MS + """[[peers]]
name = "Peer"
version = "1"
column_prefix = "peer_"
"""


def write_set(tmp_path, text=TEXT, points=POINTS, name="one", head=HEAD, digest=None):
    """Write a data set into the folder `sets`, its file beside that; return its folder."""
    data = "\n".join([head, *points, ""])
    (tmp_path / f"{name}.csv").write_text(data)
    digest = digest or hashlib.sha256(data.encode()).hexdigest()
    folder = tmp_path / "sets" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "dataset.toml").write_text(
        f'{text}\n[[files]]\nrole = "points"\npath = "{name}.csv"\nsha256 = "{digest}"\n')
    return folder


def score(tmp_path, *arguments, out="out"):
    """Score the folder `sets`; return the exit status and the content of score.json."""
    status = cli.main(["score", str(tmp_path / "sets"), "--root", str(tmp_path), "--out", str(tmp_path / out),
                       "--overwrite", "--quiet", *arguments])
    return status, json.loads((tmp_path / out / "score.json").read_text())
