"""The runtime executes what the engine decides, on threads and event loops, against a store."""
