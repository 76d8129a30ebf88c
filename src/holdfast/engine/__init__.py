"""Decides what happens next: pure, without clock, files, threads or `await`."""
