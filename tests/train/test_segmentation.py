"""How models that label voxels are judged: in training, case by case, and over all cases."""

import csv
import math
from functools import partial

import pytest
import torch
from lightning_fabric import Fabric
from torch import nn
from torch.testing import assert_close

from steerformer.data import IGNORE, CasesConfig
from steerformer.data.base import ignore
from steerformer.data.sources import Labeled, Source, load_sources
from steerformer.train import TrainingConfig
from steerformer.train.cases import CaseResult, mean_score, report, standard_error, table
from steerformer.train.learner import Learner
from steerformer.train.overlap import Overlap
from steerformer.train.segmentation import Segmentation, judge_cases

CLASSES = ("background", "a", "b")


class Cases:
    """Volumes of several shapes whose first channel is the number of their label."""

    names = ("one", "two", "three")

    def __init__(self):
        self.labels = [torch.randint(0, 3, shape) for shape in ((4, 5, 6), (3, 3, 3), (6, 4, 2))]

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, number):
        return self.labels[number].float()[None], self.labels[number]

    def spacing(self, number):
        return (1.0, 1.0, 2.0)

    def present(self, number):
        return frozenset(self.labels[number].unique().tolist())


class Reader(nn.Module):
    """Says class ``seen[i]`` where the input is ``i``."""

    def __init__(self, seen=(0, 1, 2)):
        super().__init__()
        self.seen, self.scale, self.shapes = torch.tensor(seen), nn.Parameter(torch.tensor(10.0)), []

    def forward(self, x):
        assert not self.training
        self.shapes.append(tuple(x.shape))
        answers = self.seen[x[:, 0].long()]
        return self.scale * nn.functional.one_hot(answers, 3).movedim(-1, 1).float()


class Silent(nn.Module):
    """Says background everywhere."""

    def forward(self, x):
        return nn.functional.one_hot(torch.zeros_like(x[:, 0]).long(), 4).movedim(-1, 1).float()


def task(**changes):
    return Segmentation(TrainingConfig(**changes), CLASSES)


def fabric():
    return Fabric(accelerator="cpu", devices=1)


def test_a_tally_gives_dice_over_all_voxels():
    """Two batches, one of which does not count in part, against counting by hand."""
    pairs = [(torch.randn(2, 3, 5, 4), torch.randint(0, 3, (2, 5, 4))) for _ in range(2)]
    pairs[0][1][0, :2] = IGNORE
    sums = [0.0] * 4
    found = {1: [0, 0], 2: [0, 0]}
    for logits, labels in pairs:
        sums = [a + b for a, b in zip(sums, task().tally(logits, labels), strict=True)]
        for answer, label in zip(logits.argmax(1).flatten().tolist(), labels.flatten().tolist(), strict=True):
            for c in (1, 2) if label != IGNORE else ():
                found[c][0] += answer == label == c
                found[c][1] += (answer == c) + (label == c)
    assert task().mean(sums) == pytest.approx(sum(2 * right / size for right, size in found.values()) / 2)


def test_classes_that_are_nowhere_do_not_count_in_the_tally():
    labels = torch.tensor([[0, 1, 1, 0]])
    logits = nn.functional.one_hot(torch.tensor([[0, 1, 0, 0]]), 3).movedim(-1, 1).float()
    assert task().mean(task().tally(logits, labels)) == pytest.approx(2 / 3)
    assert task().mean(task().tally(logits[..., :1], labels[..., :1])) == 1.0


def test_a_step_learns_from_voxels_and_adds_up_its_parts(float64):
    model = nn.Conv2d(1, 3, 3, padding=1)
    config = TrainingConfig(devices=1, loss="cross_entropy+dice")
    student = Learner(fabric(), model, config, Segmentation(config, CLASSES))
    x, labels = torch.randn(4, 1, 6, 6), torch.randint(0, 3, (4, 6, 6))
    expected = student.task.loss(model(x), labels).item(), student.task.tally(model(x), labels)
    loss, tally = student.step([(x[:2], labels[:2]), (x[2:], labels[2:])], 0.1)
    assert loss == pytest.approx(expected[0], rel=1e-12) and tally == expected[1]
    assert student.task.loss(model(x), labels).item() < loss


def test_whole_cases_of_any_shape_are_judged_one_by_one():
    model, cases = Reader().train(), Cases()
    results = judge_cases(model, cases, range(3), classes=CLASSES, loss=task().loss, distances=False)
    assert [result.name for result in results] == list(cases.names)
    assert [shape[2:] for shape in model.shapes] == [tuple(labels.shape) for labels in cases.labels]
    assert all(found == Overlap("found", 1.0, None) for result in results for found in result.classes.values())
    entropy = -math.log(math.exp(10) / (math.exp(10) + 2))
    assert [result.loss for result in results] == pytest.approx([entropy] * 3, rel=1e-3)
    assert model.training and model.scale.grad is None


def test_a_split_is_judged_by_the_mean_over_its_cases():
    cases = Cases()
    found = task(loss="dice").judge(fabric(), Reader((0, 2, 2)), cases)
    shares = []
    for labels in cases.labels:
        a, b = (int((labels == c).sum()) for c in (1, 2))
        shares.append((0.0 + 2 * b / (a + 2 * b)) / 2)  # a is taken for b
    assert found.score == pytest.approx(sum(shares) / 3)
    assert found.figures == {} and found.table is None and found.loss > 0.3


def test_another_way_to_predict_is_taken_and_who_watches_sees_the_labels():
    seen = []
    results = judge_cases(
        Reader(),
        Cases(),
        [2],
        classes=CLASSES,
        distances=False,
        predict=lambda model, x: -model(x[None])[0],
        watch=lambda number, labels, result: seen.append((number, labels, result)),
    )
    ((number, labels, result),) = seen
    assert number == 2 and result is results[0] and labels.shape == (6, 4, 2) and result.loss == 0.0
    assert not ((labels == Cases().labels[2]) & (labels > 0)).all()


@pytest.mark.parametrize("settings", [{"spacing": 4.0}, {"crop": 0}], ids=["resampled", "cropped"])
def test_what_preparing_takes_from_the_truth_is_missed_and_what_was_never_there_is_absent(tmp_path, settings):
    """One voxel of edema where the scan is dark, in the second of two cases; it also belongs to the whole tumour."""
    classes = ("background", "edema", "necrosis", "enhancing")
    x = torch.zeros(1, 16, 16, 16)
    x[:, :12] = 1.0
    sources = []
    for name in ("empty", "spot"):
        labels = torch.zeros(16, 16, 16, dtype=torch.uint8)
        labels[13, 0, 0] = name == "spot"
        (tmp_path / name).touch()
        sources.append(Source(name, (tmp_path / name,), partial(Labeled, x, labels, (1.0, 1.0, 1.0))))
    config = CasesConfig(normalize="none", train=1, validation=0, test=1, **settings)
    found = {}
    for seed in range(4):  # each is tested on under some seed
        splits = load_sources(sources, classes, config.model_copy(update={"seed": seed}), ignore, where="here")
        assert not splits.test[0][1].any()  # nothing of the spot is left
        (result,) = judge_cases(Silent(), splits.test, [0], classes=classes, distances=False)
        found[result.name] = {**result.classes, "whole": result.regions["whole"], "core": result.regions["core"]}
    missed, absent = Overlap("missed", 0.0, None), Overlap("absent", None, None)
    assert set(found["empty"].values()) == {absent}
    expected = dict.fromkeys(("edema", "whole"), missed) | dict.fromkeys(("necrosis", "enhancing", "core"), absent)
    assert found["spot"] == expected


def test_logits_that_are_no_numbers_are_seen():
    model = Reader()
    assert task().is_sound(model, Cases())
    model.scale.data.fill_(math.nan)
    assert not task().is_sound(model, Cases())


RESULTS = [
    CaseResult("p1", 0.0, {"a": Overlap("found", 0.8, 2.0), "b": Overlap("found", 0.6, 4.0)}, {}),
    CaseResult("p2", 0.0, {"a": Overlap("found", 0.6, 3.0), "b": Overlap("missed", 0.0, None)}, {}),
    CaseResult("p3", 0.0, {"a": Overlap("invented", 0.0, None), "b": Overlap("absent", None, None)}, {}),
    CaseResult("p4", 0.0, {"a": Overlap("absent", None, None), "b": Overlap("absent", None, None)}, {}),
]


def test_what_is_missed_or_invented_counts_and_is_named():
    found = report(RESULTS)
    assert found["cases"] == 4 and found["dice"] == pytest.approx((0.7 + 0.3 + 0.0) / 3)
    assert found["hd95"] == pytest.approx((3.0 + 3.0) / 2)
    assert (found["missed"], found["invented"]) == (1, 1)
    a, b = found["structures"]["a"], found["structures"]["b"]
    assert (a["cases"], a["invented"], a["missed"]) == (3, ("p3",), ())
    assert (b["cases"], b["invented"], b["missed"]) == (2, (), ("p2",))
    assert a["dice"] == pytest.approx(1.4 / 3) and b["dice"] == pytest.approx(0.3)
    assert a["hd95"] == pytest.approx(2.5) and b["hd95"] == 4.0 and b["hd95_error"] is None


def test_errors_are_those_of_a_mean():
    values = torch.rand(7).double()
    assert standard_error(values.tolist()) == pytest.approx(values.std().item() / math.sqrt(7))
    assert standard_error([1.0]) is None
    assert_close(mean_score(RESULTS), 1 / 3)
    assert mean_score(RESULTS[3:]) == 1.0


def test_the_table_has_a_line_for_each_case_and_says_why_a_distance_is_not_there():
    rows = list(csv.DictReader(table(RESULTS).splitlines()))
    assert [row["case"] for row in rows] == ["p1", "p2", "p3", "p4"]
    assert [row["a dice"] for row in rows] == ["0.8", "0.6", "0", ""]
    assert [row["a hd95"] for row in rows] == ["2", "3", "invented", ""]
    assert [row["b hd95"] for row in rows] == ["4", "missed", "", ""]
    assert [row["dice"] for row in rows] == ["0.7", "0.3", "0", ""]


def test_a_class_and_a_region_of_one_name_have_columns_of_their_own():
    classes, joined = ({"core": Overlap("found", dice, 1.0)} for dice in (0.25, 0.75))
    (row,) = csv.DictReader(table([CaseResult("p1", 0.0, classes, joined)]).splitlines())
    assert (row["dice"], row["core dice"], row["region core dice"]) == ("0.25", "0.25", "0.75")
