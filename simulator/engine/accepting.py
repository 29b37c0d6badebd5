"""Acceptance of the drafts of each request, and their validity under its grammar."""
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from simulator.core.random_streams import RandomStreams
from simulator.domain.acceptance import Acceptance
from simulator.domain.grammar_drafts import GrammarDrafts


def new_acceptance(facts, workload, seed: int) -> Acceptance | None:
    """Return the acceptance of the requests of a workload; None without speculation.

    facts : SchedulerFacts.
    """
    speculative = facts.speculative
    if speculative is None:
        return None
    weights, count = speculative.weights, len(workload)
    key = int(RandomStreams(seed).generator("acceptance").integers(0, 2**64, dtype=np.uint64))
    if speculative.differs_by_request:
        return Acceptance(None, *_profiles(speculative, workload, seed, key))
    if weights is None:
        return Acceptance(speculative.acceptance, None, count, key)
    return Acceptance(None, weights, count, key, workload.numbers())


def grammar_drafts_of(facts, workload, seed: int) -> Callable[[], GrammarDrafts | None]:
    """Return a factory of a replica's GrammarDrafts, or of None if drafts are valid.

    facts : SchedulerFacts. All replicas draw equal values for a request.
    """
    if facts.speculative is None or facts.draft_valid_rate == 1 or not len(workload.labels.get("grammar", ())):
        return lambda: None
    key = int(RandomStreams(seed).generator("grammar drafts").integers(0, 2**64, dtype=np.uint64))
    return partial(GrammarDrafts, facts.draft_valid_rate, workload.demands, workload.numbers(), key)


def missing_texts(speculative, workload) -> Iterator[str]:
    """Yield a message for each text in `by_text` that no request has."""
    for text in speculative.by_text:
        codes = np.unique(workload.demands[text.label]).tolist()
        names = [str(name) for code, name in enumerate(workload.labels.get(text.label, ())) if code in codes]
        if text.name not in names:
            found = f"found {', '.join(names[:10])}" if names else "found no requests with any"
            yield f"no request has {text.label} \"{text.name}\"; {found}"


def _profiles(speculative, workload, seed: int, key: int) -> tuple:
    """Return the arguments of Acceptance after the cycle."""
    tables, numbers, num_tokens = speculative.tables, workload.numbers(), speculative.num_tokens
    weights = np.zeros((len(tables), num_tokens + 1))
    for row, table in zip(weights, tables, strict=True):
        given = table.weights(num_tokens)[:num_tokens + 1]      # behind these are zeros
        row[:len(given)] = given
        row /= row.sum()
    groups = _groups(speculative, workload)
    if not any(table.length_std for table in tables):
        return weights, len(workload), key, numbers, groups
    own = weights[groups]
    for group, table in enumerate(tables):
        if table.length_std:
            of_group = groups == group
            own[of_group] = _drawn(weights[group], table.concentration(num_tokens), seed, workload)[of_group]
    return own, len(workload), key, numbers, np.arange(len(workload), dtype=np.int32)


def _groups(speculative, workload) -> np.ndarray:
    """Return the index of each request's table, int32 (n,)."""
    groups = np.zeros(len(workload), np.int32)
    for group, text in reversed(list(enumerate(speculative.by_text, 1))):
        names = [str(name) for name in workload.labels.get(text.label, ())]
        if text.name in names:
            groups[workload.demands[text.label] == names.index(text.name)] = group
    return groups


def _drawn(weights: np.ndarray, concentration: float, seed: int, workload) -> np.ndarray:
    """Return weights for each request, drawn around the given ones.

    They have a Dirichlet distribution, so that each rate, of drafts with accepted predecessors, has a
    beta distribution, independent of the others, and all means are kept.
    """
    logs = np.full((len(workload), len(weights)), -np.inf)
    for i in np.flatnonzero(weights):
        logs[:, i] = workload.log_gammas(seed, f"acceptance of requests/{i}", concentration * weights[i])
    drawn = np.exp(logs - logs.max(axis=1, keepdims=True, initial=-np.inf))
    return drawn / drawn.sum(axis=1, keepdims=True)
