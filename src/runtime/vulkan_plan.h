// vulkan_plan.h: from what a machine offers to what this runtime uses. [pure]
//
// Problem: the choice of queue family and memory types is where drivers differ most, and where a mistake shows only on
// somebody else's machine. So the choice is a function of a snapshot: vulkan_instance.h fills a DeviceOffer by asking
// Vulkan, the functions here decide, vulkan_context.h carries it out. Tests feed offers of machines we do not own.
// Which device it is, vulkan_choice.h decides.
//
// The Vulkan headers are used for their types; nothing here calls Vulkan.

#ifndef HALIDE_VULKAN_PLAN_H
#define HALIDE_VULKAN_PLAN_H

#include "vulkan_base.h"

namespace halide_vulkan {
namespace {

constexpr uint32_t kMaxFamilies = 16;  // the most a driver reports today is 6
constexpr uint32_t kNoIndex = 0xffffffffu;

// What one physical device offers.
struct DeviceOffer {
    VkPhysicalDeviceProperties properties;
    VkPhysicalDeviceMemoryProperties memory;
    VkQueueFamilyProperties families[kMaxFamilies];
    uint32_t family_count;
    uint8_t uuid[VK_UUID_SIZE];  // VkPhysicalDeviceIDProperties::deviceUUID
    bool has_uuid;               // the driver was asked for it, and had an answer
};

inline bool contains(const char *text, const char *part) {
    const size_t n = text_length(part);
    for (; *text; text++) {
        size_t i = 0;
        while (i < n && text[i] == part[i]) i++;
        if (i == n) return true;
    }
    return n == 0;
}

inline const char *device_type_name(VkPhysicalDeviceType type) {
    switch (type) {
    case VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU: return "integrated-gpu";
    case VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU: return "discrete-gpu";
    case VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU: return "virtual-gpu";
    case VK_PHYSICAL_DEVICE_TYPE_CPU: return "cpu";
    default: return "other";
    }
}

// What a user can ask for with HL_VK_QUEUE; the numbers are the places of its words.
enum class QueueWish : uint32_t {
    any,       // compute if there is one, else graphics
    compute,   // computes without graphics
    graphics,  // does both
};

// The queue family to compute on: compute without graphics first. On an H200 a submission there takes 8.3 us of GPU
// time, against 13.0 on the family that also does graphics. kNoIndex when the device has none as wished.
inline uint32_t pick_queue_family(const VkQueueFamilyProperties *families, uint32_t count,
                                  QueueWish wish = QueueWish::any) {
    uint32_t found = kNoIndex;
    for (uint32_t i = 0; i < count; i++) {
        if (!(families[i].queueFlags & VK_QUEUE_COMPUTE_BIT) || families[i].queueCount == 0) continue;
        if (!(families[i].queueFlags & VK_QUEUE_GRAPHICS_BIT)) {
            if (wish != QueueWish::graphics) return i;
        } else if (found == kNoIndex && wish != QueueWish::compute) {
            found = i;
        }
    }
    return found;
}

// The family of a device that was picked; kNoIndex, with what it has in failure, where the wish cannot be met.
inline uint32_t choose_queue_family(const DeviceOffer &offer, QueueWish wish, Failure &failure) {
    const uint32_t family = pick_queue_family(offer.families, offer.family_count, wish);
    if (family != kNoIndex) return family;
    Text text = failure.because(kGenericError);
    text << "Vulkan: " << offer.properties.deviceName << " has no queue family that computes "
         << (wish == QueueWish::compute ? "without graphics (HL_VK_QUEUE is 'compute')"
                                        : "and does graphics (HL_VK_QUEUE is 'graphics')")
         << (offer.family_count == 1 ? "; its only one:" : "; those it has:");
    for (uint32_t i = 0; i < offer.family_count; i++) {
        const VkQueueFlags flags = offer.families[i].queueFlags;
        text << (i ? ", " : " ") << (flags & VK_QUEUE_GRAPHICS_BIT ? "graphics " : "")
             << (flags & VK_QUEUE_COMPUTE_BIT ? "compute " : "") << (flags & VK_QUEUE_TRANSFER_BIT ? "transfer " : "")
             << "x " << offer.families[i].queueCount;
    }
    return kNoIndex;
}

// Memory types in the order to try them, for one purpose. The first failure of an allocation is never final: a window
// of visible device memory may be full while plain device memory is free.
struct MemoryOrder {
    uint32_t types[VK_MAX_MEMORY_TYPES];
    uint32_t count;
};

constexpr VkMemoryPropertyFlags kVisible = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT;
constexpr VkMemoryPropertyFlags kCoherent = VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
constexpr VkMemoryPropertyFlags kCached = VK_MEMORY_PROPERTY_HOST_CACHED_BIT;
constexpr VkMemoryPropertyFlags kLocal = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT;

// Types with another flag than these (protected, lazily allocated, uncached) are for other purposes.
inline bool is_plain_type(VkMemoryPropertyFlags flags) {
    return (flags & ~(kVisible | kCoherent | kCached | kLocal)) == 0;
}

// Appends every plain type whose flags, masked with `mask`, equal `wanted`, and that is not in the order yet.
HALIDE_VULKAN_COLD inline void add_types(const VkPhysicalDeviceMemoryProperties &memory, VkMemoryPropertyFlags mask,
                                         VkMemoryPropertyFlags wanted, uint64_t heap_at_least, MemoryOrder &order) {
    for (uint32_t i = 0; i < memory.memoryTypeCount; i++) {
        const VkMemoryType &type = memory.memoryTypes[i];
        if (!is_plain_type(type.propertyFlags) || (type.propertyFlags & mask) != wanted) continue;
        if (memory.memoryHeaps[type.heapIndex].size < heap_at_least) continue;
        bool known = false;
        for (uint32_t k = 0; k < order.count; k++) known |= order.types[k] == i;
        if (!known) order.types[order.count++] = i;
    }
}

inline uint64_t largest_local_heap(const VkPhysicalDeviceMemoryProperties &memory) {
    uint64_t largest = 0;
    for (uint32_t i = 0; i < memory.memoryHeapCount; i++) {
        if (memory.memoryHeaps[i].flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT)
            largest = max_of(largest, (uint64_t)memory.memoryHeaps[i].size);
    }
    return largest;
}

// For buffers that kernels work on. Memory the CPU can write too comes first, but only where it covers the whole device
// heap: a small window (256 MiB) is a scarce thing that other programs want as well. Cached before uncached, so that on
// unified memory results can be read in place.
inline void plan_buffer_memory(const VkPhysicalDeviceMemoryProperties &memory, MemoryOrder &order) {
    order.count = 0;
    const uint64_t whole = largest_local_heap(memory);
    add_types(memory, kLocal | kVisible | kCoherent | kCached, kLocal | kVisible | kCoherent | kCached, whole, order);
    add_types(memory, kLocal | kVisible | kCoherent, kLocal | kVisible | kCoherent, whole, order);
    add_types(memory, kLocal, kLocal, whole, order);
    add_types(memory, kLocal, kLocal, 0, order);
    add_types(memory, 0, 0, 0, order);
}

// For staging, read and written by the CPU at full speed: host-cached. Reading memory that is not host-cached runs at
// 42 MB/s on an H200 (a 48 MB download took 1.16 s). Coherent before not; outside the device before inside.
inline void plan_staging_memory(const VkPhysicalDeviceMemoryProperties &memory, MemoryOrder &order) {
    order.count = 0;
    add_types(memory, kVisible | kCached | kCoherent | kLocal, kVisible | kCached | kCoherent, 0, order);
    add_types(memory, kVisible | kCached | kCoherent, kVisible | kCached | kCoherent, 0, order);
    add_types(memory, kVisible | kCached, kVisible | kCached, 0, order);
    add_types(memory, kVisible | kLocal, kVisible, 0, order);
    add_types(memory, kVisible, kVisible, 0, order);
}

// For scalar arguments: written once by the CPU, read by every thread of a kernel. Close to the GPU first. Always
// coherent: the specification promises such a type.
inline void plan_scalar_memory(const VkPhysicalDeviceMemoryProperties &memory, MemoryOrder &order) {
    order.count = 0;
    add_types(memory, kLocal | kVisible | kCoherent, kLocal | kVisible | kCoherent, 0, order);
    add_types(memory, kVisible | kCoherent, kVisible | kCoherent, 0, order);
}

// The largest range that a descriptor may cover. Mesa's llvmpipe reports 128 MiB, the size of a constant it shares with
// other drivers, but reaches all of a buffer (its offsets have 32 bits); Halide pipelines do bind more (its own test
// gpu_param_allocation: 388 MiB). Any other value is taken as it is.
inline uint64_t storage_range(const VkPhysicalDeviceProperties &properties) {
    const uint32_t reported = properties.limits.maxStorageBufferRange;
    const bool llvmpipe =
        properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU && contains(properties.deviceName, "llvmpipe");
    return llvmpipe && reported == (128u << 20) ? 0x7fffffffu : reported;
}

// The alignment of every region: the largest of the device's needs, all powers of two. 16 at least, so that a region
// can be filled and be read in the widest vectors kernels use.
inline uint64_t region_alignment(const VkPhysicalDeviceLimits &limits, uint64_t buffer_alignment,
                                 uint32_t config_multiple) {
    uint64_t alignment = max_of<uint64_t>(16, buffer_alignment);
    alignment = max_of<uint64_t>(alignment, limits.minStorageBufferOffsetAlignment);
    alignment = max_of<uint64_t>(alignment, limits.nonCoherentAtomSize);
    uint64_t power = 16;
    while (power < config_multiple && power < (1u << 20)) power *= 2;
    return max_of(alignment, power);
}

}  // namespace
}  // namespace halide_vulkan

#endif  // HALIDE_VULKAN_PLAN_H
