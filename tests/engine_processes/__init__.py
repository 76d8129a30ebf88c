"""The engine in real processes: they are killed, stopped and drained, and others go on."""
