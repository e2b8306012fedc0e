// memory.cpp: device memory, mappings and buffers.
//
// Memory is anonymous pages, so that a block of 16 MiB costs only what is touched of it. Of memory that is not coherent
// the CPU sees another copy, which only flushes and invalidations bring in line with the device's. Fresh memory is
// zero on the device and 0xA5 in such a copy.

#include "state.h"

#include <cstring>

#include <sys/mman.h>

namespace mock {

namespace {

uint64_t allocated = 0;
std::map<std::pair<const Device *, uint32_t>, uint64_t> &heap_use =
    *new std::map<std::pair<const Device *, uint32_t>, uint64_t>;

uint8_t *map_pages(uint64_t size) {
    void *pages = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return pages == MAP_FAILED ? nullptr : (uint8_t *)pages;
}

VkResult move_ranges(uint32_t count, const VkMappedMemoryRange *ranges, bool to_device) {
    for (uint32_t i = 0; i < count; i++) {
        const VkMappedMemoryRange &range = ranges[i];
        Memory &memory = get(range.memory);
        if (!memory.device) continue;
        const uint64_t atom = memory.device->profile->atom;
        const bool whole = range.size == VK_WHOLE_SIZE;
        const uint64_t end = whole ? memory.size : range.offset + range.size;
        if (!memory.mapped) wrong("the memory is not mapped");
        if (range.offset % atom || (!whole && end % atom && end != memory.size))
            wrong("a range of mapped memory is no multiple of nonCoherentAtomSize");
        if (end > memory.size || range.offset > end) {
            wrong("a range of mapped memory ends behind it");
            continue;
        }
        if (!memory.shadow) continue;
        uint8_t *to = to_device ? memory.bytes : memory.shadow;
        const uint8_t *from = to_device ? memory.shadow : memory.bytes;
        memcpy(to + range.offset, from + range.offset, end - range.offset);
    }
    return VK_SUCCESS;
}

}  // namespace

VkResult do_vkAllocateMemory(VkDevice handle, const VkMemoryAllocateInfo *info, const VkAllocationCallbacks *callbacks,
                             VkDeviceMemory *out) {
    Device &device = get(handle);
    const Profile &p = *device.profile;
    if (info->memoryTypeIndex >= p.types.size() || info->allocationSize == 0) {
        wrong("no such memory type, or no bytes");
        return VK_ERROR_OUT_OF_DEVICE_MEMORY;
    }
    const VkMemoryType type = p.types[info->memoryTypeIndex];
    uint64_t &used = heap_use[{&device, type.heapIndex}];
    if (used + info->allocationSize > p.heaps[type.heapIndex].size) return VK_ERROR_OUT_OF_DEVICE_MEMORY;
    uint8_t *bytes = map_pages(info->allocationSize);
    if (!bytes) return VK_ERROR_OUT_OF_DEVICE_MEMORY;
    Memory *memory = make(device, callbacks, out);
    memory->size = info->allocationSize;
    memory->type_index = info->memoryTypeIndex;
    memory->bytes = bytes;
    used += memory->size;
    allocated += memory->size;
    return VK_SUCCESS;
}

void do_vkFreeMemory(VkDevice handle, VkDeviceMemory memory_handle, const VkAllocationCallbacks *callbacks) {
    if (!memory_handle) return;
    Device &device = get(handle);
    Memory &memory = get(memory_handle);
    if (!memory.bytes) return;
    heap_use[{&device, device.profile->types[memory.type_index].heapIndex}] -= memory.size;
    allocated -= memory.size;
    munmap(memory.bytes, memory.size);
    if (memory.shadow) munmap(memory.shadow, memory.size);
    end_object(&memory, callbacks);
}

VkResult do_vkMapMemory(VkDevice, VkDeviceMemory handle, VkDeviceSize offset, VkDeviceSize size, VkMemoryMapFlags,
                        void **out) {
    Memory &memory = get(handle);
    if (!memory.bytes) return VK_ERROR_MEMORY_MAP_FAILED;
    const VkMemoryPropertyFlags flags = memory.device->profile->types[memory.type_index].propertyFlags;
    if (!(flags & VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT)) {
        wrong("the memory is not visible to the CPU");
        return VK_ERROR_MEMORY_MAP_FAILED;
    }
    if (memory.mapped) wrong("the memory is mapped already");
    if (offset >= memory.size || (size != VK_WHOLE_SIZE && offset + size > memory.size))
        wrong("the mapping ends behind the memory");
    if (!(flags & VK_MEMORY_PROPERTY_HOST_COHERENT_BIT) && !memory.shadow) {
        memory.shadow = map_pages(memory.size);
        if (!memory.shadow) return VK_ERROR_MEMORY_MAP_FAILED;
        memset(memory.shadow, 0xA5, memory.size < 65536 ? memory.size : 65536);
    }
    memory.mapped = true;
    *out = (memory.shadow ? memory.shadow : memory.bytes) + offset;
    return VK_SUCCESS;
}

void do_vkUnmapMemory(VkDevice, VkDeviceMemory handle) {
    Memory &memory = get(handle);
    if (!memory.mapped) wrong("the memory is not mapped");
    memory.mapped = false;
}

VkResult do_vkFlushMappedMemoryRanges(VkDevice, uint32_t count, const VkMappedMemoryRange *ranges) {
    return move_ranges(count, ranges, true);
}
VkResult do_vkInvalidateMappedMemoryRanges(VkDevice, uint32_t count, const VkMappedMemoryRange *ranges) {
    return move_ranges(count, ranges, false);
}

VkResult do_vkCreateBuffer(VkDevice handle, const VkBufferCreateInfo *info, const VkAllocationCallbacks *callbacks,
                           VkBuffer *out) {
    if (info->size == 0 || info->usage == 0) wrong("a buffer without bytes or without usage");
    Buffer *buffer = make(get(handle), callbacks, out);
    buffer->size = info->size;
    buffer->usage = info->usage;
    if (info->sharingMode != VK_SHARING_MODE_CONCURRENT) return VK_SUCCESS;
    if (info->queueFamilyIndexCount < 2) wrong("a buffer is shared by fewer than two queue families");
    for (uint32_t i = 0; i < info->queueFamilyIndexCount; i++) {
        const uint32_t family = info->pQueueFamilyIndices[i];
        if (family >= buffer->device->profile->families.size()) wrong("there is no such queue family");
        for (uint32_t other : buffer->families) {
            if (other == family) wrong("a queue family is named twice");
        }
        buffer->families.push_back(family);
    }
    return VK_SUCCESS;
}

void do_vkGetBufferMemoryRequirements(VkDevice, VkBuffer handle, VkMemoryRequirements *out) {
    Buffer &buffer = get(handle);
    *out = {};
    if (!buffer.device) return;
    const Profile &p = *buffer.device->profile;
    out->alignment = p.buffer_alignment;
    out->size = (buffer.size + p.buffer_alignment - 1) / p.buffer_alignment * p.buffer_alignment;
    out->memoryTypeBits = (1u << p.types.size()) - 1;
}

VkResult do_vkBindBufferMemory(VkDevice, VkBuffer handle, VkDeviceMemory memory_handle, VkDeviceSize offset) {
    Buffer &buffer = get(handle);
    Memory &memory = get(memory_handle);
    if (!buffer.device || !memory.device) return VK_ERROR_OUT_OF_DEVICE_MEMORY;
    if (buffer.memory) wrong("the buffer has memory already");
    if (offset % buffer.device->profile->buffer_alignment) wrong("the buffer begins at no multiple of its alignment");
    if (offset + buffer.size > memory.size) wrong("the buffer ends behind its memory");
    buffer.memory = memory.handle;
    buffer.offset = offset;
    return VK_SUCCESS;
}

uint8_t *bytes_of(uint64_t handle, uint64_t offset, uint64_t size) {
    Buffer &buffer = get((VkBuffer)handle);
    if (!buffer.device) return nullptr;
    Memory *memory = static_cast<Memory *>(find_object("VkDeviceMemory", buffer.memory));
    if (!memory) {
        wrong("a buffer is used that has no memory, or whose memory was freed");
        return nullptr;
    }
    if (offset > buffer.size || size > buffer.size - offset) {
        wrong("bytes " + std::to_string(offset) + " to " + std::to_string(offset + size) + " of a buffer of " +
              std::to_string(buffer.size) + " are used");
        return nullptr;
    }
    return memory->bytes + buffer.offset + offset;
}

}  // namespace mock

uint64_t mock_allocated_bytes() {
    std::lock_guard<std::mutex> lock(mock::mutex);
    return mock::allocated;
}
