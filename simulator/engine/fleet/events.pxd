"""What can happen in a cluster, in the order in which it does at one instant."""

cdef enum EventKind:            # kind and priority in one: at equal times the lowest goes first
    SAMPLE = 0                  # replicas are looked at: as they stand before anything happens at this instant
    OUTAGE = 1                  # a replica, node or link fails, slows down or recovers
    LIFECYCLE = 2               # a replica is ready, or its health becomes known
    TRANSFER = 3                # KV on its way from replica to replica has come, or begins to flow
    ARRIVAL = 4                 # a request comes; never in the queue, the workload has it
    ADMIT = 5                   # the admission policy decides
    ROUTE = 6                   # the router decides
    RECALL = 7                  # a request is taken off its replica for a more urgent one
    EXPIRE = 8                  # a request has waited too long at the gateway
    DISPATCH = 9                # the gateway tries to pass a request on: a tick
    SCALE = 10                  # the autoscaler looks
    ACTUATE = 11                # what it decided takes effect
    RESCHEDULE = 12             # the rescheduler looks
    MIGRATE = 13                # a stage of a migration ends
    HAND_OVER = 14              # that a prefill is done has become known to the router
    ENQUEUE = 15                # a request reaches the waiting queue of its replica
    TAKE_OFF = 16               # an iteration ends after which requests are taken off their replica
    REPLICAS = 17               # replicas act; never in the queue, it only shows that they do so between the two
    TIME_OUT = 18               # the client of a request gives up
    LEASE = 19                  # blocks that wait to be read have waited too long
    SHIFT = 20                  # the load of a replica's experts may have changed
    NUM_KINDS = 21
