"""A folder of one's own with images and their masks, or volumes and their labels."""

import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from steerformer.data.base import DataError, Progress, Splits, ignore
from steerformer.data.config import PairsConfig
from steerformer.data.files import IMAGES, VOLUMES, kind_of
from steerformer.data.sources import Source, listed, load_sources, names_of, read_pair

_IMAGES = ("images", "imagesTr", "image")
_MASKS = ("masks", "labels", "labelsTr", "mask", "label")
_ENDINGS = ("", "_mask", "_masks", "_label", "_labels", "_seg", "_segmentation", "_lesion")
"""What the name of a mask may have after that of its image."""


@dataclass(frozen=True)
class Pairs:
    """Images and masks that belong together."""

    sources: tuple[Source, ...]
    kind: str
    classes: tuple[str, ...]
    where: Path

    def describe(self) -> str:
        """In a few words."""
        return f"{len(self.sources)} {self.kind}s with labels, the first {self.sources[0].name}, in {self.where}"


def load(config: PairsConfig, progress: Progress = ignore) -> Splits:
    """Images or volumes to train, validate and test on."""
    found = find(config)
    return load_sources(found.sources, found.classes, config, progress, where=found.where)


def find(config: PairsConfig) -> Pairs:
    """The pairs below ``root``; a :class:`DataError` that lists the names without a partner."""
    root = config.root
    advice = "a folder with images (or imagesTr) and masks (or labels, labelsTr) of the same names"
    if root is None:
        raise DataError(f"pairs needs a root: {advice}.")
    if not root.is_dir():
        raise DataError(f"there is no folder {root}; pairs needs {advice}.")
    places = [next((root / name for name in names if (root / name).is_dir()), None) for names in (_IMAGES, _MASKS)]
    if places[0] is None or places[1] is None:
        raise DataError(
            f"{root} should be {advice}, found {listed(sorted(p.name for p in root.iterdir())) or 'nothing'}."
        )
    images, masks = _by_stem(places[0]), _by_stem(places[1])
    modalities = _modalities(images, masks)
    matched = _matched(modalities, masks, places[0], places[1])
    classes = names_of(config.classes) if isinstance(config.classes, int) else config.classes
    sources = []
    for stem, mask in matched.items():
        files = modalities[stem]
        image = files[0] if len(files) == 1 else files
        sources.append(Source(stem, (*files, mask), partial(read_pair, image, mask, classes, config.channels)))
    kind = kind_of(sources[0].files[0])
    assert kind is not None
    return Pairs(tuple(sources), kind, classes, root)


def _by_stem(place: Path) -> dict[str, Path]:
    """The files of a folder by their names without endings."""
    found: dict[str, Path] = {}
    for path in sorted(place.iterdir()):
        if path.is_file() and kind_of(path):
            stem = path.name[: -len(next(end for end in (*IMAGES, *VOLUMES[::-1]) if path.name.lower().endswith(end)))]
            if stem in found:
                raise DataError(f"{found[stem]} and {path} have the same name; keep one.")
            found[stem] = path
    if not found:
        raise DataError(f"{place} is empty: no image ({', '.join(IMAGES)}) or volume ({', '.join(VOLUMES)}).")
    return found


def _modalities(images: dict[str, Path], masks: dict[str, Path]) -> dict[str, tuple[Path, ...]]:
    """The files of each case: one, or NAME_0000, NAME_0001 and so on if masks are called NAME."""
    numbered = [match for stem in images if (match := re.fullmatch(r"(.+)_(\d{4})", stem)) and stem not in masks]
    if len(numbered) < len(images) or not any(match[1] in masks for match in numbered):
        return {stem: (path,) for stem, path in images.items()}
    found: dict[str, tuple[Path, ...]] = {}
    for match in numbered:
        found[match[1]] = (*found.get(match[1], ()), images[match[0]])
    most = max(len(files) for files in found.values())
    for files in found.values():
        expected = [f"{number:04d}" for number in range(most)]
        got = [re.findall(r"_(\d{4})\.", path.name)[-1] for path in files]
        if got != expected:
            lacks = ", ".join(number for number in expected if number not in got)
            raise DataError(
                f"{files[0]} has modalities {', '.join(got)}, but lacks {lacks}: all have the same, from 0000."
            )
    return found


def _matched(
    images: dict[str, tuple[Path, ...]], masks: dict[str, Path], image_place: Path, mask_place: Path
) -> dict[str, Path]:
    """The mask of each image; names may differ by one ending that all masks have."""
    ending = max(_ENDINGS, key=lambda end: sum(f"{stem}{end}" in masks for stem in images))
    lone = [stem for stem in images if f"{stem}{ending}" not in masks]
    left = [stem for stem in masks if stem.removesuffix(ending) not in images]
    problems = []
    if lone:
        problems.append(f"no mask in {mask_place} for {listed(lone)}")
    if left:
        problems.append(f"no image in {image_place} for {listed(left)}")
    if problems:
        raise DataError(f"names do not match: {'; '.join(problems)}.")
    return {stem: masks[f"{stem}{ending}"] for stem in images}
