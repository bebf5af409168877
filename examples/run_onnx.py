"""Run a network that 'steerformer export RUN --out net.onnx' wrote, with numpy and onnxruntime alone.

    python run_onnx.py net.onnx image.npy    # an array (channels, *space) on the grid of the network

The file says how intensities were normalized, what the classes are called, and which grid it takes.
"""

import json
import sys

import numpy as np
import onnxruntime


def level_and_noise(values):
    """Median and robust standard deviation."""
    level = np.sort(values)[(len(values) - 1) // 2]
    return level, np.sort(abs(values - level))[round(0.9 * (len(values) - 1))] / 1.645


def background(channel):
    """Intensity of the background, measured at the border, and the voxels that differ from it."""
    rounding, axes = 1e-5 * np.ptp(channel), [axis for axis, n in enumerate(channel.shape) if n > 1]
    sides = [np.take(channel, end, axis).ravel() for axis in axes for end in (0, -1)]
    border = np.concatenate(sides) - channel.min()
    others, most = border[border > rounding], 0.2 * channel.std()
    if len(others) <= 0.9 * len(border) and (not len(others) or np.median(others) > 0.05 * np.ptp(channel)):
        return channel.min(), channel - channel.min() > rounding  # a masked or padded scan
    uniform = [side for side in sides if level_and_noise(side)[1] <= most]
    level, noise = level_and_noise(np.concatenate(uniform or sides))
    if not uniform or noise > most:
        return level, np.ones(channel.shape, bool)
    found = abs(channel - level) > max(4 * noise, rounding)
    blocks = np.lib.stride_tricks.sliding_window_view(np.pad(found, 1, mode="edge"), (3,) * found.ndim)
    return level, found & (noise <= rounding or blocks.mean(axis=tuple(range(-found.ndim, 0))) > 0.5)


def normalize(x, method):
    """Intensities of (channels, *space) as in training."""
    if method == "std":
        return x / (x.std(ddof=1) or 1)
    for channel in x if method != "none" else ():
        level, chosen = (channel.mean(), channel == channel) if method == "image" else background(channel)
        if method == "nonzero":
            level, chosen = channel[channel != 0].mean(), channel != 0
        unit = np.sqrt(((channel[chosen] - level) ** 2).mean())
        channel[:] = np.where(chosen | (method != "nonzero"), (channel - level) / (unit or 1), 0)
    return x


if __name__ == "__main__":
    session, x = onnxruntime.InferenceSession(sys.argv[1]), np.load(sys.argv[2])
    about = json.loads(session.get_modelmeta().custom_metadata_map["steerformer"])
    x = x / np.iinfo(x.dtype).max if about["kind"] == "image" and x.dtype.kind == "u" else x.astype(float)
    x = normalize(x, about["preprocessing"]["normalize"]).astype(np.float32)
    labels = session.run(None, {"x": x[None]})[0][0].argmax(axis=0)  # one label, or one for each voxel
    print({about["classes"][label]: int((labels == label).sum()) for label in np.unique(labels)})
