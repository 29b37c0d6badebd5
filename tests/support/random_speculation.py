"""Random ways to verify drafts: constant, cyclic and drawn acceptance."""
from simulator.scheduling.acceptance_table import AcceptanceTable
from simulator.scheduling.speculative import SpeculativeParameters

KINDS = ("constant", "cyclic", "never the same", "drawn")


def random_speculation(rng, kind=None):
    """Return SpeculativeParameters of this kind, of KINDS; None: of any."""
    drafts = rng.choice([1, 2, 3, 4, 7])
    kind = kind or rng.choice(KINDS)
    lengths = {"constant": [1], "cyclic": [2, 3, 5, 6], "never the same": [17, 40, 300], "drawn": [drafts]}
    length = rng.choice(lengths[kind])
    acceptance = tuple(rng.randint(0, drafts) for _ in range(length))
    if kind == "drawn":
        acceptance = AcceptanceTable(distribution=(*(rng.choice([0, 0.3, 1.0, 2.5]) for _ in range(length)), 0.7))
    return SpeculativeParameters(
        num_tokens=drafts, num_lookahead_tokens=rng.choice([0, drafts, 2]), acceptance=acceptance)


def as_toml(speculation):
    """Return SpeculativeParameters as the value of engine.speculative."""
    acceptance = speculation.acceptance
    if isinstance(acceptance, AcceptanceTable):
        text = f"{{distribution = {list(acceptance.distribution)}}}"
    else:
        text = f"{list(acceptance)}"
    return (f"{{num_tokens = {speculation.num_tokens}, num_lookahead_tokens = {speculation.num_lookahead_tokens}, "
            f"acceptance = {text}}}")
