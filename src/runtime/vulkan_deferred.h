// vulkan_deferred.h: Vulkan objects that die when the GPU is done with them.
//
// A pipeline that was evicted, or an alias buffer of a freed region, may still be named by a submission that runs. Each
// such object is queued as {kind, handle, epoch} and destroyed once that epoch has completed. Entries are plain
// numbers: no closure, no allocation while the queue stays within the size it has once had.
//
// Thread rule: unsafe, the device's lock. Ownership: a handle pushed belongs to the queue.

#ifndef HALIDE_VULKAN_DEFERRED_H
#define HALIDE_VULKAN_DEFERRED_H

#include "vulkan_gpu.h"

namespace halide_vulkan {
namespace {

enum class Dying : uint32_t {
    pipeline,
    buffer,
};

class Deferred {
public:
    // False when host memory is out; the handle then still belongs to the caller.
    bool push(Dying kind, uint64_t handle, uint64_t epoch) { return queue.push({kind, handle, epoch}); }
    bool reserve(size_t more) { return queue.reserve(queue.size() + more); }
    bool empty() const { return queue.empty(); }

    // Destroys what is done with. O(queue length), which is 0 in steady state.
    void collect(Gpu &gpu, uint64_t completed) {
        if (queue.empty()) return;
        size_t kept = 0;
        for (size_t i = 0; i < queue.size(); i++) {
            if (queue[i].epoch <= completed) {
                destroy(gpu, queue[i]);
            } else {
                queue[kept++] = queue[i];
            }
        }
        while (queue.size() > kept) queue.pop();
    }

    void release() { queue.release(); }

private:
    struct Entry {
        Dying kind;
        uint64_t handle;
        uint64_t epoch;
    };

    static void destroy(Gpu &gpu, const Entry &e) {
        switch (e.kind) {
        case Dying::pipeline:
            trace("vk_destroy_compute_pipeline", e.handle);
            gpu.vk.vkDestroyPipeline(gpu.device, (VkPipeline)e.handle, gpu.callbacks);
            break;
        case Dying::buffer: gpu.vk.vkDestroyBuffer(gpu.device, (VkBuffer)e.handle, gpu.callbacks); break;
        }
    }

    Array<Entry> queue;
};

}  // namespace
}  // namespace halide_vulkan

#endif  // HALIDE_VULKAN_DEFERRED_H
