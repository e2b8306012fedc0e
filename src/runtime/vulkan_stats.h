// vulkan_stats.h: counters for people who want to see what the runtime does, and the registry they are found by.
//
// In a JIT program the runtime's functions cannot be found by name. libHalideVulkan.so therefore exports one data
// symbol, halide_vulkan_registry, zero until a runtime starts and enters its functions there. Where the symbol does not
// exist (an AOT program) nothing is entered: such programs call the functions by name.
//
// Several runtimes may be in one process: two flavours in JIT, and libraries compiled ahead of time that come and go.
// The registry leads to the one that started last. Behind its entries is a list of all, under a lock of its own, so
// that one that is unloaded gives way to another that is still there.
//
// Thread rule: collect_stats takes the device's lock. A runtime writes to the registry when it is loaded and unloaded.

#ifndef HALIDE_VULKAN_STATS_H
#define HALIDE_VULKAN_STATS_H

#include "halide_vulkan_stats.h"
#include "vulkan_describe.h"

namespace halide_vulkan {
namespace {

// Version 1 of the registry. Readers look at abi_version first.
constexpr uint32_t kRegistryVersion = 1;
struct Registry {
    uint32_t abi_version;
    uint32_t entry_count;
    void *entries[16];  // never moved; what a later version adds comes at the end

    // For runtimes, not for readers.
    struct Runtime {
        void *entries[16];  // the first is null: this place is free
        uint32_t entry_count;
        uint32_t version;
        uint64_t turn;  // grows with each that starts
    };
    uint32_t lock;  // atomic
    uint32_t padding;
    Runtime runtimes[16];  // one for which there is no room is not there to come back to
};
static_assert(sizeof(Registry) <= 4096, "the page that libHalideVulkan.so exports");

inline Registry *lock_registry() {
    Registry *registry = (Registry *)halide_get_symbol("halide_vulkan_registry");
    while (registry && __atomic_exchange_n(&registry->lock, 1, __ATOMIC_ACQUIRE) != 0) halide_thread_yield();
    return registry;
}
inline void unlock_registry(Registry *registry) { __atomic_store_n(&registry->lock, 0, __ATOMIC_RELEASE); }

inline void lead_to(Registry &registry, const Registry::Runtime &runtime) {
    __builtin_memcpy(registry.entries, runtime.entries, sizeof(runtime.entries));
    registry.entry_count = runtime.entry_count;
    __atomic_store_n(&registry.abi_version, runtime.version, __ATOMIC_RELEASE);
}

inline void enter_registry() {
    Registry *registry = lock_registry();
    if (!registry) return;
    Registry::Runtime mine = {};
    mine.entries[0] = (void *)halide_vulkan_get_stats;
    mine.entries[1] = (void *)halide_vulkan_device_interface;
    mine.entries[2] = (void *)halide_vulkan_describe;
    mine.entry_count = 3;
    mine.version = kRegistryVersion;
    Registry::Runtime *place = nullptr;
    for (Registry::Runtime &r : registry->runtimes) {
        mine.turn = max_of(mine.turn, r.turn + 1);
        if (!place && !r.entries[0]) place = &r;
    }
    if (place) *place = mine;
    lead_to(*registry, mine);
    unlock_registry(registry);
}

inline void leave_registry() {
    Registry *registry = lock_registry();
    if (!registry) return;
    void *const mine = (void *)halide_vulkan_get_stats;
    Registry::Runtime *newest = nullptr;
    for (Registry::Runtime &r : registry->runtimes) {
        if (r.entries[0] == mine) r = {};
        if (r.entries[0] && (!newest || r.turn > newest->turn)) newest = &r;
    }
    if (registry->entries[0] == mine) lead_to(*registry, newest ? *newest : Registry::Runtime{});
    unlock_registry(registry);
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
    out.used_bytes = d.memory.used_bytes();
    out.staging_bytes = d.staging.in_use(d.submissions.completed);
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
    out.version = HALIDE_VULKAN_STATS_VERSION;
    out.struct_bytes = sizeof(out);
    out.commands = d.submissions.commands_submitted;
    out.batches = d.submissions.batches;
    out.submissions_by_flusher = d.flusher.submissions;
    out.submissions_refused = d.submissions.refused();
    out.barriers_spared = d.submissions.barriers_spared;
    out.wait_ns = d.wait_ns;
    out.waits_blocked = d.waits_blocked;
    out.staging_reserved_bytes = d.staging.reserved();
    out.memory_blocks = d.memory.block_count();
    return true;
}

}  // namespace
}  // namespace halide_vulkan

#endif  // HALIDE_VULKAN_STATS_H
