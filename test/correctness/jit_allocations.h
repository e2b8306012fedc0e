// jit_allocations.h: counts the host allocations that code compiled at run time makes.
//
// This program's own malloc, calloc and realloc stand in front of the C library's, and the just-in-time compiled
// runtime is linked to them. A call counts if its caller lies in no loaded file, which only such code does: Halide's
// runtime and ours, on whichever thread. What libHalide, the driver or the test allocate does not count.
//
// To be included by one source file of a program, which must export its symbols (hv_add_halide_test sees to that).
// Threads: counts are atomic. Needs glibc 2.35.

#ifndef HALIDE_VULKAN_TEST_JIT_ALLOCATIONS_H
#define HALIDE_VULKAN_TEST_JIT_ALLOCATIONS_H

#include <atomic>
#include <cstddef>
#include <cstdint>

#include <dlfcn.h>

namespace vulkan_test {

inline std::atomic<bool> counting{false};
inline std::atomic<uint64_t> jit_allocations{0};

inline void note_allocation(void *caller) {
    if (!counting.load(std::memory_order_relaxed)) return;
    // dladdr would search the symbols of the file, and libHalide has very many.
    dl_find_object file;
    if (_dl_find_object(caller, &file) != 0) jit_allocations++;
}

}  // namespace vulkan_test

extern "C" {
void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);

__attribute__((visibility("default"), noinline)) void *malloc(size_t bytes) {
    vulkan_test::note_allocation(__builtin_return_address(0));
    return __libc_malloc(bytes);
}
__attribute__((visibility("default"), noinline)) void *calloc(size_t count, size_t bytes) {
    vulkan_test::note_allocation(__builtin_return_address(0));
    return __libc_calloc(count, bytes);
}
__attribute__((visibility("default"), noinline)) void *realloc(void *old, size_t bytes) {
    vulkan_test::note_allocation(__builtin_return_address(0));
    return __libc_realloc(old, bytes);
}
}

#endif
