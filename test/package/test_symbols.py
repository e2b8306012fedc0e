"""libHalideVulkan.so shows the sixteen symbols libHalide reads, the registry, and nothing else."""

import os
import re
import subprocess

LIBRARY = os.environ["HV_LIBRARY"]
FLAVOURS = [
    f"halide_internal_initmod_{system}vulkan_{bits}{debug}"
    for system in ("", "windows_")
    for bits in (32, 64)
    for debug in ("", "_debug")
]
REGISTRY = "halide_vulkan_registry"


def symbols():
    """Name -> (address, size, type, binding) of every defined dynamic symbol."""
    text = subprocess.run(["readelf", "-W", "--dyn-syms", LIBRARY], capture_output=True, text=True, check=True).stdout
    found = {}
    for line in text.splitlines():
        fields = line.split()
        if len(fields) >= 8 and fields[0].rstrip(":").isdigit() and fields[6] != "UND":
            found[fields[7]] = (int(fields[1], 16), int(fields[2], 0), fields[3], fields[4])
    return found


def test_exactly_these_symbols():
    wanted = set(FLAVOURS) | {name + "_length" for name in FLAVOURS} | {REGISTRY}
    assert set(symbols()) == wanted


def test_sizes_and_types():
    for name, (_, size, kind, binding) in symbols().items():
        assert (kind, binding) == ("OBJECT", "GLOBAL"), name
        if name.endswith("_length"):
            assert size == 4, name
        elif name == REGISTRY:
            assert size == 4096
        else:
            assert size > 1000, name


def test_lengths_are_those_of_the_arrays_and_arrays_are_bitcode():
    image = open(LIBRARY, "rb").read()
    sections = subprocess.run(["readelf", "-W", "-S", LIBRARY], capture_output=True, text=True, check=True).stdout
    [(address, offset)] = [
        (int(m[1], 16), int(m[2], 16)) for m in re.finditer(r"\.rodata\s+PROGBITS\s+([0-9a-f]+) ([0-9a-f]+)", sections)
    ]
    all_symbols = symbols()
    for name in FLAVOURS:
        begin, size, _, _ = all_symbols[name]
        at = all_symbols[name + "_length"][0] - address + offset
        assert int.from_bytes(image[at : at + 4], "little") == size, name
        assert image[begin - address + offset :][:4] == b"BC\xc0\xde", name


def test_needs_nothing_and_runs_nothing():
    dynamic = subprocess.run(["readelf", "-W", "-d", LIBRARY], capture_output=True, text=True, check=True).stdout
    for tag in ("NEEDED", "INIT", "FINI", "RPATH", "RUNPATH", "TEXTREL"):
        assert f"({tag}" not in dynamic, tag
