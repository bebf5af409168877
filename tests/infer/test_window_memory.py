"""Peak memory of a model by window size."""

import pytest

from infer.networks import Local
from steerformer import SO2, SO3
from steerformer.infer import WindowMemory


def test_peak_memory_covers_the_largest_feature_maps():
    """32 channels of 48^3 voxels in float32, one map from the convolution and one from the ReLU."""
    model = Local(SO3, width=32)
    window_memory = WindowMemory(model)
    window_memory.calibrate((48, 48, 48), lambda: 48**3, 2**33)
    least = 2 * 32 * 4 * 48**3
    assert least <= window_memory.predict(48**3) <= 4 * least
    assert max(window_memory.measured) * 8 >= 48**3 > max(window_memory.measured)


def test_peak_memory_is_interpolated_between_measurements():
    window_memory = WindowMemory(Local(SO2))
    window_memory.measured = {100: 1000, 300: 2000}
    found = [window_memory.predict(voxels) / 1.5 for voxels in (10, 100, 200, 300, 900)]
    assert found == pytest.approx([1000, 1000, 1500, 2000, 6000], rel=1e-2)


def test_outputs_of_all_layers_count_where_memory_is_not_reported(monkeypatch):
    monkeypatch.setattr("steerformer.infer.window_memory.measure_peak", lambda work: None)
    model = Local(SO2, reach=0, stride=1)
    window_memory = WindowMemory(model)
    window_memory.measure((10, 10))
    channels = 1 + 1 + 4 + 3 + 3  # pool, up, first, last, and the model itself
    assert window_memory.measured == {100: 4 * 100 * channels}
