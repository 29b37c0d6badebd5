# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # A first study in Python: chunks and users
#
# `max_num_batched_tokens` is the most prompt tokens that a batch may compute. Small chunks delay decodes less,
# but make the first token wait. How large are both effects, and do they depend on the load?
#
# This page is a script: `python chunks_and_users.py` runs it, and Jupyter with jupytext opens it as a notebook.
# It needs the extra `report` for charts, and pandas.

# %%
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd

import simulator

# %% [markdown]
# ## One run
#
# An experiment is a TOML file. Here it is written first; usually it lies there. `simulator.run` takes the file
# and values that win over it, and returns a `Result`.

# %%
Path("chat.toml").write_text("""
[model]
name = "llama-3.1-8b"

[hardware]
name = "h100-sxm-80gb"

[latency]
backend = "roofline"

[workload]
type = "synthetic"
num_requests = 1000
arrival = {process = "poisson", rate_per_s = 12.0}
prompt_tokens = {distribution = "lognormal", mean = 1000.0, cv = 1.0}
output_tokens = {distribution = "lognormal", mean = 150.0, cv = 0.8}

[slo]
ttft_ms = 300.0
tpot_ms = 15.0
""")
result = simulator.run("chat.toml")
result

# %%
summary = result.summary
assert summary["requests"]["completed"] == 1000
assert summary["verdict"] == "stable"
print(f"TTFT p99 {summary['ttft_ms']['p99']:.1f} ms, goodput {summary['request_goodput']:.2f} requests/s")

# %% [markdown]
# ## Its requests as a table
#
# `to_pandas` gives each table of the run; `python -m simulator describe results table requests` explains the
# columns.

# %%
requests = result.to_pandas("requests")
requests["ttft_ms"] = (requests["first_token_ns"] - requests["arrival_ns"]) / 1e6
by_length = requests.groupby(pd.cut(requests["prompt_tokens"], [0, 500, 1000, 2000, 100_000]), observed=True)
print(by_length["ttft_ms"].describe()[["count", "mean", "max"]].round(1))

# %% [markdown]
# Longer prompts get their first token later: all of a prompt is computed before it. The requests are the same in
# each run that follows, since arrivals and lengths have random streams of their own: comparisons are sharp.

# %%
small = simulator.run("chat.toml", {"engine.max_num_batched_tokens": 512})
assert (small.requests["prompt_tokens"] == result.requests["prompt_tokens"]).all()
longest = {"8192 tokens": result.summary["itl_ms"]["p99"], "512 tokens": small.summary["itl_ms"]["p99"]}
print("p99 of gaps between tokens, ms:", {name: round(value, 1) for name, value in longest.items()})
assert longest["512 tokens"] < longest["8192 tokens"]

# %% [markdown]
# ## A sweep
#
# One run is one draw. A study file says which keys move and how many seeds each point gets; `simulator.sweep`
# runs it, and keeps every run in a folder, so that a second call runs nothing.

# %%
Path("chunks.toml").write_text("""
extends = "chat.toml"

[study]
kind = "sweep"
seeds = 3

[study.axes]
"engine.max_num_batched_tokens" = [8192, 2048, 512]
"workload.arrival.rate_per_s" = [6.0, 12.0, 18.0]

[study.statistics]
metrics = ["ttft_ms.mean", "itl_ms.p99", "request_goodput"]
""")
simulator.sweep("chunks.toml", out="study")
points = pd.DataFrame(simulator.load_study("study").points)
assert len(points) == 9
print(points.columns.tolist())

# %% [markdown]
# ## The answer as a table and a chart
#
# `.ci` is half of an interval of 95 %.

# %%
chunk, rate = "engine.max_num_batched_tokens", "workload.arrival.rate_per_s"
print(points.pivot(index=rate, columns=chunk, values="ttft_ms.mean").round(1))
print(points.pivot(index=rate, columns=chunk, values="itl_ms.p99").round(1))

# %%
figure, axes = plt.subplots(1, 2, figsize=(9, 3.5), layout="constrained")
for name, axis in zip(["ttft_ms.mean", "itl_ms.p99"], axes, strict=True):
    for tokens, rows in points.groupby(chunk):
        axis.errorbar(rows[rate], rows[name], rows[f"{name}.ci"], marker="o", capsize=3, label=f"{tokens} tokens")
    axis.set(xlabel="requests/s", ylabel=name, ylim=(0, None))
axes[0].legend(title="batches of at most")
figure.savefig("chunks.png")

# %% [markdown]
# At every load, chunks of 512 tokens make the longest gaps shorter and the first token later. The bounds of a
# service decide between them: goodput counts the requests that keep both.

# %%
for _, rows in points.groupby(rate):
    at = rows.set_index(chunk)
    assert at.loc[512, "itl_ms.p99"] < at.loc[8192, "itl_ms.p99"]
    assert at.loc[512, "ttft_ms.mean"] > at.loc[8192, "ttft_ms.mean"]
print(points.pivot(index=rate, columns=chunk, values="request_goodput").round(2))
