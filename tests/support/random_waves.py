"""Random scenarios of ranks in lock step, in the format of the recorded ones."""
import random


def random_waves(seed):
    """Return a scenario: some ranks, bursts of requests with pauses in which they may fall asleep."""
    draw = random.Random(seed)
    ranks = draw.randint(2, 5)
    requests, now_us = [], 0
    for number in range(draw.randint(3, 14)):
        now_us += draw.choice([0, 137, 1_003, 9_001, 30_011, 170_003, 330_017])
        requests.append({"id": f"r{number}", "arrival": now_us / 1e6, "rank": draw.randrange(ranks),
                         "output_len": draw.randint(1, 30), "prompt": [["uniq", draw.randint(1, 120)]]})
    return {
        "name": f"waves {seed}", "ranks": ranks, "requests": requests,
        "options": {"num_blocks": draw.choice([20, 30, 60]), "max_model_len": 256, "max_num_seqs": draw.randint(1, 4),
                    "max_num_batched_tokens": 64},
        "step_time": {"base": 0.01, "per_token": 0.0001, "per_req": 0.0005},
        "dummy_time": draw.choice([0.004, 0.01]), "hop": draw.choice([0.0005, 0.0031, 0.0203]),
        "dp_sync_interval": draw.choice([1, 3, 4, 16]), "prefill_schedule_interval": draw.choice([1, 1, 2, 3])}
