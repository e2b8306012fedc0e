// vulkan_sync.h: waiting for the device, and giving back what nothing uses.
//
// Thread rule: entered by any number of threads.

#ifndef HALIDE_VULKAN_SYNC_H
#define HALIDE_VULKAN_SYNC_H

#include "vulkan_buffers.h"

namespace halide_vulkan {
namespace {

// Where nothing is left to submit, the queue is not needed, and threads that submit are not waited for. False, with
// nothing done, where it is. A buffer whose contents were lost has nothing that could be waited for.
inline bool sync_submitted(Device &d, uint32_t region, Failure &failure) {
    Submissions &s = d.submissions;
    d.lock.lock();
    if (!d.gpu.lost && d.memory.is_lost(d.memory.region(region), s)) {
        failure.because(kGpuDeviceError) << "Vulkan: the contents of the buffer were lost: " << s.lost_cause();
        d.lock.unlock();
        return true;
    }
    const bool possible = !(s.open && s.batch.commands > 0) && !s.has_unreported() && !d.gpu.lost;
    const uint64_t target = s.submitted;
    const bool wait = s.completed < target;
    if (possible && !wait) note_idle(d);
    d.lock.unlock();
    if (possible && wait) wait_until(d, target, failure);
    return possible;
}

// Waits for everything recorded so far on the buffer's device, or on the context's when there is no buffer.
inline void sync(void *user_context, uint64_t number, Failure &failure) {
    Pinned pinned(number);
    if (number && !pinned.check("device_sync", failure)) return;
    if (pinned.device && (is_idle(*pinned.device) || sync_submitted(*pinned.device, pinned.handle.region, failure)))
        return;
    Session session(user_context, failure);
    if (!session.begin(Need::existing, pinned.device)) return;
    Device &d = *session.device;
    Submissions &s = d.submissions;
    if (!check_not_lost(d.gpu, failure)) return;
    if (const char *cause = s.take_unreported()) {
        failure.because(kGpuDeviceError) << cause;
        return;
    }
    const bool unsubmitted = s.open && s.batch.commands > 0;
    const uint64_t target = unsubmitted ? s.open_epoch() : s.submitted;
    if (unsubmitted) s.poll(d.gpu);
    // With two submissions to run, the open batch would only queue behind them. It stays open until one is left, so
    // that the commands of other threads that arrive meanwhile share its submit.
    if (unsubmitted && s.in_flight() >= 2) {
        add_user(&d);
        const bool waited = session.end_and_wait(s.submitted - 1);
        const bool again = waited && session.begin(Need::existing, &d);
        drop_user(&d);
        if (!again) return;
    }
    if (s.completed < target)
        session.end_and_wait(target);
    else
        note_idle(d);
}

// Waits for the GPU, then gives back every block, ring and pipeline memory that nothing uses.
inline void give_back_unused(void *user_context) {
    Failure ignored;
    Session session(user_context, ignored);
    if (!session.begin(Need::existing)) return;
    Device *d = session.device;
    add_user(d);
    if (d->submissions.open && d->submissions.batch.commands > 0) session.submit();
    session.end_and_wait(d->submissions.submitted);
    d->lock.lock();
    d->memory.trim(d->gpu, d->submissions.completed);
    d->staging.trim(d->gpu, d->submissions.completed);
    d->lock.unlock();
    drop_user(d);
}

// An application's next submission on the queue then comes after ours.
inline void submit_open_work(void *user_context, uint64_t number) {
    Failure ignored;
    Pinned pinned(number);
    if (!pinned.device) return;
    Session session(user_context, ignored);
    if (session.begin(Need::existing, pinned.device)) session.submit();
}

}  // namespace
}  // namespace halide_vulkan

#endif  // HALIDE_VULKAN_SYNC_H
