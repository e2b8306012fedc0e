// vulkan_host.h: what this runtime takes from Halide's runtime beyond the public header, and the exported names that
// its own headers call.
//
// Hooks are called by their exported names everywhere, never through a private copy: an AOT program may replace any of
// them. halide_device_interface_impl_t is the table that Halide's wrappers call; the public header only names it.

#ifndef HALIDE_VULKAN_HOST_H
#define HALIDE_VULKAN_HOST_H

#include "HalideRuntime.h"

#define VK_NO_PROTOTYPES
#include <vulkan/vulkan_core.h>

#include "HalideRuntimeVulkan.h"

#ifndef WEAK
#define WEAK __attribute__((weak))
#endif

extern "C" {

void halide_use_jit_module(void);
void halide_release_jit_module(void);
int halide_device_and_host_malloc(void *user_context, struct halide_buffer_t *buf,
                                  const struct halide_device_interface_t *device_interface);
int halide_device_and_host_free(void *user_context, struct halide_buffer_t *buf);
int halide_default_device_and_host_malloc(void *user_context, struct halide_buffer_t *buf,
                                          const struct halide_device_interface_t *device_interface);
int halide_default_device_and_host_free(void *user_context, struct halide_buffer_t *buf,
                                        const struct halide_device_interface_t *device_interface);
void halide_thread_yield(void);
void halide_sleep_us(void *user_context, int microseconds);
int halide_start_clock(void *user_context);
int64_t halide_current_time_ns(void *user_context);

// Exported by this runtime, in no public header.
void *halide_vulkan_get_symbol(void *user_context, const char *name);
void halide_vulkan_set_device(const char *device);
const char *halide_vulkan_get_device(void *user_context);
void halide_vulkan_set_alloc_config(const char *config);
const char *halide_vulkan_get_alloc_config(void *user_context);
void halide_vulkan_set_trace_file(const char *path);
const char *halide_vulkan_get_trace_file(void *user_context);

struct halide_device_interface_impl_t {
    void (*use_module)(void);
    void (*release_module)(void);
    int (*device_malloc)(void *user_context, struct halide_buffer_t *buf);
    int (*device_free)(void *user_context, struct halide_buffer_t *buf);
    int (*device_sync)(void *user_context, struct halide_buffer_t *buf);
    int (*device_release)(void *user_context);
    int (*copy_to_host)(void *user_context, struct halide_buffer_t *buf);
    int (*copy_to_device)(void *user_context, struct halide_buffer_t *buf);
    int (*device_and_host_malloc)(void *user_context, struct halide_buffer_t *buf);
    int (*device_and_host_free)(void *user_context, struct halide_buffer_t *buf);
    int (*buffer_copy)(void *user_context, struct halide_buffer_t *src,
                       const struct halide_device_interface_t *dst_device_interface, struct halide_buffer_t *dst);
    int (*device_crop)(void *user_context, const struct halide_buffer_t *src, struct halide_buffer_t *dst);
    int (*device_slice)(void *user_context, const struct halide_buffer_t *src, int slice_dim, int slice_pos,
                        struct halide_buffer_t *dst);
    int (*device_release_crop)(void *user_context, struct halide_buffer_t *buf);
    int (*wrap_native)(void *user_context, struct halide_buffer_t *buf, uint64_t handle);
    int (*detach_native)(void *user_context, struct halide_buffer_t *buf);
};

}  // extern "C"

#endif  // HALIDE_VULKAN_HOST_H
