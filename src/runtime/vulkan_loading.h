// vulkan_loading.h: what runs when the module is loaded and unloaded.
//
// In JIT programs the module is unloaded only when all pipelines and Halide's shared runtimes are released, so at exit
// the exit handler (vulkan_context.h) comes first, and this finds nothing to do. A library that was compiled ahead of
// time is unloaded by dlclose, and may come again any number of times: it leaves no memory behind.
//
// Thread rule: the loader's; nothing of ours runs at the same time.

#ifndef HALIDE_VULKAN_LOADING_H
#define HALIDE_VULKAN_LOADING_H

#include "vulkan_stats.h"

extern "C" {
int halide_vulkan_release_unused_device_allocations(void *user_context);
}

namespace halide_vulkan {
namespace {

int release_unused_for_pool(void *user_context) {
    return halide_vulkan_release_unused_device_allocations(user_context);
}

struct halide_device_allocation_pool allocation_pool;

__attribute__((constructor)) void load_module() {
    enter_registry();
    allocation_pool.release_unused = release_unused_for_pool;
    allocation_pool.next = nullptr;
    halide_register_device_allocation_pool(&allocation_pool);
}

// Whether this code lies in a file that the dynamic linker knows, as it does unless it was compiled just in time.
inline bool is_in_library() {
    typedef int (*Find)(const void *, void *);
    const Find find = (Find)halide_get_symbol("dladdr");
    const void *found[8];  // a Dl_info has four pointers
    return !find || find(&module_mark, found) != 0;
}

// Runs when the module is unloaded; at exit the handler has run already, and this finds nothing to do.
__attribute__((destructor)) void unload_module() {
    typedef void (*Finalize)(void *);
    const Finalize finalize = has_exit_handlers ? (Finalize)halide_get_symbol("__cxa_finalize") : nullptr;
    // A handler that has not run: the process goes on without this module. At exit others may still be in their calls.
    const bool unloaded = has_exit_handlers && !own_context.gone && !own_context.deserted;
    own_context.in_dlclose = unloaded && is_in_library();
    if (finalize)
        finalize(&module_mark);
    else
        leave_process(nullptr);
    leave_registry();
    if (!unloaded) {
        tracer.stop();
        return;
    }
    // What is listed now was lent, and not released: its objects stay, for it may be gone already, but not its threads.
    for (Device *d = devices.first; d; d = d->next) d->workers.stop();
    has_exit_handlers = 0;
    tracer.forget();
    modules.forget_all();
    handles.forget_all();
    unmark_process();
}

}  // namespace
}  // namespace halide_vulkan

#endif  // HALIDE_VULKAN_LOADING_H
