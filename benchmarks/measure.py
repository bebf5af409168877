"""Times and peak memory of functions."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import torch
from torch import Tensor

MIN_ROUNDS = 5
"""Rounds that a median needs, however long they take."""


@dataclass(frozen=True)
class Contestant:
    """A function without arguments that returns a tensor; with ``backward``, its backward pass runs as well."""

    name: str
    call: Callable[[], Tensor]
    backward: bool

    def run(self) -> None:
        if not self.backward:
            with torch.no_grad():
                self.call()
            return
        output = self.call()
        if output.is_complex():
            output = torch.view_as_real(output)
        output.backward(torch.ones_like(output))

    def time(self) -> float:
        """Seconds of one run."""
        start = time.perf_counter()
        self.run()
        return time.perf_counter() - start


def interleaved_times(
    contestants: list[Contestant], *, rounds: int, seconds: float, warmup: int = 1
) -> dict[str, list[float]]:
    """Seconds of every run of each contestant; see :func:`interleave`."""
    timers = {contestant.name: contestant.time for contestant in contestants}
    return interleave(timers, rounds=rounds, seconds=seconds, warmup=warmup)


def interleave(
    timers: dict[str, Callable[[], float]], *, rounds: int, seconds: float = float("inf"), warmup: int = 1
) -> dict[str, list[float]]:
    """All results of functions that time themselves, interleaved, so that load of the machine affects all equally.

    Ends after ``seconds``, but not before :data:`MIN_ROUNDS`. Results of the warm-up (caches, threads) are dropped.
    """
    found: dict[str, list[float]] = {name: [] for name in timers}
    for _ in range(warmup):
        for timer in timers.values():
            timer()
    end = time.perf_counter() + seconds
    for done in range(rounds):
        if done >= MIN_ROUNDS and time.perf_counter() > end:
            break
        for name, timer in timers.items():
            found[name].append(timer())
    return found


def median_ratio(times: list[float], baseline: list[float]) -> float:
    """Median over rounds of the ratio of two times of the same round."""
    return median(time / other for time, other in zip(times, baseline, strict=True))


def in_ms(times: dict[str, list[float]]) -> dict[str, list[float]]:
    """All rounds in milliseconds with four significant digits, for the results."""
    return {name: [float(f"{1e3 * seconds:.4g}") for seconds in rounds] for name, rounds in times.items()}


def peak_memory(run: Callable[[], object]) -> int:
    """Peak of the bytes that torch allocates during a run: results, what autograd keeps, temporaries of operators.

    Unlike the memory of the process, it does not depend on what the C library keeps or fragments.
    """
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # else the profiler prints whenever it starts
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        run()
    live = peak = 0
    for event in recorded.profiler.kineto_results.events():
        if event.name() == "[memory]":
            live += event.nbytes()
            peak = max(peak, live)
    return peak
