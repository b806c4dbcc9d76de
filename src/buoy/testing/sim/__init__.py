"""The simulator: several runners, sweepers, senders and operators, the real engine, one seed.
`python -m buoy.testing.sim`

Everything that could differ between two executions (time, order, ids, faults, what people do) comes from the seed, so a
seed that breaks a promise does so again, with the same story, byte for byte; and everything in it has a name, so that a
story can be told without what does not matter. A map of the package:

    kernel      virtual time and turns         process, worker, sender, operator   who takes part
    plan        what a seed is about           faults, hints, storage, host        what they stand on
    agenda      what happens when              observed, witness                   what was acknowledged and executed
    programs    random workflows as data       specs                               and random graphs
    workflows   the code that interprets them  async_code, sync_code, steps        in several releases
    invariants  what must hold of a log        conduct, replays                    of effects, people and replays
    mutants     what a planted bug is          store_, inbox_, engine_mutants      those that there are (`planted`)
    world, seed from beginning to verdict      shrink, story, totals, command      how it is told
"""
