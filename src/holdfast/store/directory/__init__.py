"""Runs as files that people can read, in one directory."""
