"""The PostgreSQL store, on real servers that these tests start and end themselves."""
