"""The columns of observed.csv: what one client saw of each request to a real server.

Written by `observe` and `import`, read by the trace format `observed` and by `calibrate`. Times are seconds after the
first planned request. An empty cell is a thing that was not measured, or did not happen: never a zero in its place.
"""
COLUMNS = (
    "request_id",
    "planned_s",                # when the workload wants it sent
    "sent_s",                   # just before it is written to the connection
    "ttft_s",                   # from sent_s to the first token
    "e2el_s",                   # from sent_s to the last token
    "first_message_s",          # from sent_s to the first message, which may hold no token
    "input_tokens",
    "output_tokens",
    "cached_tokens",            # of the prompt, as the server tells
    "messages",                 # of the stream, that hold tokens
    "batched",                  # of them, those that came in one read with the one before
    "status",                   # "ok", or the kind of failure
    "error",                    # what the server or the connection said
    "finish_reason",
    "session",
    "round",
)
