"""The timer against a device that is played: did the host queue all before the first event ran?"""

from types import SimpleNamespace

import pytest
import torch

from ffpa.measure.telemetry import State, Telemetry
from ffpa.measure.timer import MOST_QUEUE_CYCLES, QUEUE_CYCLES, CudaTimer, Sample


class Device:
    """Spins are noted; a launch finds the host late while `late` is true of its number and spin."""

    def __init__(self, late):
        self.late = late
        self.spins = []
        self.launches = 0

    def launch(self):
        self.launches += 1

    def query(self):
        return self.late(self.launches, self.spins[-1])

    def record(self):
        pass

    def synchronize(self):
        pass

    def elapsed_time(self, end):
        return float(self.launches)


@pytest.fixture
def timer_of(monkeypatch):
    def make(device):
        cuda = torch.cuda
        properties = SimpleNamespace(L2_cache_size=512)
        monkeypatch.setattr(cuda, "get_device_properties", lambda where: properties)
        monkeypatch.setattr(cuda, "Event", lambda enable_timing: device)
        monkeypatch.setattr(cuda, "_sleep", device.spins.append)
        return CudaTimer(torch.device("cpu"), Telemetry(None), cold=True)

    return make


def test_a_host_in_time_is_sampled_once(timer_of):
    device = Device(late=lambda number, spin: False)
    timer = timer_of(device)
    assert timer.sample(device.launch) == Sample(1.0, State())
    assert device.spins == [QUEUE_CYCLES]
    assert timer.flush_bytes == 1024


def test_a_host_that_was_late_once_is_given_the_same_spin_again(timer_of):
    device = Device(late=lambda number, spin: number == 1)
    timer = timer_of(device)
    assert timer.sample(device.launch) == Sample(2.0, State(), repeated=1)
    assert device.spins == [QUEUE_CYCLES] * 2


def test_a_slow_host_gets_the_spin_that_it_needs_and_keeps_it_for_all(timer_of):
    device = Device(late=lambda number, spin: spin < 4 * QUEUE_CYCLES)
    timer = timer_of(device)
    assert timer.sample(device.launch) == Sample(5.0, State(), repeated=4)
    assert timer.sample(lambda: device.launch()) == Sample(6.0, State())
    assert device.spins == [QUEUE_CYCLES * factor for factor in (1, 1, 2, 2, 4, 4)]


def test_a_launch_that_waits_for_the_device_is_marked_and_costs_the_others_nothing(timer_of):
    waiting = True
    device = Device(late=lambda number, spin: waiting)
    timer = timer_of(device)
    first = timer.sample(device.launch)
    assert first.late and first.repeated == len(device.spins) - 1
    assert max(device.spins) == MOST_QUEUE_CYCLES
    tried = len(device.spins)
    assert timer.sample(device.launch) == Sample(device.launches, State(), late=True)
    assert len(device.spins) == tried + 1  # it is not tried again and again
    waiting = False
    assert not timer.sample(lambda: device.launch()).late
    assert device.spins[-1] == QUEUE_CYCLES
