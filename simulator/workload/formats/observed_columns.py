"""The columns of observed.csv: one client's measurements of each request to a real server.

Written by `observe` and `import`, read by the trace format `observed` and by `calibrate`. Times are seconds after the
first planned request. An empty cell means: not measured, or did not happen; it is never replaced by a zero.
`import` adds a column `prompt`, as in a native trace, if a source gives shared parts.
"""
COLUMNS = (
    "request_id",
    "planned_s",                # sending time in the workload
    "sent_s",                   # just before it is written to the connection
    "ttft_s",                   # from sent_s to the first token
    "e2el_s",                   # from sent_s to the last token
    "first_message_s",          # from sent_s to the first message, which may hold no token
    "input_tokens",
    "output_tokens",
    "cached_tokens",            # of the prompt, as reported by the server
    "messages",                 # of the stream, with tokens in them
    "batched",                  # number of messages read together with the message before
    "status",                   # "ok", or the kind of failure
    "error",                    # message of the server or the connection
    "finish_reason",
    "session",
    "round",
)
