// profiles.h: what a mock device is, as data.

#ifndef HALIDE_VULKAN_MOCK_PROFILES_H
#define HALIDE_VULKAN_MOCK_PROFILES_H

#include <cstdint>
#include <string>
#include <vector>

#ifndef VK_NO_PROTOTYPES
#define VK_NO_PROTOTYPES
#endif
#include <vulkan/vulkan.h>

namespace mock {

struct Profile {
    const char *name;    // for mock_profile
    const char *device;  // what it calls itself
    VkPhysicalDeviceType type;
    uint32_t loader_version;  // what vkEnumerateInstanceVersion says; 1.0: there is no such function
    uint32_t version;

    uint64_t buffer_alignment;  // VkMemoryRequirements
    uint64_t storage_alignment, uniform_alignment, atom, copy_alignment;
    uint32_t storage_range, uniform_range;
    uint32_t groups[3], group_size[3], invocations, shared_bytes, push_bytes;
    uint32_t storage_buffers;  // in one stage
    uint32_t sets_of_a_pool;   // more are refused; 0: no limit

    std::vector<VkMemoryHeap> heaps;
    std::vector<VkMemoryType> types;
    std::vector<VkQueueFamilyProperties> families;
    std::vector<const char *> instance_extensions, extensions;
    bool int64, int16, float64, storage8, storage16, float16, int8, timeline;
};

const Profile *find_profile(const std::string &name);

}  // namespace mock

#endif
