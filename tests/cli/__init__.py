"""The command, run as a process of its own."""
