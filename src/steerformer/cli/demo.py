"""``steerformer demo``."""

from rich.table import Table

from steerformer.cli.console import console


def demo() -> None:
    """Show, in a few seconds, how well steerable kernels turn on a pixel grid.

    For each degree kernels look at smooth images and at the same images turned by 17 degrees. An exactly steerable
    kernel would give the turned response; the table says how far off the best ring, or the purest kernel, is.
    """
    from steerformer.groups import SO2
    from steerformer.kernels import FAMILIES
    from steerformer.reproduce.kernels_page import best_kernel_error

    table = Table("degree", *FAMILIES, title="Best 5x5 kernel of each degree: relative error at 17 degrees")
    for degree in range(5):
        errors = (best_kernel_error(SO2, family, degree) for family in FAMILIES)
        table.add_row(str(degree), *(f"{error:.1e}" for error in errors))
    console.print(table)
    console.print("Measured on 128 smooth images. At quarter turns all three are exact.")
    console.print("More: 'steerformer reproduce kernels', docs/kernels.md, docs/theory.md")
