// vulkan_flusher.h: nothing stays unsubmitted when the caller goes quiet.
//
// A batch is left open while the GPU has enough to run. If the caller then makes no further call, nobody would submit
// it: the GPU would go idle with work at hand. So the first batch that is left open starts one thread. While commands
// keep coming it only looks, five thousand times a second at most, whether they still do, under no lock: the callers
// submit. When none came between two looks, and the GPU is down to one submission, it submits what is open. With
// nothing open it sleeps until there is again. It never blocks in the driver, so a count of waits counts those of
// callers alone.
//
// Only on our own context: an application's queue is ours between acquire and release alone, so its batches are
// submitted before release. The thread is joined before the device goes; HL_VK_FLUSH_THREAD=0 does without.
//
// Thread rule: arm and the loop hold the device's lock; stop is called with no lock held.

#ifndef HALIDE_VULKAN_FLUSHER_H
#define HALIDE_VULKAN_FLUSHER_H

#include "vulkan_device.h"

namespace halide_vulkan {
namespace {

// A caller that recorded nothing for so long is busy with something else. Long against a launch, short against what a
// person or a camera notices; the thread costs under 1 % of a core while it looks.
constexpr int kQuiet_us = 200;

// The queue's lock of the own context (vulkan_context.h), which a submit needs and which comes before the device's.
inline Lock *own_queue_lock();

inline bool is_armed(const Device &d) { return __atomic_load_n(&d.flusher.armed, __ATOMIC_RELAXED) != 0; }
inline void set_armed(Device &d, uint32_t to) { __atomic_store_n(&d.flusher.armed, to, __ATOMIC_RELAXED); }
inline bool must_stop(const Device &d) { return __atomic_load_n(&d.flusher.stop, __ATOMIC_ACQUIRE) != 0; }

// One round of the thread, under the device's lock.
inline void flush_round(Device &d) {
    Submissions &s = d.submissions;
    Failure failure;
    if (!s.open || s.batch.commands == 0 || d.gpu.lost) {
        set_armed(d, 0);
        return;
    }
    s.poll(d.gpu);
    if (s.in_flight() >= 2) return;  // enough to run: look again in a while
    // The lock order is queue, device.
    d.lock.unlock();
    lock_traced(*own_queue_lock(), "context lock");
    lock_traced(d.lock, "device lock");
    const uint64_t before = s.submissions;
    // A refusal is told by the next device_sync, and by whoever reads what was to be written.
    if (!must_stop(d) && s.open && s.batch.commands > 0 && s.in_flight() < 2 && !s.submit(d.gpu, failure))
        s.leave_unreported();
    d.flusher.submissions += s.submissions - before;
    own_queue_lock()->unlock();
}

// Returns when no command was recorded for a while. Called with no lock held: a thread that came by for the lock now
// and then would cost the callers more than it spares them (measured on an H200: 2 us for each launch).
inline void wait_for_quiet(const Device &d) {
    uint32_t seen;
    do {
        seen = __atomic_load_n(&d.flusher.activity, __ATOMIC_RELAXED);
        halide_sleep_us(nullptr, kQuiet_us);
    } while (!must_stop(d) && seen != __atomic_load_n(&d.flusher.activity, __ATOMIC_RELAXED));
}

// Sleeps until there may be something to submit, or the end.
inline void sleep_until_armed(Device &d) {
    halide_mutex_lock(&d.flusher.sleeping);
    while (!must_stop(d) && !is_armed(d)) halide_cond_wait(&d.flusher.wake, &d.flusher.sleeping);
    halide_mutex_unlock(&d.flusher.sleeping);
}

inline void wake_flusher(Device &d) {
    halide_mutex_lock(&d.flusher.sleeping);
    halide_cond_signal(&d.flusher.wake);
    halide_mutex_unlock(&d.flusher.sleeping);
}

inline void run_flusher(void *device) {
    Device &d = *(Device *)device;
    if (tracing()) tracer.name_this_thread("halide_vulkan flusher");
    for (sleep_until_armed(d); !must_stop(d); sleep_until_armed(d)) {
        wait_for_quiet(d);
        d.lock.lock();
        if (!must_stop(d)) flush_round(d);
        d.lock.unlock();
    }
    if (tracing()) tracer.end_this_thread();
}

// A batch stays open: somebody will submit it. False when there can be no thread; the caller submits then.
inline bool arm_flusher(Device &d) {
    if (is_armed(d)) return true;
    if (!d.own || !d.gpu.options.flush_thread || must_stop(d)) return false;
    set_armed(d, 1);
    if (d.flusher.thread) {
        wake_flusher(d);
        return true;
    }
    d.flusher.thread = halide_spawn_thread(run_flusher, &d);
    if (!d.flusher.thread) set_armed(d, 0);
    return d.flusher.thread != nullptr;
}

inline void stop_flusher(Device &d) {
    d.lock.lock();
    halide_thread *thread = d.flusher.thread;
    d.flusher.thread = nullptr;
    __atomic_store_n(&d.flusher.stop, 1, __ATOMIC_RELEASE);
    set_armed(d, 0);
    d.lock.unlock();
    wake_flusher(d);
    if (thread) halide_join_thread(thread);
}

}  // namespace
}  // namespace halide_vulkan

#endif  // HALIDE_VULKAN_FLUSHER_H
