"""Cached part of a prompt on each replica, in whole chunks of Llumnix's index.

Source: llumnix-project/llumnix at 8a693b4, prefix_cache_utils.go.
"""
from libc.stdint cimport int8_t, int32_t

from simulator.routing.llumnix.candidates cimport Candidates

import numpy as np


cdef int32_t run_of_chunks(const int8_t* held, int32_t num_chunks, bint may_begin_late) noexcept nogil:
    cdef int32_t first = 0, end
    while may_begin_late and first < num_chunks and not held[first]:
        first += 1
    end = first
    while end < num_chunks and held[end]:
        end += 1
    return end - first


def note_holders(Candidates candidates, holders, chunk_size, prompt_tokens, upstream_compat=False):
    """Note the hits of all candidates; holders: of each chunk, as indexes."""
    cdef int8_t[::1] held
    for i in range(candidates.count):
        held = np.array([*(i in each for each in holders), False], np.int8)
        hit_tokens = chunk_size * run_of_chunks(&held[0], <int32_t>len(holders), upstream_compat)
        note_hits(&candidates.items[<int32_t>i], prompt_tokens, hit_tokens, upstream_compat)
