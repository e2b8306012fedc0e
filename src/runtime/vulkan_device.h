// vulkan_device.h: everything the runtime keeps for one VkDevice, and how calls get at it.
//
// State is kept per VkDevice, ours or an application's: a replaced halide_vulkan_acquire_context hands over handles,
// and the state is found by the device among them. What an application made is never destroyed here.
//
// Locks, in the order they are taken:
//   1. the context: halide_vulkan_acquire_context .. release_context. It guards the queue. Taken only by calls that may
//      submit, never nested, released exactly once per acquire, a failed one included.
//   2. Device::lock: everything in Device. Short: no wait for the GPU, no large memcpy, no compilation happens under
//   it.
//   3. the handle table, the module table, the list of devices: leaves.
// Waiting for the GPU happens under none of them: a waiter pins its slot and counts as a user of the device, and
// device_release waits for the users to leave. So a call is written as a Session (locks 1 and 2), or several with waits
// between them.
//
// The failure of a call is reported when no lock is held.

#ifndef HALIDE_VULKAN_DEVICE_H
#define HALIDE_VULKAN_DEVICE_H

#include "vulkan_arguments.h"
#include "vulkan_cache.h"
#include "vulkan_copy_kernel.h"
#include "vulkan_handles.h"
#include "vulkan_lock.h"
#include "vulkan_process.h"
#include "vulkan_staging.h"
#include "vulkan_strided_kernel.h"
#include "vulkan_workers.h"

namespace halide_vulkan {
namespace {

// The thread that submits what a caller left open (vulkan_flusher.h). Guarded by the device's lock.
struct Flusher {
    halide_mutex sleeping;  // the thread's own, for `wake`: a leaf
    halide_cond wake;
    halide_thread *thread;  // null until a batch is first left open
    uint32_t armed;         // there may be something to submit; written under the device's lock, read without
    uint32_t stop;          // atomic
    uint64_t submissions;   // by it, ever
    uint32_t activity;      // commands recorded, wraps around; atomic
};

struct Device {
    Lock lock;
    Gpu gpu;
    Submissions submissions;
    Deferred deferred;
    Memory memory;
    Staging staging;
    Shapes shapes;
    PipelineCache cache;
    Kernels kernels;
    FlushPolicy flush;
    WaitPolicy waiting;
    LaunchScratch scratch;
    Flusher flusher;
    Workers workers;
    CopyKernel copy_kernel;
    StridedKernel strided_kernel;
    uint64_t waits, waits_blocked, wait_ns;  // ever, for statistics
    uint32_t users;                          // calls inside; atomic
    uint32_t busy;  // 0: nothing recorded, in flight or to be told; set and cleared under the lock, read without it
    uint32_t releasing;  // device_release is under way: new calls wait outside; atomic
    uint64_t last_command_ns;
    uint64_t last_done_ns;  // when a wait last saw the end of a submission
    uint64_t last_sweep_ns;
    uint64_t last_sweep_epoch;
    bool own;  // the VkDevice is of our making
    Device *next;
};

// Every device that has state here. An application rarely has more than one.
struct Devices {
    halide_mutex lock;
    halide_mutex creating;  // held while a state is looked for and made, so that a VkDevice never gets two
    Device *first;
};
Devices devices;  // zero-initialised

// With the device locked: a sync that comes now, or later, may see that there is nothing to wait for. Once something
// was lost, the sync of a buffer must look whether that is its own.
inline void note_idle(Device &d) {
    const Submissions &s = d.submissions;
    if (s.losses() == 0 && (!s.open || s.batch.commands == 0) && s.completed == s.submitted && !s.has_unreported() &&
        !d.gpu.lost) {
        __atomic_store_n(&d.busy, 0, __ATOMIC_RELEASE);
    }
}
inline bool is_idle(const Device &d) { return __atomic_load_n(&d.busy, __ATOMIC_ACQUIRE) == 0; }

inline void add_user(Device *d) { __atomic_add_fetch(&d->users, 1, __ATOMIC_ACQ_REL); }
inline void drop_user(Device *d) { __atomic_sub_fetch(&d->users, 1, __ATOMIC_ACQ_REL); }
inline bool is_releasing(const Device *d) { return __atomic_load_n(&d->releasing, __ATOMIC_ACQUIRE) != 0; }

inline void destroy_state(Device *d) {
    Gpu &gpu = d->gpu;
    d->submissions.timeline.collect(gpu, d->submissions.completed);
    d->submissions.timeline.destroy(gpu);
    d->deferred.collect(gpu, UINT64_MAX);
    d->deferred.release();
    d->scratch.release();
    d->copy_kernel.destroy(gpu);
    d->strided_kernel.destroy(gpu);
    d->kernels.destroy(gpu);
    d->cache.destroy(gpu);
    d->shapes.destroy(gpu);
    d->staging.destroy(gpu);
    d->memory.destroy(gpu);
    d->submissions.destroy(gpu);
    host_free(d);
    // The last device's end: the trace is complete on disk.
    halide_mutex_lock(&devices.lock);
    const bool last = devices.first == nullptr;
    halide_mutex_unlock(&devices.lock);
    if (last) tracer.stop();
}

// The state for a device, without owning the device. Null with the reason in failure; nothing is left behind.
inline Device *create_state(void *user_context, const VkAllocationCallbacks *callbacks, VkInstance instance,
                            VkPhysicalDevice physical, VkDevice device, VkQueue queue, uint32_t family,
                            const DeviceAbilities &abilities, Failure &failure) {
    mark_process();
    NumberOptions options;
    AllocConfig config;
    if (!read_number_options(options, failure) ||
        !parse_alloc_config(halide_vulkan_get_alloc_config(user_context), config, failure)) {
        return nullptr;
    }
    const PFN_vkGetInstanceProcAddr find = find_loader(user_context, failure);
    InstanceFunctions vk;
    if (!find || !load_instance_functions(find, instance, vk, failure)) return nullptr;
    Device *d = (Device *)host_malloc(sizeof(Device));
    if (!d) {
        failure.because(kOutOfMemory) << "Vulkan: out of host memory for a device's state";
        return nullptr;
    }
    __builtin_memset((void *)d, 0, sizeof(Device));
    Gpu &gpu = d->gpu;
    gpu.instance = instance;
    gpu.physical = physical;
    gpu.device = device;
    gpu.queue = queue;
    gpu.family = family;
    gpu.callbacks = callbacks;
    gpu.options = options;
    gpu.alloc_config = config;
    gpu.abilities = abilities;
    vk.vkGetPhysicalDeviceProperties(physical, &gpu.properties);
    vk.vkGetPhysicalDeviceMemoryProperties(physical, &gpu.memory);
    if (!abilities.one_family) learn_sharing(vk, gpu);
    gpu.storage_range = storage_range(gpu.properties);
    gpu.rare_clock = find_clock();
    gpu.clock = clock_for_policies(gpu.rare_clock);
    const uint32_t cores = usable_cores();
    gpu.can_spin = spinning_pays(options, gpu.properties.deviceType, cores);
    __atomic_store_n(&lock_looks, cores == 1 ? 0 : kLockLooks, __ATOMIC_RELAXED);
    d->workers.configure(copy_threads(options, cores));
    FlushOptions flush;
    flush.mode = (FlushMode)options.flush_mode;
    flush.max_commands = kBatchCommands;
    d->flush = FlushPolicy(flush);
    d->waiting = WaitPolicy(gpu.can_spin);
    d->staging.create(gpu);
    if (!check_family(gpu, family, failure) ||
        !load_device_functions(vk.vkGetDeviceProcAddr, device, gpu.vk, failure)) {
        host_free(d);
        return nullptr;
    }
    // Room for what usually dies at once, so that queueing it cannot fail.
    if (!d->deferred.reserve(64)) failure.because(kOutOfMemory) << "Vulkan: out of host memory for a device's state";
    if (failure.failed() || !d->submissions.create(gpu, failure) || !d->memory.create(gpu, failure) ||
        !d->cache.create(gpu, vk, min_of(abilities.instance_version, gpu.properties.apiVersion), failure)) {
        destroy_state(d);
        return nullptr;
    }
    const bool timed = d->submissions.timeline.create(gpu, vk);
    gpu.marked = timed || abilities.debug_utils;
    gpu.serial = tracing() && options.trace_serial;
    name_object(gpu, VK_OBJECT_TYPE_DEVICE, device, "device");
    name_object(gpu, VK_OBJECT_TYPE_QUEUE, queue, "queue of family", family + 1);
    return d;
}

inline void list_device(Device *d) {
    halide_mutex_lock(&devices.lock);
    d->next = devices.first;
    devices.first = d;
    halide_mutex_unlock(&devices.lock);
}
// Takes the device off the list if nobody but the caller's `own_users` uses it: then nobody can find it any more.
inline bool unlist_device(Device *d, uint32_t own_users) {
    halide_mutex_lock(&devices.lock);
    const bool alone = __atomic_load_n(&d->users, __ATOMIC_ACQUIRE) == own_users;
    Device **at = &devices.first;
    while (*at && *at != d) at = &(*at)->next;
    if (*at && alone) *at = d->next;
    halide_mutex_unlock(&devices.lock);
    return alone;
}

// The state of a VkDevice, with one more user; null when there is none.
inline Device *find_device(VkDevice device) {
    halide_mutex_lock(&devices.lock);
    Device *d = devices.first;
    while (d && d->gpu.device != device) d = d->next;
    if (d) add_user(d);
    halide_mutex_unlock(&devices.lock);
    return d;
}

// The device of a live handle, with one more user; `take` ends the handle at the same time. Null: the handle is stale,
// or its device was released.
inline Device *pin_device_of(uint64_t number, Handle *copy, bool take = false) {
    if (is_forked_child()) return nullptr;
    handles.lock_table();
    Handle *h = handles.find(number);
    Device *d = h ? h->device : nullptr;
    if (d) {
        add_user(d);
        *copy = *h;
    }
    if (h && take) handles.drop_locked(h, number);
    handles.unlock_table();
    return d;
}

// What the submissions up to `target` took on the GPU, for the flush policy. Known only when the end was waited for;
// the beginning is the submit, or the end before it: with the wake-up time a little too much, which errs on the safe
// side.
inline void learn_time(Device &d, uint64_t target, bool waited) {
    Submissions &s = d.submissions;
    // A CPU device has no watchdog, and takes as long as the rest of the machine leaves it.
    if (d.gpu.properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU) return;
    const uint64_t now = now_ns(d.gpu.clock);
    if (waited && now && target > s.completed) {
        uint32_t commands = 0;
        for (uint64_t e = s.completed + 1; e <= target; e++) commands += s.slot_of(e).command_count;
        const uint64_t begin = max_of(d.last_done_ns, s.slot_of(s.completed + 1).submit_ns);
        if (now > begin) d.flush.learn(commands, now - begin);
    }
    d.last_done_ns = now;
}

// Looked at every so many submissions, so that waits do not read the clock for it.
constexpr uint64_t kSweepEpochs = 64;

// Trim by age, with the device locked, at the end of a wait: the caller has lost time anyway. A wait that comes early
// costs a comparison. Where there is no clock, memory is kept.
inline void sweep_unused(Device &d) {
    const uint64_t epoch = d.submissions.submitted;
    if (epoch - d.last_sweep_epoch < kSweepEpochs || d.gpu.options.trim_ms == 0 || d.gpu.lost) return;
    d.last_sweep_epoch = epoch;
    const uint64_t now = now_ns(d.gpu.rare_clock);
    if (now - d.last_sweep_ns < d.gpu.options.trim_ms * (uint64_t)1000000) return;
    d.last_sweep_ns = now;
    d.memory.sweep(d.gpu, d.submissions.completed);
    d.staging.sweep(d.gpu, d.submissions.completed);
}

// Whether the GPU is done with what was submitted, or will never say. *completed: the newest epoch that is done.
inline bool has_ended(Device &d, uint64_t *completed) {
    d.lock.lock();
    const bool ended = !d.submissions.poll(d.gpu) || d.submissions.in_flight() == 0;
    *completed = d.submissions.completed;
    d.lock.unlock();
    return ended;
}

// How to wait.
enum class Wait {
    soon,  // somebody wants to go on the moment it is done: spin, as long as that pays
    // For room among the submissions, while half of them are still to run: the GPU has work for longer than it takes a
    // thread to wake, so the processor is left to others.
    patiently,
};

// Waits until the submission of this epoch is done, under no lock. The caller is a user of the device. False with the
// reason in failure when the device is lost or the wait fails.
inline bool wait_until(Device &d, uint64_t epoch, Failure &failure, Wait manner = Wait::soon) {
    Gpu &gpu = d.gpu;
    Submissions &s = d.submissions;
    uint64_t began = 0;
    lock_traced(d.lock, "device lock");
    for (bool first = true;; first = false) {
        // A refused submission never ends; the one before it does.
        uint64_t target = min_of(epoch, s.submitted);
        while (target > s.completed && s.slot_of(target).lost) target--;
        if (target <= s.completed || !check_not_lost(gpu, failure)) break;
        Slot &slot = s.slot_of(target);
        if (first) {
            d.waits++;
            began = now_ns(gpu.clock);
            s.open_ahead(gpu);
        }
        slot.pins++;
        const uint32_t budget = manner == Wait::soon ? d.waiting.budget_ns() : 0;
        d.lock.unlock();

        TraceSpan span(TraceKind::wait, "wait for the GPU");
        uint32_t polls = 0;
        uint64_t spun_ns = 0;
        const uint64_t begin_ns = budget ? now_ns(gpu.clock) : 0;
        VkResult result = VK_NOT_READY;
        while (spun_ns < budget && result == VK_NOT_READY) {
            result = s.progress.passed(gpu, target);
            // A look at the clock costs as much as a poll or two.
            if ((++polls & 7) == 0 || result != VK_NOT_READY)
                spun_ns = begin_ns ? now_ns(gpu.clock) - begin_ns : (uint64_t)polls * WaitPolicy::kPoll_ns;
        }
        // A look that fails, out of memory say, says nothing about the work: the wait asks again.
        const bool blocked = result != VK_SUCCESS && result != VK_ERROR_DEVICE_LOST;
        const char *call = s.progress.query_name();
        if (blocked) result = s.progress.wait(gpu, target, &call);
        span.tell(target, polls, blocked);

        lock_traced(d.lock, "device lock");
        slot.pins--;
        d.waits_blocked += blocked;
        if (manner == Wait::soon && blocked)
            d.waiting.blocked();
        else if (!blocked)
            d.waiting.finished();
        if (result == VK_SUCCESS) {
            learn_time(d, target, blocked || polls > 1);
            s.completed = max_of(s.completed, target);
        } else if (result != VK_TIMEOUT) {
            gpu_failed(gpu, failure, call, result, kDeviceSyncFailed);
            break;
        }
    }
    s.row = 0;
    if (began) d.wait_ns += now_ns(gpu.clock) - began;
    s.skip_lost();
    s.timeline.collect(gpu, s.completed);
    d.deferred.collect(gpu, s.completed);
    sweep_unused(d);
    note_idle(d);
    d.lock.unlock();
    return !failure.failed();
}

// Before a device is destroyed and nobody is left to be told: a wait may fail for want of memory, which says nothing of
// the work. Ends when all is done, or the driver does not even answer when asked.
inline void outwait(Device &d) {
    for (;; halide_thread_yield()) {
        Failure untold;
        uint64_t completed;
        if (wait_until(d, UINT64_MAX, untold) || has_ended(d, &completed)) return;
    }
}

}  // namespace
}  // namespace halide_vulkan

#endif  // HALIDE_VULKAN_DEVICE_H
