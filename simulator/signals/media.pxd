"""Media that hold the KV of a text, from a router's point of view: vLLM's word, in its KV events."""


cdef enum:
    DEVICE = 0                  # the KV cache of the replica, on its accelerators
    HOST = 1                    # its host memory
    DISK = 2                    # levels below that are its own
    SHARED = 3                  # stores that it shares with others
    NUM_MEDIA = 4
