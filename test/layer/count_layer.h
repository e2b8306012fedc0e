// count_layer.h: how a test talks to VK_LAYER_HALIDEVULKAN_count.
//
// The layer is a real Vulkan layer: it sits between whatever runtime is tested (ours or stock) and the driver, so what
// it counts is what the driver was asked, not what the runtime says of itself. It is switched on by name, with
// HL_VK_LAYERS=VK_LAYER_HALIDEVULKAN_count or VK_INSTANCE_LAYERS=..., and then counts every call, keeps a ledger of
// live objects, and, when told to, fails calls or reports other limits and memory types than the driver's.
//
// Layers are loaded privately and their symbols are in no global scope; so a test opens the very same file first
// (HV_COUNT_LAYER, which CTest sets) and finds the functions in it. The file stays loaded until the process ends, so
// failures and limits may be set before the first Vulkan call, and counts be read after the last.
//
// Thread rule: all functions may be called from any thread at any time. Limits and memory types are read when the
// runtime asks for them, which is mostly once, when it makes its context: set them before.

#ifndef HALIDE_VULKAN_COUNT_LAYER_H
#define HALIDE_VULKAN_COUNT_LAYER_H

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define HV_COUNT_LAYER_NAME "VK_LAYER_HALIDEVULKAN_count"

// X(return type, function without hv_layer_, parameters, arguments)
#define HV_LAYER_FUNCTIONS(X)                                                                                          \
    /* Calls of one entry point since the last reset. An unknown name gives UINT64_MAX. */                             \
    X(uint64_t, count, (const char *call), (call))                                                                     \
    /* Calls of all entry points whose names begin so: "vkCreate", "vkCmdDispatch", "vk" for all. */                   \
    X(uint64_t, count_prefix, (const char *prefix), (prefix))                                                          \
    /* Of the calls of vkCmdPipelineBarrier, those that only make memory ready for the CPU: to the host alone. */      \
    X(uint64_t, host_barriers, (void), ())                                                                             \
    /* All counts to 0. Failures, limits and the ledger stay. */                                                       \
    X(void, reset, (void), ())                                                                                         \
    /* The nth following call (1 = the next) returns result without reaching the driver; nth < 0: every call; 0: none. \
       Returns 0 where the name is unknown or the function returns no VkResult. */                                     \
    X(int, fail, (const char *call, int nth, int result), (call, nth, result))                                         \
    /* The same for the nth call that can fail, whatever its name, with the choice-th of the errors that the           \
       specification allows it; for_good: all later calls of that name too. nth 0: none. A device that was said to be  \
       lost stays lost, whatever failed it. */                                                                         \
    X(void, fail_nth, (int nth, int choice, int for_good), (nth, choice, for_good))                                    \
    /* The nth following submit (1 = the next) loses the device. */                                                    \
    X(void, lose, (int nth_submit), (nth_submit))                                                                      \
    /* The first call that was failed since the last hv_layer_clear, its result, how many errors it may return. */     \
    X(const char *, failed_call, (void), ())                                                                           \
    X(int, failed_result, (void), ())                                                                                  \
    X(int, failed_choices, (void), ())                                                                                 \
    /* Times a call was failed since the process began; -1: it cannot fail, or is unknown. */                          \
    X(int64_t, ever_failed, (const char *call), (call))                                                                \
    /* Whether calls are logged from now on; and the i-th that was since the last reset, the first 65536 of them, null \
       after the last. */                                                                                              \
    X(void, log, (int on), (on))                                                                                       \
    X(const char *, logged, (uint64_t i, int *result), (i, result))                                                    \
    /* Calls that were failed in this way since the process began. */                                                  \
    X(uint64_t, failed, (void), ())                                                                                    \
    /* Reports another value for a limit or feature; see reports.cpp for the keys. Returns 0 for an unknown key. */    \
    X(int, limit, (const char *key, uint64_t value), (key, value))                                                     \
    /* Reports these memory types (VkMemoryPropertyFlags each) instead of the driver's; count 0: the driver's again.   \
       Each is backed by a driver's type that can do as much. A type without HOST_VISIBLE refuses to be mapped, one    \
       without HOST_COHERENT really needs flush and invalidate. */                                                     \
    X(int, memory_types, (const uint32_t *flags, int count), (flags, count))                                           \
    /* Forgets failures, limits and memory types. */                                                                   \
    X(void, clear, (void), ())                                                                                         \
    /* Objects made and not yet destroyed: "VkBuffer", "VkDeviceMemory", ..., "" for all, "mapped" for mappings. An    \
       unknown type gives -1. */                                                                                       \
    X(int64_t, live, (const char *type), (type))                                                                       \
    /* Of them, those that were given no name with vkSetDebugUtilsObjectNameEXT. */                                    \
    X(int64_t, unnamed, (const char *type), (type))                                                                    \
    /* Names given since the last reset that contain this text. */                                                     \
    X(uint64_t, names, (const char *part), (part))                                                                     \
    /* Labels begun in command buffers since the last reset whose text contains this one. */                           \
    X(uint64_t, labels, (const char *part), (part))                                                                    \
    /* Bytes of device memory allocated now, and the most there ever were since the last reset. */                     \
    X(uint64_t, allocated_bytes, (void), ())                                                                           \
    X(uint64_t, peak_allocated_bytes, (void), ())                                                                      \
    /* Destroys of handles the layer does not know: double destroys, or of objects that outlived their device. */      \
    X(uint64_t, wrong_destroys, (void), ())                                                                            \
    /* Instances made with the layer in it, ever: 0 says that the layer is not in use. */                              \
    X(uint64_t, instances, (void), ())                                                                                 \
    /* Whether a device of this vendor (its vendorID) was told of since the process began. */                          \
    X(int, told_vendor, (uint32_t vendor), (vendor))                                                                   \
    /* VkPhysicalDeviceType of the device that was made last, as it was told; -1: none was. */                         \
    X(int, device_type, (void), ())                                                                                    \
    /* Pipelines that were in the VkPipelineCache they were made with, and those that were not; caches that were begun \
       with content that is damaged or another driver's. Since the process began, with the limit pipelineCache.model.  \
     */                                                                                                                \
    X(uint64_t, cache_found, (void), ())                                                                               \
    X(uint64_t, cache_compiled, (void), ())                                                                            \
    X(uint64_t, cache_refused, (void), ())                                                                             \
    /* What the newest VkPipelineCache was begun with: its size, and as much of it as there is room for. */            \
    X(uint64_t, cache_initial, (void *to, uint64_t room), (to, room))                                                  \
    /* Prints the counts that are not 0. */                                                                            \
    X(void, print, (FILE * to), (to))

#ifdef HV_COUNT_LAYER_IMPLEMENTATION

extern "C" {
#define X(result, name, parameters, arguments) __attribute__((visibility("default"))) result hv_layer_##name parameters;
HV_LAYER_FUNCTIONS(X)
#undef X
}

#else

// The test's side: hv_layer_count(...) and the rest as plain functions, looked up in the layer's file when first
// called.
inline void *hv_layer_file() {
    static void *file = [] {
        const char *path = getenv("HV_COUNT_LAYER");
        void *opened = path ? dlopen(path, RTLD_NOW) : nullptr;
        if (!opened) {
            fprintf(stderr, "count_layer.h: HV_COUNT_LAYER does not name the layer: %s\n", path ? dlerror() : "unset");
            abort();
        }
        return opened;
    }();
    return file;
}

#define X(result, name, parameters, arguments)                                                                         \
    inline result hv_layer_##name parameters {                                                                         \
        static auto *function = (result(*) parameters)dlsym(hv_layer_file(), "hv_layer_" #name);                       \
        return function arguments;                                                                                     \
    }
HV_LAYER_FUNCTIONS(X)
#undef X

// VkPhysicalDeviceType, of the device that was made last.
inline bool hv_layer_is_integrated() { return hv_layer_device_type() == 1; }
inline bool hv_layer_is_discrete() { return hv_layer_device_type() == 2; }
inline bool hv_layer_is_cpu() { return hv_layer_device_type() == 4; }

// What is live after a device's release and should not be. One instance may be: our runtime keeps it on purpose where
// there is an NVIDIA device, whose driver cannot be loaded often (vulkan_anchor.h).
inline int64_t hv_layer_left() {
    const bool anchored = hv_layer_told_vendor(0x10de) && hv_layer_live("VkInstance") > 0;
    return hv_layer_live("") - (anchored ? 1 : 0);
}

#endif
#endif
