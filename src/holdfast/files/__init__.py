"""Durable files: system calls, durable operations made of them, and locks between processes."""
