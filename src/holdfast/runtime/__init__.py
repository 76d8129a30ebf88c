"""The runtime: carries out what the engine decides, on threads and event loops, against a store."""
