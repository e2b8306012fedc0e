// host_memory.h: the host allocations of a runtime that is compiled for the failure sweep, counted and failed at will.
//
// The runtime is compiled with -include host_memory.h, and then allocates through these two functions, which the test
// defines (fault_memory.h). So the sweep sees every allocation, and none of Halide's or the test's own.

#ifndef HALIDE_VULKAN_FAULT_HOST_MEMORY_H
#define HALIDE_VULKAN_FAULT_HOST_MEMORY_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif
void *hv_fault_malloc(size_t bytes);
void hv_fault_free(void *pointer);
#ifdef __cplusplus
}
#endif

#define HALIDE_VULKAN_MALLOC(bytes) hv_fault_malloc(bytes)
#define HALIDE_VULKAN_FREE(pointer) hv_fault_free(pointer)

#endif
