"""One module per framework, each imported only in the environment of its framework.

    grow(way, place, turns)      the work whose bytes and time are measured
    pause(way, place, turns)     after the turns, stop before a payment that needs an approval
    resume(way, place, turns)    approve it and go on, in another process

`way` is the name of a storage in `bench.adapters.pairs`. Everything is stored below `place`.
"""
