// vulkan_process.h: is this still the process that made the Vulkan objects?
//
// A child after fork has the memory of its parent but not its threads, and a driver works with threads and with handles
// of the kernel that the child shares by accident. So the child must not touch what the parent made: a call there is
// refused with one message, frees are harmless, and its exit leaves everything alone. To know, one page is marked that
// the kernel hands to a child as zeros (Linux since 4.14); elsewhere a fork goes unnoticed.
//
// What is to run at its exit is kept here too.
//
// Thread rule: mark from any thread, as often as there are devices; unmark when no other thread is in this runtime.

#ifndef HALIDE_VULKAN_PROCESS_H
#define HALIDE_VULKAN_PROCESS_H

#include "vulkan_base.h"

namespace halide_vulkan {
namespace {

constexpr size_t kForkPageBytes = 4096;  // the advice is given by pages; larger pages are marked whole

// Its address names this module to __cxa_atexit and __cxa_finalize.
char module_mark;
uint32_t has_exit_handlers;  // atomic

// Runs the handler at exit, or when this module is unloaded; what is registered last runs first. False where there is
// no __cxa_atexit (another C library): then the module's destructor does what it can.
inline bool run_at_exit(void (*handler)(void *)) {
    typedef int (*AtExit)(void (*)(void *), void *, void *);
    const AtExit at_exit = (AtExit)halide_get_symbol("__cxa_atexit");
    if (!at_exit || at_exit(handler, nullptr, &module_mark) != 0) return false;
    __atomic_store_n(&has_exit_handlers, 1, __ATOMIC_RELEASE);
    return true;
}

uint32_t *fork_page;  // null: not marked, or not possible

inline void unmap_fork_page(void *page) {
    typedef int (*Unmap)(void *, size_t);
    const Unmap unmap = page ? (Unmap)halide_get_symbol("munmap") : nullptr;
    if (unmap) unmap(page, kForkPageBytes);
}

inline void mark_process() {
#ifndef WINDOWS
    if (__atomic_load_n(&fork_page, __ATOMIC_ACQUIRE)) return;
    typedef void *(*Map)(void *, size_t, int, int, int, intptr_t);
    typedef int (*Advise)(void *, size_t, int);
    const Map map = (Map)halide_get_symbol("mmap");
    const Advise advise = (Advise)halide_get_symbol("madvise");
    if (!map || !advise) return;
    // Linux' numbers: readable and writable; private and anonymous; MADV_WIPEONFORK. Another system refuses the advice.
    void *page = map(nullptr, kForkPageBytes, 1 | 2, 0x02 | 0x20, -1, 0);
    if (page == (void *)-1) return;
    *(uint32_t *)page = 1;
    uint32_t *none = nullptr;
    if (advise(page, kForkPageBytes, 18) != 0 ||
        !__atomic_compare_exchange_n(&fork_page, &none, (uint32_t *)page, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED)) {
        unmap_fork_page(page);
    }
#endif
}

// When this runtime is unloaded.
inline void unmark_process() {
    unmap_fork_page(fork_page);
    fork_page = nullptr;
}

// True in a child whose parent had used Vulkan before the fork.
inline bool is_forked_child() {
    uint32_t *page = __atomic_load_n(&fork_page, __ATOMIC_ACQUIRE);
    return page && __atomic_load_n(page, __ATOMIC_RELAXED) == 0;
}

// Asked before any lock is taken: one that another thread held at the fork is never free in the child.
inline bool check_not_forked(Failure &failure) {
    if (!is_forked_child()) return true;
    failure.because(kNoDevice)
        << "Vulkan: this process is a fork of one that used Vulkan; use Vulkan after the fork only";
    return false;
}

}  // namespace
}  // namespace halide_vulkan

#endif  // HALIDE_VULKAN_PROCESS_H
