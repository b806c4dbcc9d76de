"""The kernel keeps asyncio's order within a process, any order between processes, and nothing of the dead."""

from __future__ import annotations

import asyncio

from simulator.kernel import Kernel, SimLoop, bury_loops


def _kernel(seed: int = 1) -> Kernel:
    return Kernel(f"seed {seed}", turns_max=10_000)


def _troubles(kernel: Kernel, name: str = "p") -> tuple[SimLoop, list[str]]:
    told: list[str] = []
    return kernel.make_loop(name, told.append), told


def _run(kernel: Kernel, until: float = 100.0) -> None:
    kernel.run_until(lambda: False, until)


def test_callbacks_of_one_process_keep_their_order() -> None:
    kernel = _kernel()
    loop, _ = _troubles(kernel)
    seen: list[int] = []
    for number in range(50):
        loop.call_soon(seen.append, number)
    _run(kernel)
    assert seen == list(range(50))


def test_callbacks_of_two_processes_mix_as_the_seed_says() -> None:
    def mixed(seed: int) -> str:
        kernel = _kernel(seed)
        seen: list[str] = []
        for name in "ab":
            loop, _ = _troubles(kernel, name)
            for _ in range(20):
                loop.call_soon(seen.append, name)
        _run(kernel)
        return "".join(seen)

    assert mixed(1) == mixed(1)
    assert len({mixed(seed) for seed in range(20)}) > 10


def test_time_moves_only_when_nobody_is_ready() -> None:
    kernel = _kernel()
    loop, _ = _troubles(kernel)
    seen: list[float] = []

    async def sleeper() -> None:
        for span_s in (5.0, 0.0, 2.5):
            await asyncio.sleep(span_s)
            seen.append(kernel.time)

    kernel.spawn(loop, sleeper())
    _run(kernel)
    assert seen == [5.0, 5.0, 7.5]


def test_a_dead_process_runs_nothing_not_even_its_clean_up() -> None:
    kernel = _kernel()
    loop, _ = _troubles(kernel)
    seen: list[str] = []

    async def victim() -> None:
        try:
            await asyncio.sleep(1.0)
            seen.append("survived")
        finally:
            seen.append("cleaned up")

    kernel.spawn(loop, victim())
    kernel.at(0.5, loop.kill)
    _run(kernel)
    loop.call_soon(seen.append, "from beyond")
    _run(kernel)
    assert seen == []
    bury_loops(kernel)


def test_a_frozen_process_goes_on_where_it_was() -> None:
    kernel = _kernel()
    loop, _ = _troubles(kernel)
    seen: list[float] = []

    async def sleeper() -> None:
        await asyncio.sleep(1.0)
        seen.append(kernel.time)

    def freeze() -> None:
        loop.frozen = True

    def thaw() -> None:
        loop.frozen = False
        loop.ripen(kernel.time)

    kernel.spawn(loop, sleeper())
    kernel.at(0.5, freeze)
    kernel.at(9.0, thaw)
    _run(kernel)
    assert seen == [9.0]


def test_a_named_loop_that_dies_of_an_error_is_told() -> None:
    kernel = _kernel()
    loop, told = _troubles(kernel)

    async def broken() -> None:
        raise ValueError("oh")

    loop.create_task(broken(), name="buoy-journal")
    _run(kernel)
    assert told == ["the loop buoy-journal died of ValueError('oh')"]


def test_a_simulation_without_end_is_ended() -> None:
    kernel = Kernel("seed", turns_max=100)
    loop, _ = _troubles(kernel)

    def again() -> None:
        loop.call_soon(again)

    again()
    _run(kernel)
    assert kernel.exhausted
