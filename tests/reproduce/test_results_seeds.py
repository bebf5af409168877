"""Runs of several seeds on the page of results."""

from reproduce.run_folders import write_run
from steerformer.reproduce import results
from steerformer.reproduce.results_seeds import seeds_section


def test_runs_that_differ_in_the_seed_only_are_summarized(tmp_path):
    """Oracle: 98 % and 96 % have mean 97 and standard deviation the square root of 2; other data are another row."""
    for seed, accuracy in enumerate((0.98, 0.96)):
        write_run(
            tmp_path / f"digits-{seed}", data={"name": "rotmnist", "test_rotation": "any"}, accuracy=accuracy, seed=seed
        )
    write_run(tmp_path / "fewer", data={"name": "rotmnist", "test_rotation": "any", "train": 100}, seed=5)
    section = seeds_section(results.collect(tmp_path))
    assert "| [digits-0](#digits-0) | accuracy | rotated in 2D | 2 | 97.00 ± 1.41 | 98.00, 96.00 |" in section
    assert "fewer" not in section
    assert seeds_section({"fewer": results.collect(tmp_path)["fewer"]}) == ""
