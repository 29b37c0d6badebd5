"""Where the KV of a text may lie, as seen by who chooses a replica: media is vLLM's word, in its KV events."""


cdef enum:
    DEVICE = 0                  # the KV cache of the replica, on its accelerators
    HOST = 1                    # its host memory
    DISK = 2                    # levels below that are its own
    SHARED = 3                  # stores that it shares with others
    NUM_MEDIA = 4
