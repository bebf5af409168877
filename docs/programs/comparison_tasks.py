"""The tasks of docs/comparison.md: what is to be done, and how the libraries differ in doing it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Task:
    """One task; its code is in docs/comparison/NAME_LIBRARY.py."""

    name: str
    title: str
    description: str
    remarks: str


TASKS = (
    Task(
        "convolution",
        "Steerable convolution",
        "From volumes with 4 channels to features, with a kernel of 5 voxels.",
        """\
e3nn is about as short as steerformer. Its convolution on voxels is one of the example models in its package, in several
dated versions; its convolutions on points are built from `o3.TensorProduct`. escnn lists the irreps of a type one by
one. With `SO2` and `rot2dOnR2` instead, steerformer and escnn do the same for images, which e3nn does not know.""",
    ),
    Task(
        "transformer",
        "Transformer block",
        """\
Attention over all voxels with positional encodings on keys and values, and an MLP, each after a normalization and
with a residual connection; one head.""",
        """\
escnn and e3nn have no attention: one writes it, from their linear maps, harmonics, norms and nonlinearities. The code
here is the simplest that does the task: batch instead of layer normalization, which they do not have, one head, a
fixed radial profile, memory that grows with the square of the number of voxels times channels. e3nn's documentation
shows another attention, on a graph, with tensor products of features and harmonics; it couples more, and takes about
as many lines. That of e3nn here takes any points, and is exact at every angle, which attention on voxels is not.""",
    ),
    Task(
        "testing",
        "Testing a layer of one's own",
        "Is this layer equivariant? It multiplies features by a function of their norm.",
        """\
e3nn is the shortest here, and tests reflections, too. Its test knows features and points, but not voxels: for a layer
that moves content between voxels one rotates the grid oneself. steerformer tests such layers with the same call,
exactly under rotations of the grid and on analytic scenes at other angles, with `sf.testing.equivariance_error` for
each degree. escnn's modules have a method `check_equivariance`, but the inherited one rotates noise by interpolation,
and so rejects this layer, which is equivariant; the code here rotates channels only, which is enough for a layer
without neighbors.""",
    ),
    Task(
        "anisotropic",
        "Anisotropic voxels",
        "A convolution on voxels of 1 x 1 x 2 mm, with a kernel of 5 x 5 x 3 voxels.",
        """\
e3nn is about as short as steerformer. escnn's convolutions sample their kernels on cubic voxels, so one writes the
layer: the basis of escnn, sampled at the right points, with one cutoff of frequencies instead of escnn's for each ring.
Resampling all volumes to cubic voxels is the alternative.""",
    ),
    Task(
        "concatenation",
        "Concatenation of fields",
        "Two fields of different types become one, and a linear layer mixes it.",
        """\
The three differ by where the type is. In e3nn channels are ordered term by term, so `torch.cat` is right and types
add. In escnn tensors carry their types, so nothing has to be said. In steerformer tensors are plain and ordered by
degree: `torch.cat` of two fields would be wrong without any error, and `sf.concat` needs both types.""",
    ),
    Task(
        "product",
        "Tensor product paths",
        "The product of two fields, by two chosen paths: degrees 1 and 1 to 0, and 2 and 1 to 1.",
        """\
This is what e3nn is made for: every path can have its own normalization and way of combining copies (`"uvw"`, which is
every copy with every other, `"uvu"`, ...), and code is generated for them. Our paths have weights of their own, too,
but couple mixtures of copies one by one. escnn has the product of a field with itself only; but its representations can
be multiplied, and a convolution of one voxel decomposes the product.""",
    ),
    Task(
        "vectors",
        "Vector output",
        "From a volume to vectors, such as a displacement, with components along the axes of the tensor.",
        """\
e3nn is the shortest: its vectors have their components in the order of the axes. In escnn x lies along the last axis,
and y and z against the others, so components have to be reordered.""",
    ),
    Task(
        "export",
        "Export to ONNX",
        "Two convolutions and a nonlinearity as an ONNX file, with any number and size of volumes.",
        """\
e3nn needs nothing of its own: PyTorch's exporter takes its modules. escnn's convolutions, batch normalizations and
pointwise nonlinearities have a method `export` that returns plain PyTorch modules, which covers whole networks of
regular representations of discrete groups; nonlinearities for irreps, as here, do not have it. PyTorch's exporter fails
on escnn's own modules, its predecessor (`dynamo=False`, deprecated) traces them. `sf.export` replaces steerable
convolutions by ordinary ones, and compares the file with the model on several sizes.""",
    ),
)
