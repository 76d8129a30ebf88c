"""The operations of a store, each composed once of methods of the port and of encodings.

An operation is a *plan*: a generator that yields a read (a function) or a commit and receives its result. A blocking
and an async driver execute plans; they are internal.
"""
