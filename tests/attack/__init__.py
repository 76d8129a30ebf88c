"""Random workflows under random actions and crashes, judged by oracles.

One integer seed gives a program (a tree of nodes that one workflow function interprets) and a list of actions from
outside. `python -m tests.attack --seed 7 --count 100 --store sqlite` runs them and prints a shrunk case for each
failure; `test_attack.py` is the slice of `make test`. Each known defect, put back, must be found (`mutants.py`).
"""
