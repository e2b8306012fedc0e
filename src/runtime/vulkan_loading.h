// vulkan_loading.h: what runs when the module is loaded and unloaded.
//
// In JIT programs the module is unloaded only when all pipelines and Halide's shared runtimes are released, so at exit
// the exit handler (vulkan_context.h) comes first, and this finds nothing to do.
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

// Runs when the module is unloaded; at exit the handler has run already, and this finds nothing to do.
__attribute__((destructor)) void unload_module() {
    typedef void (*Finalize)(void *);
    const Finalize finalize = own_context.at_exit_registered ? (Finalize)halide_get_symbol("__cxa_finalize") : nullptr;
    if (finalize)
        finalize(&module_mark);
    else
        leave_process(nullptr);
    tracer.stop();
}

}  // namespace
}  // namespace halide_vulkan

#endif  // HALIDE_VULKAN_LOADING_H
