"""`import halide_vulkan`, as a user writes it, in fresh environments with both Halides."""

import json

import pytest
from conftest import LIBRARY
from kernel import KERNEL, WHOSE


def good(done):
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip().splitlines()


def test_three_lines(either):
    assert good(either.code("import halide_vulkan\n" + KERNEL + WHOSE))[-1] == "runtime ours"


def test_what_the_package_tells(either):
    text = (
        "import halide_vulkan as hv, dataclasses, json, sys\n"
        "told = {'before': hv.active(), 'stats before': hv.stats(), 'imported': 'halide' in sys.modules}\n"
        "hv.release()\n"
        "asked = hv.device()\n"
        "told['asking opens'] = hv.stats() is not None or asked.in_use\n"
        + KERNEL
        + "told.update(after=hv.active(), stats=dataclasses.asdict(hv.stats()), device=dataclasses.asdict(hv.device()))\n"
        "told['same'] = dataclasses.replace(asked, in_use=True) == hv.device() == hv.devices()[hv.device().index]\n"
        "hv.release()\n"
        "told['stats after release'] = hv.stats()\n"
        + KERNEL  # anew: the first one's input was on the device that is gone
        + "told['again'] = hv.stats().submissions\n"
        "print(json.dumps(told))\n"
    )
    told = json.loads(good(either.code(text))[-1])
    assert told["before"] and told["after"] and not told["imported"]
    assert told["stats before"] is None and told["stats after release"] is None
    assert not told["asking opens"]
    assert told["device"]["in_use"] and told["same"]
    assert told["stats"]["submissions"] >= 1 and told["again"] >= 1
    assert told["stats"]["device_name"] == told["device"]["name"] != ""
    assert told["stats"]["used_bytes"] >= 4096  # the input, which lives on


def test_too_late(either):
    done = either.code("import halide\nimport halide_vulkan")
    assert done.returncode != 0
    assert "ImportError: halide_vulkan was imported after libHalide was loaded" in done.stderr
    assert "before the first `import halide`" in done.stderr
    assert "python -m halide_vulkan run program.py" in done.stderr


def test_too_late_though_the_library_was_loaded_for_itself(halide21):
    """Loaded before halide but hidden from it: order alone does not make it the one that is used."""
    done = halide21.code(f"import ctypes; ctypes.CDLL({str(halide21.library)!r})\nimport halide\nimport halide_vulkan")
    assert done.returncode != 0 and "imported after libHalide was loaded" in done.stderr
    # The same before halide is no harm: the package makes it visible.
    text = f"import ctypes; ctypes.CDLL({str(halide21.library)!r})\nimport halide_vulkan\n"
    assert good(halide21.code(text + KERNEL + WHOSE))[-1] == "runtime ours"


def test_late_is_fine_where_the_library_was_preloaded(either):
    text = "import halide\nimport halide_vulkan\n" + KERNEL + WHOSE + "print(halide_vulkan.stats().submissions > 0)"
    assert good(either.code(text, LD_PRELOAD=LIBRARY))[-2:] == ["runtime ours", "True"]


def test_a_library_that_is_missing_or_none(halide21, tmp_path):
    done = halide21.code("import halide_vulkan", HALIDE_VULKAN_LIBRARY=tmp_path / "gone.so")
    assert "ImportError" in done.stderr and "gone.so, which HALIDE_VULKAN_LIBRARY names, is not there" in done.stderr
    (tmp_path / "text.so").write_text("no library")
    done = halide21.code("import halide_vulkan", HALIDE_VULKAN_LIBRARY=tmp_path / "text.so")
    assert "ImportError" in done.stderr and "text.so cannot be loaded" in done.stderr


def test_another_library_can_be_named(halide21):
    text = "import halide_vulkan\nprint(halide_vulkan._library.in_use())"
    assert good(halide21.code(text, HALIDE_VULKAN_LIBRARY=LIBRARY)) == [str(LIBRARY)]
    assert good(halide21.code(text)) == [str(halide21.library)]


@pytest.mark.parametrize("version, words", [("99.1.0", "was not tried with Halide 99.1.0"), ("18.0.0", "cannot read")])
def test_an_untried_halide_warns(halide21, untried, version, words):
    done = halide21.code("import halide_vulkan; print('imported')", PYTHONPATH=untried(version))
    assert good(done) == ["imported"]
    assert "UntriedHalideWarning" in done.stderr and words in done.stderr and "19.0.0 and 21.0.0" in done.stderr


def test_a_tried_halide_and_none_do_not_warn(either, bare):
    for environment in (either, bare):
        done = environment.code("import warnings; warnings.simplefilter('error')\nimport halide_vulkan")
        assert good(done) == [] and done.stderr == ""


def test_without_vulkan_the_package_says_why(halide21):
    text = "import halide_vulkan as hv\ntry:\n    hv.device()\nexcept RuntimeError as error:\n    print(error)"
    [line] = good(halide21.code(text, VK_ICD_FILENAMES="/no/such.json", VK_DRIVER_FILES="/no/such.json"))
    assert "no driver" in line
