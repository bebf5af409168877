"""A folder with images and their masks, or volumes and their label maps, matched by name."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from steerformer.data.cases import CaseFiles, class_names, load_cases, read_labeled_scan, shorten
from steerformer.data.config import PairsConfig
from steerformer.data.dataset import Progress, Splits, no_progress
from steerformer.io.errors import DataError
from steerformer.io.formats import IMAGE_SUFFIXES, VOLUME_SUFFIXES, file_kind, split_suffix
from steerformer.io.modalities import match_modalities

_IMAGE_FOLDERS = ("images", "imagesTr", "image")
_MASK_FOLDERS = ("masks", "labels", "labelsTr", "mask", "label")
_MASK_ENDINGS = ("", "_mask", "_masks", "_label", "_labels", "_seg", "_segmentation", "_lesion")
"""What may follow the name of an image in the name of its mask."""


@dataclass(frozen=True)
class Pairs:
    """Cases found in a folder."""

    cases: tuple[CaseFiles, ...]
    kind: str
    classes: tuple[str, ...]
    where: Path

    def describe(self) -> str:
        """One line for users."""
        return f"{len(self.cases)} {self.kind}s with labels, the first {self.cases[0].name}, in {self.where}"


def load(config: PairsConfig, progress: Progress = no_progress) -> Splits:
    """Training, validation and test sets."""
    found = find(config)
    return load_cases(found.cases, found.classes, config, progress, where=found.where)


def find(config: PairsConfig) -> Pairs:
    """The cases below ``root``; a :class:`DataError` that lists the names without a partner."""
    root = config.root
    layout = "a folder with images (or imagesTr) and masks (or labels, labelsTr) of the same names"
    if root is None:
        raise DataError(f"pairs needs a root: {layout}.")
    if not root.is_dir():
        raise DataError(f"there is no folder {root}; pairs needs {layout}.")
    folders = (_IMAGE_FOLDERS, _MASK_FOLDERS)
    places = [next((root / name for name in names if (root / name).is_dir()), None) for names in folders]
    if places[0] is None or places[1] is None:
        found = shorten(sorted(path.name for path in root.iterdir()))
        raise DataError(f"{root} should be {layout}, found {found or 'nothing'}.")
    images, masks = _files_by_stem(places[0]), _files_by_stem(places[1])
    modalities = match_modalities(images, masks)
    classes = class_names(config.classes) if isinstance(config.classes, int) else config.classes
    cases = []
    for name, mask in _match_masks(modalities, masks, places[0], places[1]).items():
        files = modalities[name]
        image = files[0] if len(files) == 1 else files
        read = partial(read_labeled_scan, image, mask, classes, config.channels)
        cases.append(CaseFiles(name, (*files, mask), read))
    kind = file_kind(cases[0].files[0])
    assert kind is not None
    return Pairs(tuple(cases), kind, classes, root)


def _files_by_stem(folder: Path) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        if path.is_file() and file_kind(path):
            stem, _ = split_suffix(path.name)
            if stem in found:
                raise DataError(f"{found[stem]} and {path} have the same name; keep one.")
            found[stem] = path
    if not found:
        raise DataError(
            f"{folder} is empty: no image ({', '.join(IMAGE_SUFFIXES)}) or volume ({', '.join(VOLUME_SUFFIXES)})."
        )
    return found


def _match_masks(
    images: dict[str, tuple[Path, ...]], masks: dict[str, Path], image_folder: Path, mask_folder: Path
) -> dict[str, Path]:
    """The mask of each image; names may differ by one ending that all masks share."""
    ending = max(_MASK_ENDINGS, key=lambda end: sum(f"{stem}{end}" in masks for stem in images))
    without_mask = [stem for stem in images if f"{stem}{ending}" not in masks]
    without_image = [stem for stem in masks if stem.removesuffix(ending) not in images]
    problems = []
    if without_mask:
        problems.append(f"no mask in {mask_folder} for {shorten(without_mask)}")
    if without_image:
        problems.append(f"no image in {image_folder} for {shorten(without_image)}")
    if problems:
        raise DataError(f"names do not match: {'; '.join(problems)}.")
    return {stem: masks[f"{stem}{ending}"] for stem in images}
