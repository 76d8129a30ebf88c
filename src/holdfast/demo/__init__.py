"""`python -m holdfast.demo`: an agent that waits for a person, is killed in the middle of a payment, and pays once."""
