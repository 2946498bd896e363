"""The demo: simulated line → the daemon itself → embedded broker → a table to look at. Outside of the daemon."""
