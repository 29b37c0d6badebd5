"""The debug face: what it keeps, and where it stops."""
from support import engine
from support.scenario import load


def pressed(times):
    """Return a scenario of `times` equal moments, each of four decisions of which one only preempts.

    Five blocks of 4 tokens. a (8 + 2 tokens) and b (7 + 3) start together and hold 2 blocks each; then a takes the
    last one. As its output is complete, the third decision has nothing for it, and b finds no block and preempts
    itself. When a has ended b comes back.
    """
    options = {"max_num_batched_tokens": 64, "max_num_seqs": 4, "block_size": 4, "num_blocks": 6, "max_model_len": 64,
               "enable_prefix_caching": False, "async_scheduling": True}
    requests = [{"id": f"{name}{moment}", "arrival": float(moment), "output_len": outputs, "prompt": [["uniq", prompt]]}
                for moment in range(times) for name, prompt, outputs in (("a", 8, 2), ("b", 7, 3))]
    return {"name": "pressed", "options": options, "step_time": {"base": 0.01, "per_token": 0.0, "per_req": 0.0},
            "requests": requests}


def test_limit_counts_decisions_that_compute_something():
    recording = engine.run(load(pressed(times=5)), max_iterations=15)

    assert [len(step["scheduled"]) for step in recording.steps] == [2, 2, 0, 1] * 5
    assert recording.complete and (recording.requests["completed_ns"] > 0).all()


def test_run_stops_at_the_limit():
    recording = engine.run(load(pressed(times=5)), max_iterations=14)

    assert [len(step["scheduled"]) for step in recording.steps] == [2, 2, 0, 1] * 4 + [2, 2, 0]
    assert not recording.complete
