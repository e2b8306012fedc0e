// Halide's Vulkan runtime.
//
// The include list below is the reading order: each header uses only those above it, and says at its head what problem
// it solves and how. Headers marked [pure] call neither Vulkan nor Halide. This file holds the entry points alone; each
// reads like its own summary: check, do it through the headers, report a failure once when every lock is released.

#include "vulkan_host.h"

#include "vulkan_base.h"
#include "vulkan_features.h"
#include "vulkan_json.h"
#include "vulkan_system_error.h"

#include "vulkan_functions.h"
#include "vulkan_options.h"
#include "vulkan_plan.h"

#include "vulkan_choice.h"

#include "vulkan_instance.h"

#include "vulkan_blob.h"
#include "vulkan_spirv.h"
#include "vulkan_spirv_patch.h"

#include "vulkan_binding.h"
#include "vulkan_cache_file.h"
#include "vulkan_flush.h"
#include "vulkan_hazards.h"
#include "vulkan_range_cache.h"
#include "vulkan_ranges.h"
#include "vulkan_ring.h"
#include "vulkan_strides.h"

#include "vulkan_strided_grid.h"

#include "vulkan_workers.h"

#include "vulkan_gpu.h"

#include "vulkan_lock.h"

#include "vulkan_trace_file.h"
#include "vulkan_trace_text.h"

#include "vulkan_trace.h"

#include "vulkan_timestamps.h"

#include "vulkan_progress.h"
#include "vulkan_timeline.h"

#include "vulkan_budget.h"
#include "vulkan_deferred.h"
#include "vulkan_submission.h"

#include "vulkan_marks.h"
#include "vulkan_memory.h"
#include "vulkan_process.h"
#include "vulkan_staging.h"

#include "vulkan_modules.h"
#include "vulkan_shapes.h"

#include "vulkan_cache.h"
#include "vulkan_copy_kernel.h"
#include "vulkan_kernels.h"
#include "vulkan_strided_kernel.h"

#include "vulkan_arguments.h"
#include "vulkan_handles.h"

#include "vulkan_device.h"

#include "vulkan_anchor.h"
#include "vulkan_cache_saver.h"
#include "vulkan_flusher.h"

#include "vulkan_context.h"

#include "vulkan_buffers.h"
#include "vulkan_moves.h"

#include "vulkan_copies.h"

#include "vulkan_buffer_copy.h"
#include "vulkan_describe.h"
#include "vulkan_launch.h"
#include "vulkan_stats.h"
#include "vulkan_sync.h"

#include "vulkan_loading.h"

using namespace halide_vulkan;

extern "C" {
extern struct halide_device_interface_t halide_vulkan_interface;
int halide_vulkan_device_free(void *user_context, halide_buffer_t *buf);
int halide_vulkan_device_release(void *user_context);
int halide_vulkan_release_unused_device_allocations(void *user_context);
}

namespace halide_vulkan {
namespace {

static_assert((int)kOutOfMemory == (int)halide_error_code_out_of_memory, "codes as in HalideRuntime.h");
static_assert((int)kDeviceMallocFailed == (int)halide_error_code_device_malloc_failed, "codes as in HalideRuntime.h");
static_assert((int)kDeviceRunFailed == (int)halide_error_code_device_run_failed, "codes as in HalideRuntime.h");
static_assert((int)kGpuDeviceError == (int)halide_error_code_gpu_device_error, "codes as in HalideRuntime.h");
static_assert((int)kNoDevice == (int)halide_error_code_device_interface_no_device, "codes as in HalideRuntime.h");
static_assert((int)kIncompatibleDeviceInterface == (int)halide_error_code_incompatible_device_interface,
              "codes as in HalideRuntime.h");

const VkAllocationCallbacks *allocation_callbacks;  // the application's, borrowed

// Exactly one message for a failed call, then its code.
inline int report(void *user_context, const Failure &failure) {
    if (failure.failed()) halide_error(user_context, failure.message);
    return failure.code;
}

inline bool check_device_buffer(const halide_buffer_t *buf, const char *what, Failure &failure) {
    if (buf && buf->device && buf->device_interface == &halide_vulkan_interface) return check_dimensions(buf, failure);
    if (!buf) {
        failure.because(kBufferIsNull) << "Vulkan: " << what << ": the buffer is null";
    } else if (!buf->device) {
        failure.because(kNoDevice) << "Vulkan: " << what << ": the buffer has no device allocation";
    } else {
        failure.because(kIncompatibleDeviceInterface)
            << "Vulkan: " << what << ": the buffer belongs to another device API";
    }
    return false;
}

// A buffer without elements has no host memory, and nothing to copy.
inline bool holds_nothing(const halide_buffer_t *buf) {
    for (int i = 0; buf->dim && i < buf->dimensions; i++) {
        if (buf->dim[i].extent <= 0) return true;
    }
    return false;
}

// Ends the device side of a buffer: what every kind of free has in common.
inline void clear_device_side(halide_buffer_t *buf) {
    buf->device = 0;
    buf->device_interface = nullptr;
    halide_vulkan_interface.impl->release_module();
}

inline void set_device_side(halide_buffer_t *buf, uint64_t number) {
    buf->device = number;
    buf->device_interface = &halide_vulkan_interface;
}

}  // namespace
}  // namespace halide_vulkan

extern "C" {

// ---------------------------------------------------------------------------------------------------------------------
// Options

WEAK void halide_vulkan_set_layer_names(const char *n) { set_text(text_options.layer_names, n); }
WEAK const char *halide_vulkan_get_layer_names(void *) {
    return get_text(text_options.layer_names, "HL_VK_LAYERS", "VK_INSTANCE_LAYERS");
}
WEAK void halide_vulkan_set_extension_names(const char *n) { set_text(text_options.extension_names, n); }
WEAK const char *halide_vulkan_get_extension_names(void *) {
    return get_text(text_options.extension_names, "HL_VK_EXTENSIONS", nullptr);
}
WEAK void halide_vulkan_set_device(const char *n) { set_text(text_options.device, n); }
WEAK const char *halide_vulkan_get_device(void *) { return get_text(text_options.device, "HL_VK_DEVICE", nullptr); }
WEAK void halide_vulkan_set_device_type(const char *n) { set_text(text_options.device_type, n); }
WEAK const char *halide_vulkan_get_device_type(void *) {
    return get_text(text_options.device_type, "HL_VK_DEVICE_TYPE", nullptr);
}
WEAK void halide_vulkan_set_build_options(const char *n) { set_text(text_options.build_options, n); }
WEAK const char *halide_vulkan_get_build_options(void *) {
    return get_text(text_options.build_options, "HL_VK_BUILD_OPTIONS", nullptr);
}
WEAK void halide_vulkan_set_alloc_config(const char *n) { set_text(text_options.alloc_config, n); }
WEAK const char *halide_vulkan_get_alloc_config(void *) {
    return get_text(text_options.alloc_config, "HL_VK_ALLOC_CONFIG", nullptr);
}
WEAK void halide_vulkan_set_trace_file(const char *n) { set_text(text_options.trace_file, n); }
WEAK const char *halide_vulkan_get_trace_file(void *) {
    return get_text(text_options.trace_file, "HL_VK_TRACE", nullptr);
}

WEAK void halide_vulkan_set_allocation_callbacks(const struct VkAllocationCallbacks *callbacks) {
    __atomic_store_n(&allocation_callbacks, callbacks, __ATOMIC_RELEASE);
}
WEAK const struct VkAllocationCallbacks *halide_vulkan_get_allocation_callbacks(void *) {
    return __atomic_load_n(&allocation_callbacks, __ATOMIC_ACQUIRE);
}

// ---------------------------------------------------------------------------------------------------------------------
// Loader

// The loader's functions: from the process if it has them, else from the loader library, whose names are tried in turn.
WEAK void *halide_vulkan_get_symbol(void *user_context, const char *name) {
    return find_loader_symbol(user_context, name);
}

// ---------------------------------------------------------------------------------------------------------------------
// Context

WEAK int halide_vulkan_acquire_context(void *user_context, struct halide_vulkan_memory_allocator **allocator,
                                       VkInstance *instance, VkDevice *device, VkPhysicalDevice *physical_device,
                                       VkQueue *queue, uint32_t *queue_family_index,
                                       VkDebugUtilsMessengerEXT *messenger, bool create) {
    if (!may_lock_own_context()) return kNoDevice;
    OwnContext &c = own_context;
    c.lock.lock();  // until release_context, also after a failure
    Failure failure;
    if (!c.device && create && !create_own_context(user_context, failure)) {
        c.failure.keep(failure);
        return failure.code;
    }
    if (c.device) c.acquires++;  // without one there is no queue that another could use
    *allocator = (struct halide_vulkan_memory_allocator *)c.state;
    *instance = c.instance.instance;
    *device = c.device;
    *physical_device = c.physical;
    *queue = c.queue;
    *queue_family_index = c.family;
    *messenger = c.instance.messenger;
    return kSuccess;
}

WEAK int halide_vulkan_release_context(void *, VkInstance, VkDevice, VkQueue, VkDebugUtilsMessengerEXT) {
    if (may_lock_own_context()) own_context.lock.unlock();
    return kSuccess;
}

// What the module's destructor does, for a program that wants it earlier.
WEAK void halide_vulkan_cleanup(void) { halide_vulkan_device_release(nullptr); }

WEAK bool halide_vulkan_is_initialized(void) {
    return __atomic_load_n(&own_context.device, __ATOMIC_ACQUIRE) != nullptr;  // also between acquire and release
}

WEAK int halide_vulkan_device_release(void *user_context) {
    const TraceSpan span(TraceKind::call, "device_release");
    Failure failure;
    release_device(user_context, failure);
    return failure.code;  // destructors release with no user context, where halide_error would abort
}

// "There is no Vulkan here" is version 0.0 and no failure.
WEAK int halide_vulkan_compute_capability(void *user_context, int *major, int *minor) {
    const uint32_t version = device_version(user_context);
    *major = (int)VK_API_VERSION_MAJOR(version);
    *minor = (int)VK_API_VERSION_MINOR(version);
    return kSuccess;
}

WEAK int halide_vulkan_device_sync(void *user_context, halide_buffer_t *buf) {
    const TraceSpan span(TraceKind::call, "device_sync");
    Failure failure;
    sync(user_context, buf ? buf->device : 0, failure);
    return report(user_context, failure);
}

WEAK int halide_vulkan_release_unused_device_allocations(void *user_context) {
    const TraceSpan span(TraceKind::call, "release_unused_device_allocations");
    give_back_unused(user_context);
    return kSuccess;
}

WEAK int halide_vulkan_get_stats(void *user_context, struct halide_vulkan_stats *out, size_t bytes) {
    Failure failure;
    halide_vulkan_stats all;
    if (!collect_stats(user_context, all, failure)) return kNoDevice;
    memcpy(out, &all, min_of(bytes, sizeof(all)));
    // What a newer caller's struct has besides.
    if (bytes > sizeof(all)) memset((char *)out + sizeof(all), 0, bytes - sizeof(all));
    return kSuccess;
}

WEAK size_t halide_vulkan_describe(void *user_context, char *out, size_t bytes) {
    return describe(user_context, out, bytes);
}

// ---------------------------------------------------------------------------------------------------------------------
// Buffers

WEAK int halide_vulkan_device_malloc(void *user_context, halide_buffer_t *buf) {
    Failure failure;
    uint64_t bytes = 0, minimal = 0;
    if (!measure_buffer(buf, &bytes, &minimal, failure)) return report(user_context, failure);
    // Called on buffers that are allocated already, several times over: that is no error and changes nothing.
    if (buf->device) {
        const uint64_t held = device_bytes(buf->device);
        if (held > 0 && held >= bytes) return kSuccess;
        // Between the kernel that writes a buffer and the one that reads it, fresh memory would pass for the result.
        if (held == 0 && bytes > 0 && (buf->flags & halide_buffer_flag_device_dirty)) {
            failure.because(kNoDevice) << "Vulkan: malloc: the buffer's device was released, with contents only it had";
            return report(user_context, failure);
        }
        const int code = halide_vulkan_device_free(user_context, buf);
        if (code != kSuccess) return code;
    }
    const TraceSpan span(TraceKind::call, "device_malloc");
    const uint64_t number = allocate_buffer(user_context, bytes, minimal, failure);
    if (number == 0) return report(user_context, failure);
    set_device_side(buf, number);
    halide_vulkan_interface.impl->use_module();
    return kSuccess;
}

WEAK int halide_vulkan_device_free(void *user_context, halide_buffer_t *buf) {
    if (buf->device == 0) return kSuccess;
    const TraceSpan span(TraceKind::call, "device_free");
    free_handle(user_context, buf->device);
    clear_device_side(buf);
    return kSuccess;
}

WEAK int halide_vulkan_device_and_host_malloc(void *user_context, halide_buffer_t *buf) {
    return halide_default_device_and_host_malloc(user_context, buf, &halide_vulkan_interface);
}
WEAK int halide_vulkan_device_and_host_free(void *user_context, halide_buffer_t *buf) {
    return halide_default_device_and_host_free(user_context, buf, &halide_vulkan_interface);
}

WEAK int halide_vulkan_device_crop(void *user_context, const halide_buffer_t *src, halide_buffer_t *dst) {
    Failure failure;
    if (!check_device_buffer(src, "crop", failure)) return report(user_context, failure);
    int64_t delta = 0;
    for (int i = 0; i < src->dimensions; i++) add_distance(src, i, dst->dim[i].min, &delta);
    const uint64_t number = crop_handle(src->device, delta, failure);
    if (number) set_device_side(dst, number);
    return report(user_context, failure);
}

WEAK int halide_vulkan_device_slice(void *user_context, const halide_buffer_t *src, int slice_dim, int slice_pos,
                                    halide_buffer_t *dst) {
    Failure failure;
    if (!check_device_buffer(src, "slice", failure)) return report(user_context, failure);
    int64_t delta = 0;
    add_distance(src, slice_dim, slice_pos, &delta);
    const uint64_t number = crop_handle(src->device, delta, failure);
    if (number) set_device_side(dst, number);
    return report(user_context, failure);
}

// The wrapper clears the buffer and the module count.
WEAK int halide_vulkan_device_release_crop(void *user_context, halide_buffer_t *buf) {
    if (buf->device) free_handle(user_context, buf->device);
    return kSuccess;
}

// `handle` is a VkBuffer of the context's device, made with transfer and storage usage, whose data begins at its first
// byte. It stays the application's.
WEAK int halide_vulkan_wrap_vk_buffer(void *user_context, halide_buffer_t *buf, uint64_t handle) {
    Failure failure;
    uint64_t bytes = 0, minimal = 0;
    if (buf->device) {
        failure.because(kWrapNativeFailed)
            << "Vulkan: a buffer that has a device allocation already cannot wrap another";
    } else if (handle == 0) {
        failure.because(kWrapNativeFailed) << "Vulkan: a null VkBuffer was given to wrap";
    } else if (measure_buffer(buf, &bytes, &minimal, failure)) {
        const uint64_t number = wrap_buffer(user_context, handle, bytes, minimal, failure);
        if (number) {
            set_device_side(buf, number);
            halide_vulkan_interface.impl->use_module();
        }
    }
    return report(user_context, failure);
}

WEAK int halide_vulkan_detach_vk_buffer(void *user_context, halide_buffer_t *buf) {
    if (buf->device == 0) return kSuccess;
    Failure failure;
    if (buf->device_interface != &halide_vulkan_interface) {
        failure.because(kIncompatibleDeviceInterface) << "Vulkan: detach: the buffer belongs to another device API";
        return report(user_context, failure);
    }
    submit_open_work(user_context, buf->device);
    end_handle(user_context, buf->device, false, failure);
    clear_device_side(buf);
    return kSuccess;
}

// The VkBuffer behind a buffer; it begins at the buffer's data. 0 when there is none. Borrowed.
WEAK uintptr_t halide_vulkan_get_vk_buffer(void *user_context, halide_buffer_t *buf) {
    if (buf->device == 0) return 0;
    Failure failure;
    uint64_t native = 0;
    if (check_device_buffer(buf, "get_vk_buffer", failure)) native = native_buffer(user_context, buf, failure);
    report(user_context, failure);
    return (uintptr_t)native;
}

// ---------------------------------------------------------------------------------------------------------------------
// Copies

WEAK int halide_vulkan_copy_to_device(void *user_context, halide_buffer_t *buf) {
    Failure failure;
    if (check_device_buffer(buf, "copy_to_device", failure)) {
        if (!buf->host && holds_nothing(buf)) return kSuccess;
        if (!buf->host)
            failure.because(kHostIsNull) << "Vulkan: copy_to_device: the buffer has no host memory";
        else
            copy_buffer(user_context, buf, true, false, buf, failure);
    }
    return report(user_context, failure);
}

WEAK int halide_vulkan_copy_to_host(void *user_context, halide_buffer_t *buf) {
    Failure failure;
    if (check_device_buffer(buf, "copy_to_host", failure)) {
        if (!buf->host && holds_nothing(buf)) return kSuccess;
        if (!buf->host)
            failure.because(kHostIsNull) << "Vulkan: copy_to_host: the buffer has no host memory";
        else
            copy_buffer(user_context, buf, false, true, buf, failure);
    }
    return report(user_context, failure);
}

WEAK int halide_vulkan_buffer_copy(void *user_context, halide_buffer_t *src,
                                   const halide_device_interface_t *dst_device_interface, halide_buffer_t *dst) {
    Failure failure;
    const bool to_host = dst_device_interface == nullptr;
    if (src->dimensions > kMaxDimensions || dst->dimensions > kMaxDimensions) {
        failure.because(kExtentsTooLarge) << "Vulkan: a copy of " << max_of(src->dimensions, dst->dimensions)
                                          << " dimensions was asked for, the limit is " << kMaxDimensions;
        return report(user_context, failure);
    }
    if (!to_host && dst_device_interface != &halide_vulkan_interface) {
        failure.because(kBufferCopyFailed) << "Vulkan: a copy to a buffer of another device API was asked for";
        return report(user_context, failure);
    }
    // The host's bytes where they are newer, or where there is nothing of ours to read.
    const bool host_is_newer = src->host && (src->flags & halide_buffer_flag_host_dirty);
    const bool ours = src->device && src->device_interface == &halide_vulkan_interface;
    const bool from_host = host_is_newer || (!ours && src->host && !(src->flags & halide_buffer_flag_device_dirty));
    if (!from_host && src->device && !ours)
        return kIncompatibleDeviceInterface;  // "bounce it through host memory", no message
    if (!from_host && !ours) {
        failure.because(kBufferCopyFailed)
            << "Vulkan: a copy from a buffer with neither host nor device memory was asked for";
    } else if (to_host ? dst->host == nullptr : dst->device == 0) {
        failure.because(kBufferCopyFailed)
            << "Vulkan: a copy to a buffer without " << (to_host ? "host" : "device") << " memory was asked for";
    } else {
        const int code = copy_buffer(user_context, src, from_host, to_host, dst, failure);
        if (!failure.failed()) return code;
    }
    return report(user_context, failure);
}

// ---------------------------------------------------------------------------------------------------------------------
// Kernels

WEAK int halide_vulkan_initialize_kernels(void *user_context, void **state_ptr, const char *src, int size) {
    Failure failure;
    if (state_ptr && src)
        modules.acquire_for(state_ptr, src, (size_t)max_of(size, 0), failure);
    else
        failure.because(kInternalError) << "Vulkan: initialize_kernels was given no kernels, or no place for its state";
    return report(user_context, failure);
}

WEAK void halide_vulkan_finalize_kernels(void *, void *state_ptr) {
    if (state_ptr) modules.release_use((Module *)state_ptr);
}

WEAK int halide_vulkan_run(void *user_context, void *state_ptr, const char *entry_name, int blocksX, int blocksY,
                           int blocksZ, int threadsX, int threadsY, int threadsZ, int shared_mem_bytes,
                           size_t arg_sizes[], void *args[], int8_t arg_is_buffer[]) {
    Failure failure;
    const int numbers[] = {blocksX, blocksY, blocksZ, threadsX, threadsY, threadsZ};
    LaunchRequest request = {};
    request.module = (const Module *)state_ptr;
    request.entry = entry_name;
    request.shared_bytes = (uint32_t)max_of(shared_mem_bytes, 0);
    request.sizes = arg_sizes;
    request.args = args;
    bool empty = false;
    for (int i = 0; i < 3; i++) {
        request.blocks[i] = (uint32_t)max_of(numbers[i], 0);
        request.threads[i] = (uint32_t)max_of(numbers[3 + i], 0);
        empty |= numbers[i] <= 0;
    }
    if (!request.module || !request.module->bytes) {
        failure.because(kInternalError) << "Vulkan: kernel '" << entry_name
                                        << "' was launched, but its module was not initialized";
    } else if (!empty && count_arguments(request, arg_is_buffer, failure)) {
        Launch(user_context, request, failure).run();
    }
    return report(user_context, failure);
}

// ---------------------------------------------------------------------------------------------------------------------
// The tables

WEAK const struct halide_device_interface_t *halide_vulkan_device_interface() { return &halide_vulkan_interface; }

WEAK struct halide_device_interface_impl_t halide_vulkan_interface_impl = {
    halide_use_jit_module,
    halide_release_jit_module,
    halide_vulkan_device_malloc,
    halide_vulkan_device_free,
    halide_vulkan_device_sync,
    halide_vulkan_device_release,
    halide_vulkan_copy_to_host,
    halide_vulkan_copy_to_device,
    halide_vulkan_device_and_host_malloc,
    halide_vulkan_device_and_host_free,
    halide_vulkan_buffer_copy,
    halide_vulkan_device_crop,
    halide_vulkan_device_slice,
    halide_vulkan_device_release_crop,
    halide_vulkan_wrap_vk_buffer,
    halide_vulkan_detach_vk_buffer,
};

WEAK struct halide_device_interface_t halide_vulkan_interface = {
    halide_device_malloc,
    halide_device_free,
    halide_device_sync,
    halide_device_release,
    halide_copy_to_host,
    halide_copy_to_device,
    halide_device_and_host_malloc,
    halide_device_and_host_free,
    halide_buffer_copy,
    halide_device_crop,
    halide_device_slice,
    halide_device_release_crop,
    halide_device_wrap_native,
    halide_device_detach_native,
    halide_vulkan_compute_capability,
    &halide_vulkan_interface_impl,
};

}  // extern "C"
