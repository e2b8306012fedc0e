// shadow.cpp: memory whose type the test changed (hv_layer_memory_types).
//
// The driver's memory behind it may be more obliging than the type says: mappable where the type is not HOST_VISIBLE,
// and coherent where the type is not HOST_COHERENT. A runtime that forgets a flush would go unnoticed. So the first is
// refused to be mapped, and of the second the program sees a shadow: vkFlushMappedMemoryRanges copies from it into the
// real mapping, vkInvalidateMappedMemoryRanges the other way, and nothing else does.

#include <cstdlib>
#include <cstring>
#include <mutex>
#include <unordered_map>

#include "state.h"

namespace hv_layer {
namespace {

struct Memory {
    uint32_t flags;  // as the test said
    VkDeviceSize size;
    uint8_t *real, *shadow;
    VkDeviceSize offset, mapped;
};

std::mutex mutex;
std::unordered_map<VkDeviceMemory, Memory> &memories = *new std::unordered_map<VkDeviceMemory, Memory>;

constexpr size_t kAlignment = 4096;  // at least minMemoryMapAlignment of every device

}  // namespace

void remember_memory(VkDeviceMemory memory, uint32_t type, VkDeviceSize size) {
    const std::vector<uint32_t> wanted = wanted_memory_types();
    if (type >= wanted.size()) return;
    std::lock_guard<std::mutex> lock(mutex);
    memories[memory] = {wanted[type], size, nullptr, nullptr, 0, 0};
}

void forget_mapping(VkDeviceMemory memory) {
    std::lock_guard<std::mutex> lock(mutex);
    auto found = memories.find(memory);
    if (found == memories.end()) return;
    free(found->second.shadow);
    found->second.shadow = nullptr;
}

void forget_memory(VkDeviceMemory memory) {
    forget_mapping(memory);
    std::lock_guard<std::mutex> lock(mutex);
    memories.erase(memory);
}

bool may_map(VkDeviceMemory memory) {
    std::lock_guard<std::mutex> lock(mutex);
    auto found = memories.find(memory);
    return found == memories.end() || (found->second.flags & VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT);
}

void *shadow_of_mapping(VkDeviceMemory memory, void *real, VkDeviceSize offset, VkDeviceSize size) {
    std::lock_guard<std::mutex> lock(mutex);
    auto found = memories.find(memory);
    if (found == memories.end() || (found->second.flags & VK_MEMORY_PROPERTY_HOST_COHERENT_BIT)) return real;
    Memory &m = found->second;
    m.real = (uint8_t *)real;
    m.offset = offset;
    m.mapped = size == VK_WHOLE_SIZE ? m.size - offset : size;
    m.shadow = (uint8_t *)aligned_alloc(kAlignment, (m.mapped + kAlignment - 1) / kAlignment * kAlignment);
    memset(m.shadow, 0xCD, m.mapped);  // what was not invalidated is not there
    return m.shadow;
}

void copy_ranges(uint32_t count, const VkMappedMemoryRange *ranges, bool to_device) {
    std::lock_guard<std::mutex> lock(mutex);
    for (uint32_t i = 0; i < count; i++) {
        auto found = memories.find(ranges[i].memory);
        if (found == memories.end() || !found->second.shadow) continue;
        const Memory &m = found->second;
        const VkDeviceSize begin = ranges[i].offset - m.offset;
        const VkDeviceSize size = ranges[i].size == VK_WHOLE_SIZE ? m.mapped - begin : ranges[i].size;
        if (to_device) {
            memcpy(m.real + begin, m.shadow + begin, size);
        } else {
            memcpy(m.shadow + begin, m.real + begin, size);
        }
    }
}

}  // namespace hv_layer
