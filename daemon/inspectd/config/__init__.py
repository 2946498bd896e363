"""The configuration: its schema, reading it with line numbers, checking it, and the plan that follows from it."""
