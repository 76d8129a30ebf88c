"""The JSON API under /api/v1. `operations` lists what it offers."""
