// vulkan_anchor.h: one instance that stays, so that a driver stays loaded.
//
// The loader unloads the drivers with the last instance. NVIDIA's libraries do not take that often: their thread-local
// storage is of a kind that the C library does not give back, and the 31st vkCreateInstance of a process fails with
// VK_ERROR_INCOMPATIBLE_DRIVER (driver 580, H200, with and without a device made in between; with one instance kept, 80
// were made). A program that releases its device after each job would lose its GPU after some jobs. So the first
// instance that saw such a device is not destroyed when it is no longer needed, but at exit, or when this module is
// unloaded.
//
// Not where the application gave allocation callbacks: they may be gone by then.
//
// Thread rule: entered by any number of threads.

#ifndef HALIDE_VULKAN_ANCHOR_H
#define HALIDE_VULKAN_ANCHOR_H

#include "vulkan_instance.h"
#include "vulkan_process.h"

namespace halide_vulkan {
namespace {

struct Anchor {
    uint32_t taken;  // atomic
    VkInstance instance;
    PFN_vkDestroyInstance destroy;
};
Anchor anchor;  // zero-initialised

void drop_anchor(void *) {
    if (!anchor.instance || is_forked_child()) return;
    anchor.destroy(anchor.instance, nullptr);
    anchor = {};
}

// Instead of destroy_instance, for an instance that nothing uses any more. At exit, destroy_instance it is.
inline void end_instance(Instance &in, const VkAllocationCallbacks *callbacks) {
    const bool wanted = in.instance && in.must_stay_loaded && !callbacks;
    if (wanted && __atomic_exchange_n(&anchor.taken, 1, __ATOMIC_ACQ_REL) == 0 && run_at_exit(drop_anchor)) {
        anchor.destroy = in.vk.vkDestroyInstance;
        anchor.instance = in.instance;
        destroy_messenger(in, callbacks);
        in.instance = nullptr;
    }
    destroy_instance(in, callbacks);
}

}  // namespace
}  // namespace halide_vulkan

#endif  // HALIDE_VULKAN_ANCHOR_H
