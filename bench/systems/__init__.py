"""The systems under test, each behind the surface that `subject.py` describes."""
