"""Child processes: supervision, messages, shared memory. Native code lives there and can be killed."""
