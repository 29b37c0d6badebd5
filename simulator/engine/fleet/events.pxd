"""Kinds of events in a cluster, in the order in which they are handled at one instant."""

cdef enum EventKind:            # kind and priority in one: at equal times the lowest goes first
    SAMPLE = 0                  # replicas are sampled, in the state before anything else happens at this instant
    OUTAGE = 1                  # a replica, node or link fails, slows down or recovers
    LIFECYCLE = 2               # a replica is ready, or its health becomes known
    TRANSFER = 3                # KV sent from one replica to another has arrived, or begins to flow
    ENCODE = 4                  # an encoder replica ends a batch, or an item's embeddings have arrived
    ARRIVAL = 5                 # a request arrives; in the queue only if sent again: the workload holds arrivals
    ADMIT = 6                   # the admission policy decides
    ROUTE = 7                   # the router decides
    RECALL = 8                  # a request is taken off its replica in favour of a more urgent one
    EXPIRE = 9                  # a request has waited too long at the gateway
    DISPATCH = 10               # the gateway tries to pass a request on: a tick
    SCALE = 11                  # the autoscaler evaluates its signals
    ACTUATE = 12                # the autoscaler's decision takes effect
    RESCHEDULE = 13             # the rescheduler looks
    MIGRATE = 14                # a stage of a migration ends
    HAND_OVER = 15              # the router is notified that a prefill is done
    FRONT_END = 16              # requests have been rendered, checked and tokenized
    ENQUEUE = 17                # a request reaches the waiting queue of its replica
    TAKE_OFF = 18               # an iteration ends, after which requests are taken off their replica
    REPLICAS = 19  # replicas act; never in the queue: it marks their place between the kinds above and below
    ENCODERS = 20               # an encoder replica begins a batch of all items that arrived by this instant
    TIME_OUT = 21               # the client of a request gives up
    LEASE = 22                  # the KV lease of blocks that wait to be read expires
    SHIFT = 23                  # the load of a replica's experts may have changed
    CALL = 24                   # an operation that is written in Python is called
    FORWARD = 25                # a request reaches the gateway of another region; pushed with the priority of ROUTE
    NUM_KINDS = 26
