// vulkan_progress.h: how the host learns which submissions are done.
//
// By one timeline semaphore, whose value is the newest epoch that is done; or, where the device has none, by a fence
// for each slot. With a timeline one call tells about all submissions, nothing is reset between uses, and the first
// locked instruction after a poll that saw the end costs 0.03 us instead of 0.35 (raw, H200; 1.8 us in a launch that is
// waited for).
//
// A timeline is used on our own device only: an application's may have been made without the feature, and there is no
// way to ask. HL_VK_SYNC forces either.
//
// Thread rule: passed() and wait() may be called outside the device's lock, for an epoch whose slot is pinned; the rest
// under it. Ownership: the semaphore or the fences are made by create() and go with destroy().

#ifndef HALIDE_VULKAN_PROGRESS_H
#define HALIDE_VULKAN_PROGRESS_H

#include "vulkan_gpu.h"

namespace halide_vulkan {
namespace {

// Two submissions in flight keep the GPU busy; 16 let a caller run 16 batches ahead before it has to wait.
constexpr uint32_t kSlots = 16;

// HL_VK_SYNC.
enum class SyncChoice : uint32_t { automatic, timeline, fence };

class Progress {
public:
    bool has_timeline() const { return timeline != VK_NULL_HANDLE; }

    // A timeline that is offered but cannot be made is no failure, unless it was asked for by name.
    bool create(Gpu &gpu, Failure &failure) {
        const SyncChoice choice = (SyncChoice)gpu.options.sync;
        VkResult result = VK_ERROR_FEATURE_NOT_PRESENT;
        if (gpu.abilities.timeline && choice != SyncChoice::fence) result = create_timeline(gpu);
        if (result == VK_SUCCESS) return true;
        if (choice == SyncChoice::timeline) {
            gpu_failed(gpu, failure, "vkCreateSemaphore", result)
                << ": HL_VK_SYNC=timeline asks for a timeline semaphore on " << gpu.properties.deviceName;
            return false;
        }
        return create_fences(gpu, failure);
    }

    void destroy(Gpu &gpu) {
        if (timeline) gpu.vk.vkDestroySemaphore(gpu.device, timeline, gpu.callbacks);
        timeline = VK_NULL_HANDLE;
        for (VkFence &fence : fences) {
            if (fence) gpu.vk.vkDestroyFence(gpu.device, fence, gpu.callbacks);
            fence = VK_NULL_HANDLE;
        }
    }

    // Before an epoch is recorded.
    VkResult prepare(Gpu &gpu, uint64_t epoch) {
        const uint32_t slot = slot_of(epoch);
        if (timeline || !used[slot]) return VK_SUCCESS;
        const VkResult result = gpu.vk.vkResetFences(gpu.device, 1, &fences[slot]);
        if (result == VK_SUCCESS) used[slot] = false;
        return result;
    }

    VkResult submit(Gpu &gpu, VkCommandBuffer commands, uint64_t epoch) {
        VkTimelineSemaphoreSubmitInfo values = {};
        values.sType = VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO;
        values.signalSemaphoreValueCount = 1;
        values.pSignalSemaphoreValues = &epoch;
        VkSubmitInfo info = {};
        info.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO;
        info.commandBufferCount = 1;
        info.pCommandBuffers = &commands;
        if (timeline) {
            info.pNext = &values;
            info.signalSemaphoreCount = 1;
            info.pSignalSemaphores = &timeline;
        }
        const VkResult result = gpu.vk.vkQueueSubmit(gpu.queue, 1, &info, timeline ? VK_NULL_HANDLE : fence_of(epoch));
        if (result == VK_SUCCESS) used[slot_of(epoch)] = true;
        return result;
    }

    // The name of the call that passed() makes, for messages.
    const char *query_name() const { return timeline ? "vkGetSemaphoreCounterValue" : "vkGetFenceStatus"; }

    // VK_SUCCESS when the epoch, which was submitted, is done; VK_NOT_READY when not yet. *newest, if it is given, is
    // raised to the newest epoch known to be done. The epoch is the oldest in flight, or its slot is pinned.
    //
    // Of a lost device some drivers say that its timeline stands at UINT64_MAX, and that waits succeed (seen by others
    // on NVIDIA and AMD). What was never submitted cannot be done: fewer than kSlots epochs follow this one.
    VkResult passed(Gpu &gpu, uint64_t epoch, uint64_t *newest = nullptr) const {
        if (!timeline) {
            const VkResult result = gpu.vk.vkGetFenceStatus(gpu.device, fence_of(epoch));
            if (newest && result == VK_SUCCESS) *newest = max_of(*newest, epoch);
            return result;
        }
        uint64_t value = 0;
        const VkResult result = gpu.vk.vkGetSemaphoreCounterValue(gpu.device, timeline, &value);
        if (result != VK_SUCCESS) return result;
        if (value >= epoch + kSlots) return VK_ERROR_DEVICE_LOST;
        if (newest) *newest = max_of(*newest, value);
        return value >= epoch ? VK_SUCCESS : VK_NOT_READY;
    }

    // Blocks until the epoch, which was submitted, is done. *call: the name of the call that decided.
    VkResult wait(Gpu &gpu, uint64_t epoch, const char **call) const {
        *call = timeline ? "vkWaitSemaphores" : "vkWaitForFences";
        if (!timeline) {
            const VkFence fence = fence_of(epoch);
            return gpu.vk.vkWaitForFences(gpu.device, 1, &fence, VK_TRUE, UINT64_MAX);
        }
        VkSemaphoreWaitInfo info = {};
        info.sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO;
        info.semaphoreCount = 1;
        info.pSemaphores = &timeline;
        info.pValues = &epoch;
        const VkResult result = gpu.vk.vkWaitSemaphores(gpu.device, &info, UINT64_MAX);
        if (result != VK_SUCCESS || passed(gpu, epoch) != VK_ERROR_DEVICE_LOST) return result;
        *call = query_name();
        return VK_ERROR_DEVICE_LOST;
    }

private:
    VkSemaphore timeline;
    VkFence fences[kSlots];
    bool used[kSlots];

    static uint32_t slot_of(uint64_t epoch) { return (uint32_t)(epoch & (kSlots - 1)); }
    VkFence fence_of(uint64_t epoch) const { return fences[slot_of(epoch)]; }

    VkResult create_timeline(Gpu &gpu) {
        if (!gpu.vk.vkGetSemaphoreCounterValue || !gpu.vk.vkWaitSemaphores) return VK_ERROR_FEATURE_NOT_PRESENT;
        VkSemaphoreTypeCreateInfo type = {};
        type.sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO;
        type.semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE;
        VkSemaphoreCreateInfo info = {};
        info.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO;
        info.pNext = &type;
        const VkResult result = gpu.vk.vkCreateSemaphore(gpu.device, &info, gpu.callbacks, &timeline);
        if (result != VK_SUCCESS) timeline = VK_NULL_HANDLE;
        if (timeline) name_object(gpu, VK_OBJECT_TYPE_SEMAPHORE, timeline, "newest submission that is done");
        return result;
    }

    bool create_fences(Gpu &gpu, Failure &failure) {
        for (VkFence &fence : fences) {
            VkFenceCreateInfo info = {};
            info.sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO;
            const VkResult result = gpu.vk.vkCreateFence(gpu.device, &info, gpu.callbacks, &fence);
            if (result != VK_SUCCESS) {
                fence = VK_NULL_HANDLE;
                gpu_failed(gpu, failure, "vkCreateFence", result);
                return false;
            }
            name_object(gpu, VK_OBJECT_TYPE_FENCE, fence, "end of slot", (uint64_t)(&fence - fences) + 1);
        }
        return true;
    }
};

}  // namespace
}  // namespace halide_vulkan

#endif  // HALIDE_VULKAN_PROGRESS_H
