#!/usr/bin/env python3
"""Develops one picture in one process, on one target, and says how long it took.

    develop.py --target TARGET --picture FILE --report FILE.json [--size WxH] [--runs N] [--output FILE.npy]

A run is what a user waits for: the picture goes to the device, through the pipeline, and the result comes back. The
first run, which compiles kernels and allocates, is reported apart. Which Vulkan runtime this is was decided before the
process began (LD_PRELOAD), so demo.py starts one process for each.
"""

import argparse
import ctypes
import json
import pathlib
import re
import statistics
import sys
import time

import halide as hl
import numpy

import pictures
from local_laplacian import LocalLaplacian


def our_runtime_is_loaded():
    """Python loads libHalide out of sight of the global scope, so what is found there was put in front of it."""
    try:
        ctypes.c_char.in_dll(ctypes.CDLL(None), "halide_internal_initmod_vulkan_64")
        return True
    except ValueError:
        return False


def device_in_use():
    """What our runtime says of it; None on any other runtime."""
    if not our_runtime_is_loaded():
        return None
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))
    import halide_vulkan

    stats = halide_vulkan.stats()
    return stats.device_name if stats else None


def runs_of(text):
    """How many timed runs were asked for: an error of argparse where that is none."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is no whole number from 1")
    return int(text)


def size_of(text):
    found = re.fullmatch(r"([1-9]\d{0,5})x([1-9]\d{0,5})", text)
    if not found:
        raise argparse.ArgumentTypeError(f"{text} is no size: 640x384 is one")
    return int(found[1]), int(found[2])


def develop(planes, target, runs=1):
    """The developed picture, the seconds of the first run and of each of the others, and the number of stages."""
    _, height, width = planes.shape
    pipeline = LocalLaplacian(width, height)
    started = time.perf_counter()
    call = pipeline.compile(target)
    compiled = time.perf_counter() - started
    source = hl.Buffer(numpy.ascontiguousarray(planes))
    output = hl.Buffer(hl.UInt(8), [width, height, 3])
    seconds = []
    for _ in range(runs + 1):
        source.set_host_dirty()
        started = time.perf_counter()
        call(source, output)
        output.copy_to_host()
        seconds.append(time.perf_counter() - started)
    result = numpy.array(output, copy=True)
    # Halide's arrays come with x first; planes have x last.
    result = result.transpose() if result.shape == (width, height, 3) else result
    return numpy.ascontiguousarray(result), compiled, seconds[0], seconds[1:], len(pipeline.stages)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--target", required=True)
    parser.add_argument("--picture", required=True)
    parser.add_argument("--report", required=True)
    parser.add_argument("--size", type=size_of)
    parser.add_argument("--runs", type=runs_of, default=9)
    parser.add_argument("--output")
    options = parser.parse_args()

    try:
        planes = pictures.load(options.picture)
        if options.size:
            planes = pictures.crop(planes, *options.size)
        target = hl.Target(options.target)
    except (ValueError, hl.HalideError) as error:  # of the picture and its size; of the target
        sys.exit(f"develop.py: {str(error).strip().splitlines()[0]}")
    result, compiled, first, seconds, stages = develop(planes, target, options.runs)
    if options.output:
        numpy.save(options.output, result)
    report = {
        "target": options.target,
        "ours": our_runtime_is_loaded(),
        "device": device_in_use(),
        "stages": stages,
        "compile_ms": 1e3 * compiled,
        "first_ms": 1e3 * first,
        "median_ms": 1e3 * statistics.median(seconds),
        "min_ms": 1e3 * min(seconds),
        "max_ms": 1e3 * max(seconds),
    }
    with open(options.report, "w") as file:
        json.dump(report, file)


if __name__ == "__main__":
    main()
