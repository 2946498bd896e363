"""What leaves the daemon: messages as the contract words them, the outbox that keeps them, and the broker."""
