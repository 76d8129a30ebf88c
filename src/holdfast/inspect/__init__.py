"""Reports on runs and stores, as data: timeline, status, health. Nothing here writes or prints."""
