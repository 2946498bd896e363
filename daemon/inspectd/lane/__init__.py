"""A lane: one model's asynchronous queue. Bounded inboxes, requests in flight, time limits, retries."""
