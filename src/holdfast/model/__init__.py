"""What there is: runs, checkpoints, commits. Data without behaviour, known to every layer above."""
