// vulkan_budget.h: how much memory the driver says may be asked for.
//
// Two numbers that a plain vkAllocateMemory does not tell before it fails:
//   maxMemoryAllocationSize (Vulkan 1.1): what one allocation may be. It caps how far blocks grow ahead of need, and
//   stands in the error of an allocation that is larger. Such an allocation is tried all the same: drivers give more
//   than they promise (an H200 says 4 GiB - 1).
//   The heap's budget and usage (VK_EXT_memory_budget): what this process can probably have, other programs considered.
//   Over it, drivers do not refuse, they move memory out of the device, and everything becomes slow. So it is asked
//   before each block is allocated (never on a warm path), and what lies idle goes before a block goes over it. It is
//   an estimate, and late: it never refuses an allocation, only the driver does.
//
// Asked of our own devices alone: a device that an application made is managed by the application.
//
// Thread rule: the limits are written once, before they are shared.

#ifndef HALIDE_VULKAN_BUDGET_H
#define HALIDE_VULKAN_BUDGET_H

#include "vulkan_gpu.h"

namespace halide_vulkan {
namespace {

// `api_version`: what both the instance and the device speak.
inline void learn_memory_limits(const InstanceFunctions &vk, uint32_t api_version, const DeviceAbilities &abilities,
                                Gpu &gpu) {
    const bool core = api_version >= VK_API_VERSION_1_1;
    const PFN_vkGetPhysicalDeviceProperties2 properties =
        core ? vk.vkGetPhysicalDeviceProperties2 : vk.vkGetPhysicalDeviceProperties2KHR;
    // Maintenance3 is part of 1.1. As an extension of 1.0 it is not asked for: such drivers are old and few.
    if (core && properties) {
        VkPhysicalDeviceMaintenance3Properties maintenance = {};
        maintenance.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_3_PROPERTIES;
        VkPhysicalDeviceProperties2 all = {};
        all.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2;
        all.pNext = &maintenance;
        properties(gpu.physical, &all);
        gpu.largest_allocation = maintenance.maxMemoryAllocationSize;
    }
    if (abilities.memory_budget)
        gpu.ask_memory = core ? vk.vkGetPhysicalDeviceMemoryProperties2 : vk.vkGetPhysicalDeviceMemoryProperties2KHR;
}

struct HeapBudget {
    uint64_t budget, usage;  // bytes; the usage is this process's
    bool known;

    bool has_room_for(uint64_t bytes) const { return !known || (usage <= budget && bytes <= budget - usage); }
};

inline HeapBudget ask_budget(const Gpu &gpu, uint32_t memory_type) {
    HeapBudget result = {0, 0, false};
    if (!gpu.ask_memory || memory_type >= gpu.memory.memoryTypeCount) return result;
    VkPhysicalDeviceMemoryBudgetPropertiesEXT budget = {};
    budget.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT;
    VkPhysicalDeviceMemoryProperties2 memory = {};
    memory.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2;
    memory.pNext = &budget;
    gpu.ask_memory(gpu.physical, &memory);
    const uint32_t heap = gpu.memory.memoryTypes[memory_type].heapIndex;
    // A driver has been seen to report a budget above the size of its heap.
    const uint64_t possible = min_of<uint64_t>(budget.heapBudget[heap], gpu.memory.memoryHeaps[heap].size);
    result = {possible, budget.heapUsage[heap], budget.heapBudget[heap] != 0};
    return result;
}

}  // namespace
}  // namespace halide_vulkan

#endif  // HALIDE_VULKAN_BUDGET_H
