"""Each flavour of the runtime's bitcode asks for nothing and shows nothing that a Halide cannot deal with.

The checks run on an object made by llc, not on the bitcode alone: the code generator adds calls of its own (a 64-bit
division on a 32-bit target, a copy of a structure), and those are just as undefined where the runtime is loaded.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

BITCODE = Path(os.environ["HV_BITCODE"])
FLAVOURS = sorted(path.stem for path in BITCODE.glob("*.bc"))
LLC = shutil.which("llc-19")
NM = shutil.which("llvm-nm-19")
DIS = shutil.which("llvm-dis-19")

# The C library functions every program has. The stock runtime relies on the same ones.
LIBC = set("abort atoi free getenv malloc memcmp memcpy memmove memset strcmp strlen strncmp strstr".split())

# What Halide's shared runtime exports to a GPU module when it is JIT-compiled.
HALIDE = set(
    """
    halide_error halide_print
    halide_string_to_string halide_int64_to_string halide_uint64_to_string halide_double_to_string
    halide_pointer_to_string halide_type_to_string halide_buffer_to_string
    halide_malloc halide_free
    halide_mutex_lock halide_mutex_unlock halide_cond_wait halide_cond_signal halide_cond_broadcast
    halide_spawn_thread halide_join_thread halide_thread_yield halide_do_par_for
    halide_semaphore_init halide_semaphore_release halide_semaphore_try_acquire
    halide_get_num_threads halide_host_cpu_count
    halide_start_clock halide_current_time_ns halide_sleep_us
    halide_get_symbol halide_load_library halide_get_library_symbol
    halide_device_malloc halide_device_free halide_device_sync halide_device_release
    halide_copy_to_host halide_copy_to_device halide_device_and_host_malloc halide_device_and_host_free
    halide_buffer_copy halide_device_crop halide_device_slice halide_device_release_crop
    halide_device_wrap_native halide_device_detach_native
    halide_default_device_and_host_malloc halide_default_device_and_host_free halide_default_buffer_copy
    halide_default_device_crop halide_default_device_slice
    halide_default_device_wrap_native halide_default_device_detach_native
    halide_device_sync_global halide_can_reuse_device_allocations halide_reuse_device_allocations
    halide_register_device_allocation_pool halide_get_gpu_device halide_set_gpu_device
    halide_use_jit_module halide_release_jit_module
    halide_msan_annotate_memory_is_initialized
    """.split()
)

# Code generated for a 32-bit target may divide 64-bit numbers: Halide has this one function for it, and Windows its own.
# Windows' code generator also marks the use of floating point with a symbol that every program there has.
ARITHMETIC = {
    "vulkan_32": {"__udivdi3"},
    "vulkan_32_debug": {"__udivdi3"},
    "windows_vulkan_32": {"_aulldiv", "_fltused"},
    "windows_vulkan_32_debug": {"_aulldiv", "_fltused"},
    "windows_vulkan_64": {"_fltused"},
    "windows_vulkan_64_debug": {"_fltused"},
}

# Every name a Halide program may call or replace.
ENTRY_POINTS = {
    "halide_vulkan_" + name
    for name in """
    device_interface compute_capability device_malloc device_free device_sync device_release copy_to_device copy_to_host
    buffer_copy device_crop device_slice device_release_crop wrap_vk_buffer detach_vk_buffer get_vk_buffer
    device_and_host_malloc device_and_host_free initialize_kernels run finalize_kernels
    release_unused_device_allocations is_initialized get_symbol acquire_context release_context
    set_allocation_callbacks get_allocation_callbacks set_layer_names get_layer_names set_extension_names
    get_extension_names set_device get_device set_device_type get_device_type set_build_options get_build_options set_alloc_config
    get_alloc_config
    """.split()
}


def run(*command):
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, check=True).stdout


def strip_decoration(flavour, name):
    """The C name of a symbol: 32-bit Windows puts an underscore before each, and @bytes after a stdcall one."""
    if flavour.startswith("windows_vulkan_32"):
        name = re.sub(r"@\d+$", "", name)
        return name[1:] if name.startswith("_") else name
    return name


def test_all_flavours_are_there():
    assert len(FLAVOURS) == 8


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_undefined_symbols(flavour, tmp_path):
    target = tmp_path / "runtime.o"
    run(LLC, "-O2", "-filetype=obj", "-relocation-model=pic", BITCODE / f"{flavour}.bc", "-o", target)
    lines = [line.split() for line in run(NM, target).splitlines()]
    undefined = {strip_decoration(flavour, fields[-1]) for fields in lines if fields[-2] == "U"}
    undefined.discard("_GLOBAL_OFFSET_TABLE_")
    assert undefined <= LIBC | HALIDE | ARITHMETIC.get(flavour, set())
    # A weak reference becomes a hard one when Halide links the runtime, so it is no way to ask whether a symbol exists.
    weak_references = {fields[-1] for fields in lines if fields[-2] in "wv" and len(fields) == 2}
    if not flavour.startswith("windows"):
        assert weak_references == set()


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_defined_symbols_are_weak_and_named_halide(flavour):
    text = run(NM, "--defined-only", BITCODE / f"{flavour}.bc")
    shown = [line.split()[-2:] for line in text.splitlines()]
    # On Windows a string literal is a symbol of its own, "??_C@...", that equal literals anywhere share.
    shown = [(kind, name) for kind, name in shown if kind.isupper() and not name.startswith("??_C@")]
    names = {strip_decoration(flavour, name) for _, name in shown}
    assert all(kind in "WV" for kind, _ in shown), [name for kind, name in shown if kind not in "WV"]
    assert all(name.startswith("halide_") for name in names), [n for n in names if not n.startswith("halide_")]
    assert ENTRY_POINTS <= names, sorted(ENTRY_POINTS - names)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_no_thread_locals_and_no_dynamic_initializers(flavour):
    text = run(DIS, BITCODE / f"{flavour}.bc", "-o", "-")
    assert not re.search(r"^@.* = .*thread_local", text, re.M)
    assert "@_GLOBAL__sub_I_" not in text
    for missing in ("@__cxa_guard_acquire", "@_Znwm", "@_Znwj", "@_ZdlPv", "@__cxa_pure_virtual", "@__stack_chk_fail"):
        assert missing not in text, missing


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_debug_flavours_carry_debug_information_and_others_do_not(flavour):
    text = run(DIS, BITCODE / f"{flavour}.bc", "-o", "-")
    assert ("!llvm.dbg.cu" in text) == flavour.endswith("_debug")
