"""Storages of agent frameworks beside Holdfast's adapters for them, with the same work: `make bench-adapters`."""
