// vulkan_stats.h: counters for people who want to see what the runtime does, and the registry they are found by.
//
// In a JIT program the runtime's functions cannot be found by name. libHalideVulkan.so therefore exports one data
// symbol, halide_vulkan_registry, zero until a runtime starts and enters its functions there. Where the symbol does not
// exist (an AOT program) nothing is entered: such programs call the functions by name.
//
// Thread rule: collect_stats takes the device's lock. The registry is written once, before the first call.

#ifndef HALIDE_VULKAN_STATS_H
#define HALIDE_VULKAN_STATS_H

#include "vulkan_describe.h"

extern "C" {

// All counts since the device was made. Later versions add at the end.
struct halide_vulkan_stats {
    uint64_t submissions;     // vkQueueSubmit calls that succeeded
    uint64_t in_flight;       // of them, not known to be done
    uint64_t barriers;        // inside batches; each submission has two more at its ends
    uint64_t waits;           // times a call waited for the GPU
    uint64_t reserved_bytes;  // device memory held in blocks
    uint64_t used_bytes;      // of it, in regions
    uint64_t staging_bytes;   // staging in flight
    char device_name[256];
    uint64_t pipelines;            // made, from the pipeline cache or anew
    uint64_t pipeline_ns;          // what that took, all together
    uint64_t cache_read_bytes;     // of the pipeline cache on disk: what this device began with
    uint64_t cache_written_bytes;  // what it wrote
    uint64_t cache_writes;
    char cache_note[256];  // what last went wrong with the pipeline cache on disk; empty: nothing
};

// Fills at most `bytes` of *out; returns 0, or an error when there is no device yet. Never makes one.
int halide_vulkan_get_stats(void *user_context, struct halide_vulkan_stats *out, size_t bytes);

}  // extern "C"

namespace halide_vulkan {
namespace {

// Version 1 of the registry. Readers look at abi_version first.
constexpr uint32_t kRegistryVersion = 1;
struct Registry {
    uint32_t abi_version;
    uint32_t entry_count;
    void *entries[16];  // never moved; what a later version adds comes at the end
};

inline void enter_registry() {
    Registry *registry = (Registry *)halide_get_symbol("halide_vulkan_registry");
    if (!registry) return;
    registry->entries[0] = (void *)halide_vulkan_get_stats;
    registry->entries[1] = (void *)halide_vulkan_device_interface;
    registry->entries[2] = (void *)halide_vulkan_describe;
    registry->entry_count = 3;
    __atomic_store_n(&registry->abi_version, kRegistryVersion, __ATOMIC_RELEASE);
}

inline bool collect_stats(void *user_context, halide_vulkan_stats &out, Failure &failure) {
    __builtin_memset((void *)&out, 0, sizeof(out));
    Session session(user_context, failure);
    if (!session.begin(Need::existing)) return false;
    Device &d = *session.device;
    out.submissions = d.submissions.submissions;
    out.in_flight = d.submissions.in_flight();
    out.barriers = d.submissions.barriers;
    out.waits = d.waits;
    out.reserved_bytes = d.memory.reserved_bytes;
    out.used_bytes = d.memory.ranges.used_bytes();
    out.staging_bytes = d.staging.in_use();
    Text(out.device_name, sizeof(out.device_name)) << d.gpu.properties.deviceName;
    PipelineCache &cache = d.cache;
    halide_mutex_lock(&cache.lock);
    out.pipelines = cache.made;
    out.pipeline_ns = cache.counts.made_ns;
    out.cache_read_bytes = cache.counts.read_bytes;
    out.cache_written_bytes = cache.counts.written_bytes;
    out.cache_writes = cache.counts.writes;
    Text(out.cache_note, sizeof(out.cache_note)) << cache.note;
    halide_mutex_unlock(&cache.lock);
    return true;
}

}  // namespace
}  // namespace halide_vulkan

#endif  // HALIDE_VULKAN_STATS_H
