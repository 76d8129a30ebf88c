"""What users call: compositions of a store's verbs and the state's encoding, each written once.

A verb is a *plan*: a generator that yields a read (a function) or a commit and is given its result. A blocking driver
and an awaiting driver carry plans out; nobody outside sees one.
"""
