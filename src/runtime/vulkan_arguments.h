// vulkan_arguments.h: the buffer arguments of a launch while it is put together.
//
// Thread rule: unsafe, the device's lock.

#ifndef HALIDE_VULKAN_ARGUMENTS_H
#define HALIDE_VULKAN_ARGUMENTS_H

#include "vulkan_binding.h"
#include "vulkan_hazards.h"
#include "vulkan_kernels.h"

namespace halide_vulkan {
namespace {

// One buffer argument of a launch.
struct BoundArgument {
    uint32_t region;
    uint32_t bounce_region;  // kNoIndex: none
    Binding binding;
    uint64_t begin, bytes;  // in the VkBuffer
    uint32_t place;         // in SpirvInfo::buffers; kNoIndex when the kernel never mentions it
    bool written;
};

// Working memory of a launch, kept by the device so that none is allocated per call. Guarded by the device's lock.
struct LaunchScratch {
    Array<BoundArgument> arguments;
    Array<Access> accesses;
    Array<VkDescriptorBufferInfo> descriptors;
    Array<int32_t> push;

    bool reserve(uint32_t buffers) {
        return arguments.resize(buffers) && accesses.resize(buffers) && descriptors.resize(buffers + 1) &&
               push.resize(kIndexOffsetsAt / 4 + buffers);
    }
    void release() {
        arguments.release();
        accesses.release();
        descriptors.release();
        push.release();
    }
};

}  // namespace
}  // namespace halide_vulkan

#endif  // HALIDE_VULKAN_ARGUMENTS_H
