"""Fault injection: what Holdfast promises, while processes die, disks fail and workers are stopped.

Each harness is a module with `run(…, seed, mutant=None) -> Figures` and `MUTANTS`: the deliberately broken variants it
must catch, each with the problems by which it is to be caught, because any other problem would be a coincidence.
`python -m tests.faults` runs them all; each module begins with what it proves.
"""
