"""Random scenarios of ranks in lock step, and the comparison of their recordings."""
from support.scenario import load

RANKS_AND_REPLICAS = ((2, 2), (3, 3), (2, 4))


def with_long_answers(description):
    """Return the Scenario of a description, with answers that ranks decode for many steps."""
    description["requests"] += [
        {"id": f"long{i}", "arrival": 0.01 * i, "output_len": 40, "prompt": [["uniq", 5]]} for i in range(4)]
    needed = 2 + -(-60 // description["options"].get("block_size", 16))
    description["options"]["num_blocks"] = max(description["options"]["num_blocks"], needed)
    return load(description)


def assert_alike(found, expected):
    """Check that two recordings are equal; iterations of an instant may come in another order."""
    assert (found.requests == expected.requests).all()
    assert _rows(found.iterations) == _rows(expected.iterations)
    assert (found.replicas == expected.replicas).all()
    assert found.token_times == expected.token_times


def _rows(iterations):
    return sorted(iterations[[name for name in iterations.dtype.names if name != "spare"]].tolist())
