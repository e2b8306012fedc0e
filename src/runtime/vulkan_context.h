// vulkan_context.h: the runtime's own context, and Session, the way of a call to a device.
//
// The own context (instance, device, queue) is made by the first call that needs it and lives until
// halide_device_release or the end of the process. halide_vulkan_acquire_context locks it and release_context unlocks
// it; the lock is what an application relies on that submits to our queue between the two.
//
// At exit: right after vkCreateDevice an exit handler is registered with __cxa_atexit, so it runs before those of the
// driver and the layers, which were loaded earlier. It waits for our work, destroys everything and marks the context as
// gone: later frees succeed silently, other calls are refused. Objects with static destructors would not do: in JIT
// programs they run at the wrong time or twice. When the module is unloaded first, its destructor runs the handler by
// __cxa_finalize, which also takes it off the list.
//
// Thread rule: Session objects live on one call's stack.

#ifndef HALIDE_VULKAN_CONTEXT_H
#define HALIDE_VULKAN_CONTEXT_H

#include "vulkan_anchor.h"
#include "vulkan_cache_saver.h"
#include "vulkan_flusher.h"

namespace halide_vulkan {
namespace {

struct OwnContext {
    Lock lock;  // held from acquire_context to release_context
    Instance instance;
    VkPhysicalDevice physical;
    VkDevice device;
    VkQueue queue;
    uint32_t family;
    DeviceChoice choice;  // which of the machine's devices it is, and what decided
    Device *state;
    const VkAllocationCallbacks *callbacks;  // those it was made with: it must be destroyed with them
    bool gone;                               // the process is exiting
    bool in_dlclose;                         // the exit handler runs because this library is being closed
    uint32_t deserted;  // the process ends while somebody holds the lock: nobody takes it any more; atomic
    uint64_t acquires;  // ever, by whomever
    uint64_t sessions;  // acquires that were sessions of ours, caught up with `acquires` by each
    bool lent;          // a device was lent, ever: the exit handler is registered
    // How far the driver has come since the context was made; atomic. It loads, and makes, what it needs for each only
    // then, and what is registered last runs first at exit.
    enum Stage : uint32_t { made, compiled, ran };
    uint32_t stage;
    KeptFailure failure;  // why the last attempt to make it failed; read by the session that asked for it
};
OwnContext own_context;  // zero-initialised

inline Lock *own_queue_lock() { return &own_context.lock; }

void leave_process(void *);

// Asked before the lock is taken, or let go.
inline bool may_lock_own_context() {
    return !is_forked_child() && !__atomic_load_n(&own_context.deserted, __ATOMIC_ACQUIRE);
}

// How long the exit handler waits for other threads to leave their calls: they only have to wake up and return. And for
// the lock, which an application may hold for its own work, on the very thread that ends the process too.
constexpr int kExitPatience_ms = 1000;

// Called for each new context, and for each of its stages. The handler runs as often as it was registered; the first
// time does the work.
inline void register_exit_handler() { run_at_exit(leave_process); }

// With devices.creating held. Once will do: of a lent device the handler touches nothing. Without it nobody would know,
// when this module is unloaded, whether the process goes on.
inline void note_lent_device() {
    if (!own_context.lent) register_exit_handler();
    own_context.lent = true;
}

// Before a device is made. Its handler is registered before the context's, so it runs after it, and the trace has it
// all.
inline void start_tracing(void *user_context) {
    if (!wants_trace(user_context) || tracing()) return;
    NumberOptions options;
    Failure told_later;
    if (!read_number_options(options, told_later)) return;
    tracer.start(user_context, halide_vulkan_get_trace_file(user_context), (uint64_t)options.trace_megabytes << 20);
    if (tracing()) run_at_exit([](void *) { tracer.stop(); });
}

// With no lock held.
inline void note_stage(OwnContext::Stage stage) {
    OwnContext &c = own_context;
    if (__atomic_load_n(&c.stage, __ATOMIC_ACQUIRE) >= stage) return;
    c.lock.lock();
    if (c.state && c.stage < stage) {
        __atomic_store_n(&c.stage, stage, __ATOMIC_RELEASE);
        register_exit_handler();
    }
    c.lock.unlock();
}

// With the context locked. All GPU work must be done, and the state unlisted.
inline void destroy_own_context() {
    OwnContext &c = own_context;
    if (c.state) {
        const DeviceFunctions vk = c.state->gpu.vk;
        destroy_state(c.state);
        c.state = nullptr;
        vk.vkDestroyDevice(c.device, c.callbacks);
        trace("vk_destroy_context", handle_number(c.device));
    }
    c.device = nullptr;
    c.queue = nullptr;
    c.physical = nullptr;
    if (c.gone)
        destroy_instance(c.instance, c.callbacks);
    else
        end_instance(c.instance, c.callbacks);
}

// With the context locked. On failure nothing is left behind.
inline bool create_own_context(void *user_context, Failure &failure) {
    OwnContext &c = own_context;
    if (c.gone) {
        failure.because(kNoDevice) << "Vulkan: the process is exiting, the device is gone";
        return false;
    }
    start_tracing(user_context);
    c.callbacks = halide_vulkan_get_allocation_callbacks(user_context);
    DeviceOffer offer;
    if (!create_instance(user_context, c.callbacks, c.instance, failure)) return false;
    NumberOptions options;
    if (read_number_options(options, failure))
        c.physical = choose_device(user_context, c.instance, offer, c.choice, failure);
    if (c.physical) c.family = choose_queue_family(offer, (QueueWish)options.queue, failure);
    if (c.physical && c.family != kNoIndex)
        c.device = create_device(c.instance, c.physical, offer, c.family, c.callbacks, failure);
    if (c.device) {
        __atomic_store_n(&c.stage, OwnContext::made, __ATOMIC_RELEASE);
        register_exit_handler();
        const PFN_vkGetDeviceQueue get_queue =
            (PFN_vkGetDeviceQueue)c.instance.vk.vkGetDeviceProcAddr(c.device, "vkGetDeviceQueue");
        if (get_queue) get_queue(c.device, c.family, 0, &c.queue);
        c.state = create_state(user_context, c.callbacks, c.instance.instance, c.physical, c.device, c.queue, c.family,
                               c.instance.abilities, failure);
    }
    if (c.state) {
        c.state->own = true;
        learn_memory_limits(c.instance.vk, min_of(offer.properties.apiVersion, c.instance.api_version),
                            c.instance.abilities, c.state->gpu);
        trace("vk_create_context", handle_number(c.device));
        list_device(c.state);
        return true;
    }
    if (c.device) {
        const PFN_vkDestroyDevice destroy =
            (PFN_vkDestroyDevice)c.instance.vk.vkGetDeviceProcAddr(c.device, "vkDestroyDevice");
        if (destroy) destroy(c.device, c.callbacks);
    }
    c.device = nullptr;
    c.queue = nullptr;
    c.physical = nullptr;
    end_instance(c.instance, c.callbacks);
    return false;
}

// What a session is for.
enum class Need {
    existing,  // the device if there is one; none is no failure
    device,    // a device, made if need be
    batch,     // and an open batch to record into
};

// One hold of the context and of a device's lock.
class Session {
public:
    Session(void *user_context, Failure &failure) : user_context(user_context), failure(failure) {}
    ~Session() { end(); }
    Session(const Session &) = delete;
    Session &operator=(const Session &) = delete;

    Device *device = nullptr;  // while held

    // Takes both locks. `pinned`: the device that the call already uses (it may enter while a release waits for it);
    // any other device is an error. False with the reason in failure, or, for Need::existing, when there is no device.
    bool begin(Need need, Device *pinned = nullptr);
    // Submits what an application's queue must not be left with, lets go, and waits for what a CPU device has to
    // compile. Safe to call twice.
    void end();
    // In a session that was begun for the device alone: whether a batch is open now. False without a failure: the ring
    // is full, and a session has to be begun for a batch.
    bool try_open_batch() {
        uint64_t wait_for = 0;
        if (!check_not_lost(device->gpu, failure) || !device->submissions.can_open(device->gpu, &wait_for))
            return false;
        return open_batch();
    }
    // Lets go, waits for the epoch, which is submitted first if it is still being recorded.
    bool end_and_wait(uint64_t epoch, Wait manner = Wait::soon) {
        Device *d = device;
        add_user(d);
        if (epoch > d->submissions.submitted) submit();
        end();
        const bool good = !failure.failed() && wait_until(*d, epoch, failure, manner);
        drop_user(d);
        return good;
    }

    bool submit() { return device->submissions.submit(device->gpu, failure); }

    // After a command was recorded: counts it, and submits the batch if the policy says so.
    bool recorded(uint64_t bytes) {
        Submissions &s = device->submissions;
        s.batch.commands++;
        s.batch.bytes += bytes;
        s.batch.predicted_ns = device->flush.predict(s.batch.commands);
        __atomic_add_fetch(&device->flusher.activity, 1, __ATOMIC_RELAXED);
        // The gap is the caller's own time: a submit of ours in between must not make the next command look late, or
        // one submit would lead to the next (9.4 us for each launch on an H200 instead of 3.1).
        const uint64_t now = now_ns(device->gpu.clock);
        const uint64_t gap = now - device->last_command_ns;
        device->last_command_ns = now;
        if (should_submit(gap)) {
            const bool submitted = submit();
            device->last_command_ns = now_ns(device->gpu.clock);
            return submitted;
        }
        // In the mode for counting, what is submitted when must not depend on time.
        if ((FlushMode)device->gpu.options.flush_mode == FlushMode::count || !device->own) return true;
        return arm_flusher(*device) || submit();
    }

private:
    friend class Shortage;  // tells its failure
    void *user_context;
    Failure &failure;
    bool acquired = false;
    VkInstance instance = nullptr;
    VkDevice handle = nullptr;
    VkQueue queue = nullptr;
    VkDebugUtilsMessengerEXT messenger = VK_NULL_HANDLE;
    uint64_t held_since = 0;  // for the trace; 0: nothing is held, or nobody looks

    bool acquire(Need need);
    bool should_submit(uint64_t gap) {
        Submissions &s = device->submissions;
        // The driver is asked only where the answer matters.
        if (!device->flush.should_submit(s.batch, 0, s.row, gap)) return false;
        // Another thread is at the door, with a command of its own or to submit: one submit will do for both. When four
        // threads take turns, a submit takes 5 us, more than the rest of a launch (H200: 11 us for each launch that is
        // waited for with this rule, 15 without).
        if (device->own && own_context.lock.is_wanted() && !device->flush.is_full(s.batch)) return false;
        s.poll(device->gpu);
        return device->flush.should_submit(s.batch, (uint32_t)s.in_flight(), s.row, gap);
    }
    bool use_queue(VkQueue queue, uint32_t family);
    // After can_open.
    bool open_batch() {
        __atomic_store_n(&device->busy, 1, __ATOMIC_RELEASE);
        device->memory.note_losses(device->submissions);
        return device->submissions.open_batch(device->gpu, failure);
    }
    HALIDE_VULKAN_COLD void await_first_run(Device &d, uint64_t epoch) {
        if (!failure.failed()) wait_until(d, epoch, failure);
        if (d.own) note_stage(OwnContext::ran);
    }
    HALIDE_VULKAN_COLD void tell_held() {
        const uint64_t now = tracer.now();
        tracer.push(TraceKind::session, 0, tracer.this_thread(), "holds both locks", held_since, now, nullptr, 0);
        held_since = 0;
    }
    void release() {
        if (!acquired) return;
        acquired = false;
        halide_vulkan_release_context(user_context, instance, handle, queue, messenger);
    }
};

// What gives way when a region is refused, for the call that asked for it.
class Shortage {
public:
    // `wait_for`: an epoch whose end frees memory, 0: none is known. True: ask again, in another session. Else nothing
    // is left that could go, and the refusal is the session's failure; or a wait failed, and that is.
    bool make_room(Session &session, uint64_t wait_for, const Failure &refused) {
        Device &d = *session.device;
        const Submissions &s = d.submissions;
        if (!wait_for && !d.gpu.lost) {
            // Staging goes last: where device and host share their memory, it is memory for buffers too. Then what was
            // recorded is waited for, once: it holds staging, and memory of the driver's own.
            if (d.staging.trim(d.gpu, s.completed)) return true;
            if (!waited && s.newest_recorded() > s.completed) wait_for = s.newest_recorded();
            waited = true;
        }
        if (wait_for) return session.end_and_wait(wait_for);
        session.failure.take(refused);
        return false;
    }

private:
    bool waited = false;
};

inline void Session::end() {
    Device *const d = device;
    uint64_t first_run = 0;
    if (d) {
        Submissions &s = d->submissions;
        first_run = s.take_first_run();
        // An application's queue is ours only until release_context.
        if ((!d->own || first_run > s.submitted) && s.open && s.batch.commands > 0) submit();
        d->lock.unlock();
        if (__builtin_expect(held_since != 0, 0)) tell_held();
        device = nullptr;
    }
    release();
    if (!d) return;
    if (__builtin_expect(first_run != 0, 0)) await_first_run(*d, first_run);
    drop_user(d);
}

// Calls the hook and finds the device's state, as one more user of it, unlocked.
inline bool Session::acquire(Need need) {
    halide_vulkan_memory_allocator *allocator = nullptr;
    VkPhysicalDevice physical = nullptr;
    uint32_t family = 0;
    const bool create = need != Need::existing;
    if (!check_not_forked(failure)) return false;
    const uint64_t asked = tracing() ? tracer.now() : 0;
    const int code = halide_vulkan_acquire_context(user_context, &allocator, &instance, &handle, &physical, &queue,
                                                   &family, &messenger, create);
    if (asked) tell_lock_wait("context lock", asked);
    acquired = true;
    if (code != kSuccess) {
        // The own context says why; a replaced hook has spoken for itself, if at all.
        if (own_context.failure.code == code) {
            failure.because(code) << own_context.failure.message;
            own_context.failure.code = kSuccess;
        } else {
            failure.because(code) << "Vulkan: halide_vulkan_acquire_context failed with code " << code;
        }
        return false;
    }
    if (!handle) {
        if (create) failure.because(kNoDevice) << "Vulkan: halide_vulkan_acquire_context gave no device";
        return false;
    }
    if (!instance || !physical || !queue) {
        failure.because(kNoDevice) << "Vulkan: halide_vulkan_acquire_context gave a device and no "
                                   << (!instance   ? "instance"
                                       : !physical ? "physical device"
                                                   : "queue");
        return false;
    }
    if (handle == own_context.device && own_context.state) {
        device = own_context.state;  // guarded by the context's lock, which is held
        add_user(device);
    } else {
        halide_mutex_lock(&devices.creating);
        device = find_device(handle);
        if (!device && create) {
            start_tracing(user_context);
            DeviceAbilities abilities = {};
            abilities.features = kAllFeatures;
            device = create_state(user_context, halide_vulkan_get_allocation_callbacks(user_context), instance,
                                  physical, handle, queue, family, abilities, failure);
            if (device) {
                add_user(device);
                list_device(device);
                note_lent_device();
            }
        }
        halide_mutex_unlock(&devices.creating);
    }
    if (!device) return false;
    lock_traced(device->lock, "device lock");
    if (tracing()) held_since = tracer.now();
    // Whoever else held the queue may have submitted to it.
    bool outside = !device->own;
    if (device == own_context.state) {
        outside = ++own_context.sessions != own_context.acquires;
        own_context.sessions = own_context.acquires;
    }
    if (outside) device->submissions.note_outside_work();
    return use_queue(queue, family);
}

// Work on another queue than before: waits for what is in flight, without touching the queue that was left, then
// switches. Rare, so the wait happens under the lock.
inline bool Session::use_queue(VkQueue new_queue, uint32_t new_family) {
    Gpu &gpu = device->gpu;
    if (gpu.queue == new_queue) return true;
    if (!check_family(gpu, new_family, failure)) return false;
    Submissions &s = device->submissions;
    s.abandon_batch();
    const char *call = nullptr;
    const VkResult result = s.drain(gpu, &call);
    if (result != VK_SUCCESS) {
        gpu_failed(gpu, failure, call, result) << " before a change of queue";
        return false;
    }
    device->deferred.collect(gpu, s.completed);
    if (gpu.family != new_family) {
        // Until the new pools are there, no queue and no family is in use: a failure is tried again by the next call.
        gpu.queue = nullptr;
        gpu.family = new_family;
        s.destroy_pools(gpu);
        if (!s.create_pools(gpu, failure)) {
            gpu.family = kNoIndex;
            return false;
        }
        s.timeline.change_family(gpu, s.completed);
    }
    gpu.queue = new_queue;
    return true;
}

inline bool Session::begin(Need need, Device *pinned) {
    for (;;) {
        if (!acquire(need)) {
            if (pinned && !failure.failed()) failure.because(kNoDevice) << "Vulkan: the context has no device any more";
            end();
            return false;
        }
        if (pinned && device != pinned) {
            failure.because(kNoDevice) << "Vulkan: the buffer belongs to another device than this context's";
            end();
            return false;
        }
        if (is_releasing(device) && !pinned) {
            // device_release waits for its users to leave; a new call comes after it.
            end();
            halide_thread_yield();
            continue;
        }
        if (need != Need::batch) return true;
        if (!check_not_lost(device->gpu, failure)) {
            end();
            return false;
        }
        uint64_t wait_for = 0;
        if (device->submissions.can_open(device->gpu, &wait_for)) {
            if (open_batch()) return true;
            end();
            return false;
        }
        if (wait_for == 0) {
            end();
            const TraceSpan span(TraceKind::call, "yield to a waiter");
            halide_thread_yield();
        } else if (!end_and_wait(wait_for + kSlots / 2 - 1, Wait::patiently)) {
            return false;
        }
    }
}

// Ends everything of the context's device: waits for its calls and its work, orphans its handles, destroys its state.
// Called with no lock held. Fails only where the context cannot be had: work that failed, or a device that was lost,
// has been told to the calls that asked for it, and the release goes on.
inline void release_device(void *user_context, Failure &failure) {
    Device *d = nullptr;
    {
        Session session(user_context, failure);
        if (!session.begin(Need::existing)) return;
        d = session.device;
        __atomic_store_n(&d->releasing, 1, __ATOMIC_RELEASE);
        add_user(d);
        Failure told;
        d->submissions.submit(d->gpu, told);
    }
    handles.orphan_all(d);
    stop_flusher(*d);
    finish_cache(*d);
    for (;; halide_thread_yield()) {
        Failure waiting, later;
        wait_until(*d, UINT64_MAX, waiting);
        // A call that is still inside may have recorded more: look again with the locks held.
        Session session(user_context, later);
        if (!session.begin(Need::existing, d)) {
            // The hook gives another context now, or none. The state can go all the same: its queue is not touched.
            // Once nobody else is inside, nothing is submitted any more.
            uint64_t completed;
            const bool alone = __atomic_load_n(&d->users, __ATOMIC_ACQUIRE) == 1;
            if (!alone || !has_ended(*d, &completed) || !unlist_device(d, 1)) continue;
            d->workers.stop();
            destroy_state(d);
            return;
        }
        if (d->submissions.open) session.submit();
        // A driver that neither waits nor answers when asked has nothing to give any more.
        if (waiting.failed() && !d->submissions.poll(d->gpu)) d->gpu.lost = true;
        if (!d->gpu.lost && d->submissions.in_flight() > 0) continue;
        if (!unlist_device(d, 2)) continue;  // we, and our session
        d->workers.stop();
        d->lock.unlock();
        session.device = nullptr;
        if (d == own_context.state) {
            destroy_own_context();
        } else {
            destroy_state(d);
        }
        return;
    }
}

// How long a library that is being closed waits for a GPU that finishes nothing. Above what a driver's watchdog lets a
// kernel run, which is 2 s on many.
constexpr int kClosePatience_ms = 3000;

// Whether the work is done. dlclose holds the dynamic linker's lock meanwhile, and a thread of the driver may want that
// before it goes on. So a wait without end might have none.
inline bool wait_in_dlclose(Device &d) {
    uint64_t before = 0, completed = 0;
    for (int waited = 0; waited < kClosePatience_ms; waited++) {
        if (has_ended(d, &completed)) return true;
        if (completed != before) waited = 0;
        before = completed;
        halide_sleep_us(nullptr, 1000);
    }
    return false;
}

// With the context locked: a device that the driver still works on stays, for the rest of the process. What would lead
// into this library goes.
inline void leave_own_context() {
    OwnContext &c = own_context;
    destroy_messenger(c.instance, c.callbacks);
    c.state = nullptr;
    c.device = nullptr;
    c.queue = nullptr;
    c.physical = nullptr;
    c.instance.instance = nullptr;
}

// The exit handler, see the head of this file. Applications' devices are left alone: they may be gone already.
void leave_process(void *) {
    if (!may_lock_own_context()) return;  // the parent's, or somebody's who will not let go
    OwnContext &c = own_context;
    if (c.in_dlclose) {
        c.lock.lock();
    } else if (!c.lock.lock_within(kExitPatience_ms)) {
        __atomic_store_n(&c.deserted, 1, __ATOMIC_RELEASE);
        return;
    }
    c.gone = true;
    Device *d = c.state;
    if (d) {
        add_user(d);
        __atomic_store_n(&d->releasing, 1, __ATOMIC_RELEASE);
        handles.orphan_all(d);
        c.lock.unlock();
        stop_flusher(*d);
        finish_cache(*d);
        c.lock.lock();
        d->lock.lock();
        // Nobody can look at what was never submitted. Submitting it here would be a risk for nothing: a layer's
        // thread-local objects are destroyed before exit handlers run (Khronos' validation of submits crashes so).
        d->submissions.abandon_batch();
        d->lock.unlock();
        const bool done = !c.in_dlclose || wait_in_dlclose(*d);
        if (done) outwait(*d);
        // Waiters of other threads leave now that the work is done. One that stays is the thread that called exit from
        // inside a call: then nothing can be destroyed safely, and the process ends without it.
        for (int i = 0; i < kExitPatience_ms && __atomic_load_n(&d->users, __ATOMIC_ACQUIRE) > 1; i++) {
            c.lock.unlock();
            halide_sleep_us(nullptr, 1000);
            c.lock.lock();
        }
        if (unlist_device(d, 1)) {
            d->workers.stop();
            if (done)
                destroy_own_context();
            else
                leave_own_context();
        }
    }
    c.lock.unlock();
}

// The version of the device that is, or would be, chosen; 0 when there is none. Nothing is left behind.
inline uint32_t device_version(void *user_context) {
    if (!may_lock_own_context()) return 0;
    own_context.lock.lock();
    uint32_t version =
        own_context.state ? min_of(own_context.state->gpu.properties.apiVersion, own_context.instance.api_version) : 0;
    const bool gone = own_context.gone;
    own_context.lock.unlock();
    if (version || gone) return version;
    Failure ignored;
    Instance instance = {};
    DeviceOffer offer;
    DeviceChoice choice;
    const VkAllocationCallbacks *callbacks = halide_vulkan_get_allocation_callbacks(user_context);
    if (!create_instance(user_context, callbacks, instance, ignored)) return 0;
    if (choose_device(user_context, instance, offer, choice, ignored))
        version = min_of(offer.properties.apiVersion, instance.api_version);
    end_instance(instance, callbacks);
    return version;
}

}  // namespace
}  // namespace halide_vulkan

#endif  // HALIDE_VULKAN_CONTEXT_H
