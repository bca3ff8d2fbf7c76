"""The timer against a device that is played: did the host queue all before the first event ran?"""

from types import SimpleNamespace

import pytest
import torch

from ffpa.measure.telemetry import Telemetry
from ffpa.measure.timer import MOST_QUEUE_CYCLES, QUEUE_CYCLES, CudaTimer


class Device:
    """Spins are noted; an event has run by the time of the query for as long as `late` says."""

    def __init__(self, late):
        self.late = late
        self.spins = []
        self.launches = 0

    def launch(self):
        self.launches += 1

    def query(self):
        return self.launches <= self.late

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
    device = Device(late=0)
    timer = timer_of(device)
    assert timer.sample(device.launch).ms == 1.0
    assert device.spins == [QUEUE_CYCLES]
    assert timer.flush_bytes == 1024


def test_a_late_host_is_sampled_again_with_a_longer_spin(timer_of):
    device = Device(late=2)
    timer = timer_of(device)
    assert timer.sample(device.launch).ms == 3.0
    timer.sample(device.launch)
    assert device.spins == [QUEUE_CYCLES, 2 * QUEUE_CYCLES, 4 * QUEUE_CYCLES, 4 * QUEUE_CYCLES]


def test_a_launch_that_waits_for_the_device_is_taken_as_it_is(timer_of):
    device = Device(late=100)
    timer = timer_of(device)
    timer.sample(device.launch)
    assert device.spins[-1] == MOST_QUEUE_CYCLES
    assert timer.sample(device.launch).ms == device.launches
