"""The page in a real browser. Without chromium these tests are skipped."""
