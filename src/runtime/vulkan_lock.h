// vulkan_lock.h: the lock of the context and of a device.
//
// What it guards is held for some microseconds: the longest hold is a submit, 2 to 5 us. Halide's own mutex gives a
// waiter's processor away at once and soon puts it to sleep; to be woken costs ten times the hold. With four threads
// that launch and sync, that was most of the time (16 us for each operation where the driver needs 8, H200). So a
// waiter first looks for a while whether the lock is free, and only then sleeps, on Halide's mutex and condition
// variable.
//
// Zero-initialised is free. Uncontended: one compare-and-swap and one exchange. Not recursive, not fair; a thread that
// waits long enough sleeps, and is woken by the next unlock.

#ifndef HALIDE_VULKAN_LOCK_H
#define HALIDE_VULKAN_LOCK_H

#include "vulkan_base.h"

namespace halide_vulkan {
namespace {

// Looks at the lock before sleeping: about 20 us, four submits in a row. 0 where there is one usable core: there the
// holder cannot go on while another spins. Set before the locks are contended.
constexpr uint32_t kLockLooks = 20000;
uint32_t lock_looks;

class Lock {
public:
    void lock() {
        uint32_t expected = kFree;
        if (__atomic_compare_exchange_n(&state, &expected, kHeld, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) return;
        lock_contended();
    }

    // Waits for so long at most. True when it is held now.
    bool lock_within(int milliseconds) {
        for (;; milliseconds--) {
            uint32_t expected = kFree;
            if (__atomic_compare_exchange_n(&state, &expected, kHeld, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
                return true;
            if (look()) return true;
            if (milliseconds <= 0) return false;
            halide_sleep_us(nullptr, 1000);
        }
    }

    // Whether another thread wants it now.
    bool is_wanted() const { return __atomic_load_n(&wanting, __ATOMIC_RELAXED) != 0; }

    void unlock() {
        if (__atomic_exchange_n(&state, kFree, __ATOMIC_RELEASE) == kAwaited) wake_one();
    }

private:
    enum : uint32_t {
        kFree,
        kHeld,
        kAwaited,  // held, and somebody may be asleep
    };
    uint32_t state;
    uint32_t wanting;  // threads that look or sleep
    halide_mutex sleeping;
    halide_cond freed;

    [[gnu::noinline]] void lock_contended() {
        __atomic_add_fetch(&wanting, 1, __ATOMIC_RELAXED);
        if (!look()) sleep();
        __atomic_sub_fetch(&wanting, 1, __ATOMIC_RELAXED);
    }

    bool look() {
        for (uint32_t left = __atomic_load_n(&lock_looks, __ATOMIC_RELAXED); left > 0; left--) {
            uint32_t seen = __atomic_load_n(&state, __ATOMIC_RELAXED);
            if (seen == kFree &&
                __atomic_compare_exchange_n(&state, &seen, kHeld, true, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
                return true;
            }
        }
        return false;
    }

    void sleep() {
        // Who takes the lock here leaves it marked, since others may sleep as well: a wake-up too many at worst.
        halide_mutex_lock(&sleeping);
        while (__atomic_exchange_n(&state, kAwaited, __ATOMIC_ACQUIRE) != kFree) halide_cond_wait(&freed, &sleeping);
        halide_mutex_unlock(&sleeping);
    }

    // Between the mark and its sleep a waiter holds `sleeping`, so this cannot come too early.
    [[gnu::noinline]] void wake_one() {
        halide_mutex_lock(&sleeping);
        halide_cond_signal(&freed);
        halide_mutex_unlock(&sleeping);
    }
};

}  // namespace
}  // namespace halide_vulkan

#endif  // HALIDE_VULKAN_LOCK_H
