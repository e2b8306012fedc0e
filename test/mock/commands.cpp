// commands.cpp: recording. What is recorded is done when its submission finishes (queue.cpp), not before: so a program
// that looks at results too early, or changes inputs too early, is seen to be wrong.

#include "state.h"

#include <cstring>

namespace mock {

namespace {

// A stand-in, for a stale handle, has no state to check.
CommandBuffer &recording(VkCommandBuffer handle) {
    CommandBuffer &buffer = get(handle);
    if (buffer.handle && buffer.state != CommandBuffer::recording) wrong("the command buffer is not being recorded");
    return buffer;
}

// What a dispatch runs.
struct Dispatch {
    uint64_t pipeline, set;
    uint32_t groups[3];
    uint8_t push[128];

    void run() const {
        Pipeline &p = get((VkPipeline)pipeline);
        std::vector<MockBinding> bindings;
        if (set) {
            for (const DescriptorSet::Binding &binding : get((VkDescriptorSet)set).bindings)
                bindings.push_back({bytes_of(binding.buffer, binding.offset, binding.range), binding.range});
        }
        const MockKernel function = find_kernel(p.kernel);
        if (!function) return;
        MockDispatch dispatch = {};
        dispatch.kernel = p.kernel.c_str();
        memcpy(dispatch.groups, groups, sizeof(groups));
        memcpy(dispatch.local_size, p.local_size, sizeof(p.local_size));
        dispatch.bindings = bindings.data();
        dispatch.binding_count = (uint32_t)bindings.size();
        dispatch.push = p.pushes ? push : nullptr;
        dispatch.code = p.words.data();
        dispatch.code_words = p.words.size();
        function(&dispatch);
    }
};

void record(CommandBuffer &buffer, std::vector<std::pair<const char *, uint64_t>> uses, std::function<void()> run) {
    if (buffer.handle) buffer.commands.push_back({std::move(uses), std::move(run)});
}

}  // namespace

// The end of a life in which sets may not be updated: reset, or done.
void forget_commands(CommandBuffer &buffer) {
    for (const Command &command : buffer.commands) {
        for (const auto &use : command.uses) {
            if (strcmp(use.first, "VkDescriptorSet") != 0) continue;
            if (Object *set = find_object(use.first, use.second)) static_cast<DescriptorSet *>(set)->recorded--;
        }
    }
    buffer.commands.clear();
    buffer.pipeline = buffer.set = 0;
}

VkResult do_vkCreateCommandPool(VkDevice handle, const VkCommandPoolCreateInfo *info,
                                const VkAllocationCallbacks *callbacks, VkCommandPool *out) {
    Device &device = get(handle);
    if (info->queueFamilyIndex >= device.profile->families.size()) wrong("there is no such queue family");
    make(device, callbacks, out)->family = info->queueFamilyIndex;
    return VK_SUCCESS;
}

void do_vkDestroyCommandPool(VkDevice, VkCommandPool handle, const VkAllocationCallbacks *callbacks) {
    if (!handle) return;
    CommandPool &pool = get(handle);
    for (CommandBuffer *buffer : pool.buffers) {
        forget_commands(*buffer);
        end_child(buffer);
    }
    pool.buffers.clear();
    end_object(&pool, callbacks);
}

VkResult do_vkResetCommandPool(VkDevice, VkCommandPool handle, VkCommandPoolResetFlags) {
    for (CommandBuffer *buffer : get(handle).buffers) {
        if (is_busy(*buffer)) wrong("a command buffer of the pool is not done");
        forget_commands(*buffer);
        buffer->state = CommandBuffer::initial;
    }
    return VK_SUCCESS;
}

VkResult do_vkAllocateCommandBuffers(VkDevice, const VkCommandBufferAllocateInfo *info, VkCommandBuffer *out) {
    CommandPool &pool = get(info->commandPool);
    for (uint32_t i = 0; i < info->commandBufferCount; i++) pool.buffers.push_back(make(pool, nullptr, &out[i]));
    return VK_SUCCESS;
}

void do_vkFreeCommandBuffers(VkDevice, VkCommandPool handle, uint32_t count, const VkCommandBuffer *list) {
    CommandPool &pool = get(handle);
    for (uint32_t i = 0; i < count; i++) {
        if (!list[i]) continue;
        CommandBuffer &buffer = get(list[i]);
        for (size_t k = 0; k < pool.buffers.size(); k++) {
            if (pool.buffers[k] == &buffer) pool.buffers.erase(pool.buffers.begin() + (long)k);
        }
        forget_commands(buffer);
        end_child(&buffer);
    }
}

VkResult do_vkBeginCommandBuffer(VkCommandBuffer handle, const VkCommandBufferBeginInfo *info) {
    CommandBuffer &buffer = get(handle);
    if (buffer.state != CommandBuffer::initial) wrong("the command buffer was not reset");
    buffer.state = CommandBuffer::recording;
    buffer.one_time = (info->flags & VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT) != 0;
    return VK_SUCCESS;
}

VkResult do_vkEndCommandBuffer(VkCommandBuffer handle) {
    recording(handle).state = CommandBuffer::executable;
    return VK_SUCCESS;
}

void do_vkCmdBindPipeline(VkCommandBuffer handle, VkPipelineBindPoint, VkPipeline pipeline) {
    recording(handle).pipeline = (uint64_t)pipeline;
}

void do_vkCmdBindDescriptorSets(VkCommandBuffer handle, VkPipelineBindPoint, VkPipelineLayout, uint32_t first,
                                uint32_t count, const VkDescriptorSet *sets, uint32_t, const uint32_t *) {
    CommandBuffer &buffer = recording(handle);
    for (uint32_t i = 0; i < count; i++) {
        get(sets[i]);
        if (first + i == 0) buffer.set = (uint64_t)sets[i];
    }
}

void do_vkCmdPushConstants(VkCommandBuffer handle, VkPipelineLayout layout, VkShaderStageFlags, uint32_t offset,
                           uint32_t size, const void *values) {
    CommandBuffer &buffer = recording(handle);
    if (offset + size > get(layout).push_bytes) wrong("push constants end behind the layout's range");
    if (offset + size <= sizeof(buffer.push)) memcpy(buffer.push + offset, values, size);
}

void do_vkCmdDispatch(VkCommandBuffer handle, uint32_t x, uint32_t y, uint32_t z) {
    CommandBuffer &buffer = recording(handle);
    if (!buffer.handle) return;
    const uint32_t *limit = buffer.device->profile->groups;
    if (x > limit[0] || y > limit[1] || z > limit[2]) wrong("more groups than maxComputeWorkGroupCount");
    if (!buffer.pipeline) wrong("a dispatch without a pipeline");
    Dispatch dispatch = {buffer.pipeline, buffer.set, {x, y, z}, {}};
    memcpy(dispatch.push, buffer.push, sizeof(dispatch.push));
    std::vector<std::pair<const char *, uint64_t>> uses = {{"VkPipeline", buffer.pipeline}};
    if (buffer.set) {
        DescriptorSet &set = get((VkDescriptorSet)buffer.set);
        set.recorded++;
        uses.push_back({"VkDescriptorSet", buffer.set});
        for (const DescriptorSet::Binding &binding : set.bindings) uses.push_back({"VkBuffer", binding.buffer});
    }
    record(buffer, std::move(uses), [dispatch] { dispatch.run(); });
}

void do_vkCmdCopyBuffer(VkCommandBuffer handle, VkBuffer from, VkBuffer to, uint32_t count, const VkBufferCopy *list) {
    CommandBuffer &buffer = recording(handle);
    if (!(get(from).usage & VK_BUFFER_USAGE_TRANSFER_SRC_BIT)) wrong("a copy from a buffer without that usage");
    if (!(get(to).usage & VK_BUFFER_USAGE_TRANSFER_DST_BIT)) wrong("a copy to a buffer without that usage");
    const std::vector<VkBufferCopy> regions(list, list + count);
    for (const VkBufferCopy &region : regions) {
        if (region.size == 0) wrong("a copy of no bytes");
        if (region.srcOffset + region.size > get(from).size || region.dstOffset + region.size > get(to).size)
            wrong("a copy ends behind its buffer");
        if (from == to && region.srcOffset < region.dstOffset + region.size &&
            region.dstOffset < region.srcOffset + region.size)
            wrong("a copy overlaps itself");
    }
    record(buffer, {{"VkBuffer", (uint64_t)from}, {"VkBuffer", (uint64_t)to}}, [from, to, regions] {
        for (const VkBufferCopy &region : regions) {
            uint8_t *source = bytes_of((uint64_t)from, region.srcOffset, region.size);
            uint8_t *target = bytes_of((uint64_t)to, region.dstOffset, region.size);
            if (source && target) memmove(target, source, region.size);
        }
    });
}

void do_vkCmdPipelineBarrier(VkCommandBuffer handle, VkPipelineStageFlags from, VkPipelineStageFlags to,
                             VkDependencyFlags, uint32_t count, const VkMemoryBarrier *list, uint32_t,
                             const VkBufferMemoryBarrier *, uint32_t, const VkImageMemoryBarrier *) {
    recording(handle);
    for (uint32_t i = 0; i < count; i++) note_barrier(from, list[i].srcAccessMask, to, list[i].dstAccessMask);
}

void do_vkCmdFillBuffer(VkCommandBuffer handle, VkBuffer to, VkDeviceSize offset, VkDeviceSize size, uint32_t word) {
    CommandBuffer &buffer = recording(handle);
    if (offset % 4 || (size != VK_WHOLE_SIZE && size % 4)) wrong("a fill of no whole words");
    const uint64_t bytes = size == VK_WHOLE_SIZE ? (get(to).size - offset) & ~3ull : size;
    record(buffer, {{"VkBuffer", (uint64_t)to}}, [to, offset, bytes, word] {
        uint8_t *target = bytes_of((uint64_t)to, offset, bytes);
        for (uint64_t i = 0; target && i < bytes; i += 4) memcpy(target + i, &word, 4);
    });
}

void do_vkCmdUpdateBuffer(VkCommandBuffer handle, VkBuffer to, VkDeviceSize offset, VkDeviceSize size,
                          const void *data) {
    CommandBuffer &buffer = recording(handle);
    if (offset % 4 || size % 4 || size > 65536) wrong("an update of no whole words, or of more than 65536 bytes");
    const std::vector<uint8_t> bytes((const uint8_t *)data, (const uint8_t *)data + size);
    record(buffer, {{"VkBuffer", (uint64_t)to}}, [to, offset, bytes] {
        if (uint8_t *target = bytes_of((uint64_t)to, offset, bytes.size())) memcpy(target, bytes.data(), bytes.size());
    });
}

}  // namespace mock
