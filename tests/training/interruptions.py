"""Reporters that interrupt a run after a given step."""

from steerformer.training import Reporter


class PowerCutError(Exception):
    pass


def cut_power():
    raise PowerCutError


class InterruptAtStep(Reporter):
    """Calls ``action`` in the reporter of step ``at``, counted from the start of this process."""

    def __init__(self, at, action=cut_power):
        self.at, self.action, self.steps = at, action, 0

    def step(self, **_):
        self.steps += 1
        if self.steps == self.at:
            self.action()
