"""Runtimes and pipelines for machines that are not this one: their symbols, and a link of each with LLVM's linkers.

No program of another machine runs here. What can be seen is that the archives are of the right format, that the
runtime in them is ours, that it asks for nothing that the stock runtime of that machine would not find there, and that
the linker of each object format puts a pipeline and its runtime together.
"""

import shutil

import consumer
import pytest
from test_bitcode import ENTRY_POINTS, LIBC

NM = shutil.which("llvm-nm-19")
READOBJ = shutil.which("llvm-readobj-19")

# Machine -> format and architecture as LLVM calls them, the archive's ending, and how to link a shared library of it.
# Functions of the C library and the system are left open: there is no other machine's C library here.
ELF = ["ld.lld-19", "-shared", "-z", "undefs", "--whole-archive", "{runtime}", "{pipeline}", "-o", "{out}"]
COFF = ["lld-link-19", "/dll", "/noentry", "/force:unresolved", "/wholearchive:{runtime}", "/wholearchive:{pipeline}",
        "/export:halide_vulkan_get_stats", "/export:package_aot", "/out:{out}"]
MACH_O = ["ld64.lld-19", "-arch", "arm64", "-platform_version", "macos", "11.0", "11.0", "-dylib", "-all_load",
          "-undefined", "dynamic_lookup", "{runtime}", "{pipeline}", "-o", "{out}"]
MACHINES = {
    "arm-64-linux": ("elf64-littleaarch64", "aarch64", "a", ELF),
    "arm-64-android": ("elf64-littleaarch64", "aarch64", "a", ELF),
    "x86-64-windows": ("COFF-x86-64", "x86_64", "lib", COFF),
    "arm-64-osx": ("Mach-O arm64", "aarch64", "a", MACH_O),
}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    return consumer.build("cross", tmp_path_factory.mktemp("cross") / "b", "-G", "Ninja", consumer.INSTALLED)


def symbols(machine, file):
    """Names defined and names undefined in an archive or a linked file, without the underscore of Mach-O."""
    defined, undefined = set(), set()
    for line in consumer.run(NM, file).splitlines():
        fields = line.split()
        if len(fields) < 2 or len(fields[-2]) != 1:
            continue
        name = fields[-1].removeprefix("_") if machine.endswith("-osx") else fields[-1]
        (undefined if fields[-2] in "Uw" else defined).add(name)
    return defined, undefined - defined


@pytest.mark.parametrize("machine", MACHINES)
def test_archives(built, machine, tmp_path):
    form, arch, ending, _ = MACHINES[machine]
    runtime = built / f"runtime-{machine}.{ending}"
    headers = consumer.run(READOBJ, "--file-headers", runtime, built / f"pipeline-{machine}.{ending}")
    formats = {line.split(": ")[1] for line in headers.splitlines() if line.startswith("Format:")}
    arches = {line.split(": ")[1] for line in headers.splitlines() if line.startswith("Arch:")}
    assert (formats, arches) == ({form}, {arch})

    defined, undefined = symbols(machine, runtime)
    assert ENTRY_POINTS | {"halide_vulkan_get_stats"} <= defined

    consumer.run(consumer.E["HV_GENGEN"], "-r", "stock", "-o", tmp_path, "-e", "static_library",
                 f"target={machine}-vulkan")
    stock_defined, stock_undefined = symbols(machine, tmp_path / f"stock.{ending}")
    assert "halide_vulkan_get_stats" not in stock_defined
    assert undefined - stock_undefined <= LIBC

    needed = symbols(machine, built / f"pipeline-{machine}.{ending}")[1]
    assert "halide_vulkan_run" in needed
    assert {name for name in needed if name.startswith("halide_")} <= defined


@pytest.mark.parametrize("machine", MACHINES)
def test_linker_of_that_format_takes_them(built, machine, tmp_path):
    form, _, ending, command = MACHINES[machine]
    out = tmp_path / "linked"
    files = {part: built / f"{part}-{machine}.{ending}" for part in ("runtime", "pipeline")}
    said = consumer.run(*[part.format(out=out, **files) for part in command], messages=True)
    assert "symbol: halide_" not in said  # COFF names what is undefined, an exported function too
    assert f"Format: {form}" in consumer.run(READOBJ, "--file-headers", out)
    shown = "--coff-exports" if form.startswith("COFF") else "--symbols"
    text = consumer.run(READOBJ, shown, out)
    assert "halide_vulkan_get_stats" in text and "package_aot" in text
