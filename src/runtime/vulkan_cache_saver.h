// vulkan_cache_saver.h: the thread that writes the pipeline cache while the program runs.
//
// Most programs end in order, and the end of the device writes the file. A server may run for weeks and then be killed.
// So the first pipeline that is made starts a thread, if there is a folder to write to: it sleeps until something was
// made, then looks ten times a second until nothing more comes (SavePolicy), writes, and sleeps again. It holds no lock
// of the device, so launches and compilations go on meanwhile.
//
// Only for our own context: an application may destroy its device before it tells us. HL_VK_FLUSH_THREAD=0 does without
// this thread as well.
//
// Thread rule: note_pipeline and finish_cache are called with no lock held.

#ifndef HALIDE_VULKAN_CACHE_SAVER_H
#define HALIDE_VULKAN_CACHE_SAVER_H

#include "vulkan_device.h"

namespace halide_vulkan {
namespace {

constexpr uint32_t kSaverStep_ms = 100;
constexpr int kSaverNap_ms = 10;  // how long the end of the device may have to wait for the thread

inline void run_saver(void *device) {
    Device &d = *(Device *)device;
    PipelineCache &c = d.cache;
    SavePolicy policy;
    halide_mutex_lock(&c.lock);
    while (!c.stopping) {
        if (__atomic_load_n(&c.made, __ATOMIC_ACQUIRE) == c.tried()) {
            halide_cond_wait(&c.wake, &c.lock);
            continue;
        }
        for (uint32_t slept = 0; slept < kSaverStep_ms && !c.stopping; slept += kSaverNap_ms) {
            halide_mutex_unlock(&c.lock);
            halide_sleep_us(nullptr, kSaverNap_ms * 1000);
            halide_mutex_lock(&c.lock);
        }
        if (c.stopping) break;  // who stops us saves
        if (!policy.should_save(__atomic_load_n(&c.made, __ATOMIC_ACQUIRE), c.tried(), kSaverStep_ms)) continue;
        halide_mutex_unlock(&c.lock);
        c.save(d.gpu, false);
        halide_mutex_lock(&c.lock);
    }
    halide_mutex_unlock(&c.lock);
}

// A pipeline was made, which took so long.
inline void note_pipeline(Device &d, uint64_t took_ns) {
    PipelineCache &c = d.cache;
    halide_mutex_lock(&c.lock);
    __atomic_add_fetch(&c.made, 1, __ATOMIC_RELEASE);
    c.counts.made_ns += took_ns;
    if (d.own && c.on_disk() && d.gpu.options.flush_thread && !c.stopping) {
        // Without a thread the end of the device still writes.
        if (!c.saver) c.saver = halide_spawn_thread(run_saver, &d);
        halide_cond_signal(&c.wake);
    }
    halide_mutex_unlock(&c.lock);
}

// Ends the thread and writes what is left. Before the device goes.
inline void finish_cache(Device &d) {
    PipelineCache &c = d.cache;
    halide_mutex_lock(&c.lock);
    halide_thread *thread = c.saver;
    c.saver = nullptr;
    c.stopping = true;
    halide_cond_signal(&c.wake);
    halide_mutex_unlock(&c.lock);
    if (thread) halide_join_thread(thread);
    c.save(d.gpu, true);
}

}  // namespace
}  // namespace halide_vulkan

#endif  // HALIDE_VULKAN_CACHE_SAVER_H
