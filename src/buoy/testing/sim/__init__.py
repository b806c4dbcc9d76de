"""The simulator: several runners, sweepers and senders, the real engine, one seed. `python -m buoy.testing.sim`

Everything that could differ between two executions (time, order, ids, faults, what people do) comes from the seed, so a
seed that breaks a promise does so again, with the same story, byte for byte. A map of the package:

    kernel      virtual time and turns         process, worker, sender, operator   who takes part
    plan        what a seed is about           faults, hints, storage, host        what they stand on
    programs    random workflows as data       workflows                           the code that interprets them
    observed    what was acknowledged          witness, invariants, replays        what must hold
    mutants     planted bugs                   world, seed, story, command         from the beginning to the verdict
"""
