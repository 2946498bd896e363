"""The local door: HTTP over a unix socket, for people and programs on this PC who are in the daemon's group."""
