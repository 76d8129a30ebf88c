"""The engine decides the next step of a run: pure, without clock, files, threads or `await`."""
