"""The simulator: several runners, sweepers, senders and operators, the real engine, one seed.
`python -m simulator`

Everything that could differ between two executions (time, order, ids, faults, what people do) comes from the seed. So a
seed that breaks a promise does so again, with the same story, byte for byte. Everything in a story has a name, so that
`--shrink` can leave out what does not matter. A map of the package:

    kernel, hints, storage, host, faults       what everything stands on
    process, worker, lookout, sender, operator who takes part
    plan, planning, widening                   what a seed is about, and how it is drawn
    agenda, upkeep                             what happens when, and what people do for the store as a whole
    programs, specs                            random workflows as data, and random graphs
    workflows, async_code, sync_code, steps    the code that interprets them, in several releases
    observed, witness, evidence                what was acknowledged and executed: all that is known of a run
    invariants, conduct, replays, timetables   what must hold of a log, of effects and people, of replays, of schedules
    rest                                       whether a run may stay as it is
    mutants, *_mutants, planted                planted bugs
    world, seed                                from beginning to verdict
    shrink, story, totals, command             how a seed is shortened, shown and counted
"""
