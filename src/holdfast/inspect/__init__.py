"""Looking at runs: where they stand and what they did, as data. Nothing here writes, prints or asks."""
