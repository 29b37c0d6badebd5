"""Base of a stage that requests go through before the gateway queue, not behind it."""


cdef class FrontStage(Stage):
    """Base of such stages.

    A stage passes a request that it held back on with `Gateway.return_to_gateway`.
    """
