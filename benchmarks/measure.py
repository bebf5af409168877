"""Time and peak memory of functions, measured in one process."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


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


def interleaved_times(
    contestants: list[Contestant], *, rounds: int, seconds: float = 10.0, warm: bool = True
) -> dict[str, float]:
    """Best time of each, interleaved, so that load of the machine affects all equally."""
    best = {contestant.name: float("inf") for contestant in contestants}
    for contestant in contestants if warm else ():
        contestant.run()  # caches, lazy constants, threads
    end = time.perf_counter() + seconds
    for done in range(rounds):
        for contestant in contestants:
            start = time.perf_counter()
            contestant.run()
            best[contestant.name] = min(best[contestant.name], time.perf_counter() - start)
        if time.perf_counter() > end and done >= 2:
            break
    return best


def peak_memory(contestant: Contestant) -> int:
    """Peak of the bytes that a run allocates: forward, backward, and temporaries of operators."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # else the profiler prints whenever it starts
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        contestant.run()
    live = peak = 0
    for event in recorded.profiler.kineto_results.events():
        if event.name() == "[memory]":
            live += event.nbytes()
            peak = max(peak, live)
    return peak
