"""Golden data: every stored format as earlier versions wrote it, and tests that it can still be read and used."""
