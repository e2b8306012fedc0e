"""Pictures in and out: a real photograph that a Python package ships, as planes of 8 bits."""

import importlib.util
import pathlib

import imageio.v3 as imageio
import numpy

# In scikit-image's wheel: the launch of Falcon 9 on 2014-04-14, taken by SpaceX, public domain; 640 x 427 pixels. A
# picture with detail both in the dark and in the glare. The package is not imported, its needs are not installed.
PACKAGE, FILE = "skimage", "data/rocket.jpg"


class Unreadable(ValueError):
    """A file that is no picture. Its text names the file and says why."""


def photograph_path():
    spec = importlib.util.find_spec(PACKAGE)
    path = pathlib.Path(spec.submodule_search_locations[0], FILE) if spec else None
    if path is None or not path.is_file():
        raise FileNotFoundError("the photograph comes with the package scikit-image: run `make setup`")
    return path


def load(path):
    """An array (3, height, width). Grey pictures get three equal planes, transparency is dropped.

    Raises Unreadable, whatever is wrong with the file.
    """
    path = pathlib.Path(path)
    try:
        # Opened here, so that a file that cannot be had is told apart from one that is no picture: imageio does not.
        with path.open("rb") as file:
            pixels = imageio.imread(file)
    except OSError as error:
        raise Unreadable(f"{path}: {error.strerror or 'no picture that imageio can read'}") from error
    except Exception as error:  # each of imageio's readers has exceptions of its own
        raise Unreadable(f"{path}: no picture that imageio can read") from error
    if pixels.ndim == 2:
        pixels = numpy.stack([pixels] * 3, axis=2)
    if pixels.dtype != numpy.uint8 or pixels.ndim != 3 or pixels.shape[2] < 3:
        raise Unreadable(f"{path}: not a picture of 8 bits")
    return numpy.ascontiguousarray(pixels[:, :, :3].transpose(2, 0, 1))


def save(path, planes):
    imageio.imwrite(path, planes.transpose(1, 2, 0))


def crop(planes, width, height):
    """The middle of the picture."""
    _, have_height, have_width = planes.shape
    if width > have_width or height > have_height:
        raise ValueError(f"a crop of {width} x {height} from a picture of {have_width} x {have_height}")
    left, top = (have_width - width) // 2, (have_height - height) // 2
    return numpy.ascontiguousarray(planes[:, top : top + height, left : left + width])
