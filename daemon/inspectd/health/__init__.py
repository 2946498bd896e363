"""Health: progress of every stage, what it means, and the watchdog that it feeds."""
