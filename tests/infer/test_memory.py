"""Memory of a process as the system reports it, and limits as users write them."""

import numpy as np
import pytest

from steerformer.infer import free_memory, parse_bytes
from steerformer.infer.memory import format_bytes, measure_peak, memory_budget, peak_memory, resident


@pytest.mark.parametrize("text", ["", "G", "two", "-1G", "0", "0G", "1GG", "1 P", "nan", "2,5G"])
def test_invalid_sizes_are_rejected(text):
    with pytest.raises(ValueError, match="such as 2G or 800M, got"):
        parse_bytes(text)


def test_sizes_are_parsed_and_formatted():
    assert [parse_bytes(text) for text in ("7", "2k", "1.5M", "3 GiB", "1tb")] == [
        7, 2048, 3 * 2**19, 3 * 2**30, 2**40,
    ]  # fmt: skip
    assert [format_bytes(n) for n in (1, 2**20, 1.5 * 2**30)] == ["1M", "1M", "1.5G"]


def test_peak_lower_than_an_earlier_one_is_measured():
    sizes = (6 * 10**7, 3 * 10**7)
    peaks = [measure_peak(lambda n=n: np.ones(n, dtype=np.uint8).sum()) for n in sizes]
    if peaks[0] is None:
        pytest.skip("this system does not let a process reset its peak")
    assert all(0.95 * n <= peak <= 1.1 * n for n, peak in zip(sizes, peaks, strict=True))
    assert measure_peak(lambda: None) < 10**6
    assert peak_memory() >= resident() + 0.9 * max(peaks)  # the earlier peak counts


@pytest.mark.parametrize(
    ("allowed", "taken", "expected"),
    [("5000", "2000", 3500), ("1000", "2000", 0), ("max", "2000", 8192), ("99999", "2000", 8192), (None, None, 8192)],
)
def test_free_memory_respects_the_limit_of_a_container(tmp_path, monkeypatch, allowed, taken, expected):
    (tmp_path / "_MACHINE").write_text("MemTotal: 16 kB\nMemAvailable:    8 kB\n")
    (tmp_path / "_KINDS").write_text("file 900\ninactive_file 300\nactive_file 200\nactive_anon 70\n")
    for name, text in (("_ALLOWED", allowed), ("_TAKEN", taken)):
        if text is not None:
            (tmp_path / name).write_text(f"{text}\n")
    for name in ("_MACHINE", "_ALLOWED", "_TAKEN", "_KINDS"):
        monkeypatch.setattr(f"steerformer.infer.memory.{name}", tmp_path / name)
    assert free_memory() == expected


def test_memory_budget_is_resident_plus_most_of_the_free_memory(monkeypatch):
    monkeypatch.setattr("steerformer.infer.memory.resident", lambda: 300)
    monkeypatch.setattr("steerformer.infer.memory.free_memory", lambda: 1000)
    assert memory_budget() == 1100
    monkeypatch.setattr("steerformer.infer.memory.free_memory", lambda: None)
    assert memory_budget() is None


def test_resident_memory_counts_new_arrays():
    before = resident()
    if not before:
        pytest.skip("this system does not report memory")
    kept = np.ones(5 * 10**7, dtype=np.uint8)
    assert 0.9 * len(kept) < resident() - before < 1.1 * len(kept)
    assert free_memory() is None or free_memory() > 0
