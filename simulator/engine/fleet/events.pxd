"""What can happen in a cluster, in the order in which it does at one instant."""

cdef enum EventKind:            # kind and priority in one: at equal times the lowest goes first
    SAMPLE = 0                  # replicas are looked at: as they stand before anything happens at this instant
    OUTAGE = 1                  # a replica, node or link fails, slows down or recovers
    LIFECYCLE = 2               # a replica is ready, or its health becomes known
    TRANSFER = 3                # KV on its way from replica to replica has come, or begins to flow
    ENCODE = 4                  # a replica that encodes ends a batch, or embeddings of one have come
    ARRIVAL = 5                 # a request comes; never in the queue, the workload has it
    ADMIT = 6                   # the admission policy decides
    ROUTE = 7                   # the router decides
    RECALL = 8                  # a request is taken off its replica for a more urgent one
    EXPIRE = 9                  # a request has waited too long at the gateway
    DISPATCH = 10               # the gateway tries to pass a request on: a tick
    SCALE = 11                  # the autoscaler looks
    ACTUATE = 12                # what it decided takes effect
    RESCHEDULE = 13             # the rescheduler looks
    MIGRATE = 14                # a stage of a migration ends
    HAND_OVER = 15              # that a prefill is done has become known to the router
    FRONT_END = 16              # requests have been rendered, checked and tokenized
    ENQUEUE = 17                # a request reaches the waiting queue of its replica
    TAKE_OFF = 18               # an iteration ends after which requests are taken off their replica
    REPLICAS = 19               # replicas act; never in the queue, it only shows that they do so between the two
    ENCODERS = 20               # a replica that encodes begins a batch, of all that has come at this instant
    TIME_OUT = 21               # the client of a request gives up
    LEASE = 22                  # blocks that wait to be read have waited too long
    SHIFT = 23                  # the load of a replica's experts may have changed
    NUM_KINDS = 24
