// vulkan_plan.h: the choice of queue family and memory types, for machines we do not own.

#define VK_NO_PROTOTYPES
#include <vulkan/vulkan_core.h>

#include "vulkan_plan.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

using namespace halide_vulkan;

namespace {

DeviceOffer offer(const char *name, VkPhysicalDeviceType type, std::vector<VkQueueFlags> families) {
    DeviceOffer o = {};
    strncpy(o.properties.deviceName, name, sizeof(o.properties.deviceName) - 1);
    o.properties.deviceType = type;
    for (VkQueueFlags flags : families) {
        o.families[o.family_count].queueFlags = flags;
        o.families[o.family_count++].queueCount = 1;
    }
    return o;
}

constexpr VkQueueFlags kGraphics = VK_QUEUE_GRAPHICS_BIT, kCompute = VK_QUEUE_COMPUTE_BIT,
                       kTransfer = VK_QUEUE_TRANSFER_BIT;

const DeviceOffer kCpu = offer("llvmpipe", VK_PHYSICAL_DEVICE_TYPE_CPU, {kGraphics | kCompute | kTransfer});
const DeviceOffer kDiscrete =
    offer("H200", VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU, {kGraphics | kCompute, kTransfer, kCompute});
const DeviceOffer kDisplayOnly = offer("Fb", VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU, {kGraphics, kTransfer});

struct Memory {
    VkPhysicalDeviceMemoryProperties properties = {};
    Memory &heap(uint64_t size, bool local) {
        properties.memoryHeaps[properties.memoryHeapCount++] = {
            size, local ? (VkMemoryHeapFlags)VK_MEMORY_HEAP_DEVICE_LOCAL_BIT : 0};
        return *this;
    }
    Memory &type(VkMemoryPropertyFlags flags, uint32_t heap) {
        properties.memoryTypes[properties.memoryTypeCount++] = {flags, heap};
        return *this;
    }
};

std::vector<uint32_t> order_of(void (*plan)(const VkPhysicalDeviceMemoryProperties &, MemoryOrder &),
                               const Memory &memory) {
    MemoryOrder order;
    plan(memory.properties, order);
    return std::vector<uint32_t>(order.types, order.types + order.count);
}
using Order = std::vector<uint32_t>;

}  // namespace

TEST(Plan, TheQueueComputesWithoutGraphicsIfItCan) {
    EXPECT_EQ(pick_queue_family(kDiscrete.families, kDiscrete.family_count), 2u);
    EXPECT_EQ(pick_queue_family(kCpu.families, kCpu.family_count), 0u);
    EXPECT_EQ(pick_queue_family(kDisplayOnly.families, kDisplayOnly.family_count), kNoIndex);
}

// The families of an H200, as its driver 580 reports them.
TEST(Plan, TheQueueIsForced) {
    const VkQueueFlags sparse = VK_QUEUE_SPARSE_BINDING_BIT, video = VK_QUEUE_VIDEO_DECODE_BIT_KHR;
    DeviceOffer h200 = offer("NVIDIA H200", VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU,
                             {kGraphics | kCompute | kTransfer | sparse, kTransfer | sparse,
                              kCompute | kTransfer | sparse, kTransfer | sparse | video});
    h200.families[0].queueCount = 16;
    h200.families[2].queueCount = 8;
    const auto choose = [](const DeviceOffer &offer, QueueWish wish, std::string *message = nullptr) {
        Failure failure;
        const uint32_t family = choose_queue_family(offer, wish, failure);
        EXPECT_EQ(family == kNoIndex, failure.failed());
        if (message) *message = failure.message;
        return family;
    };
    EXPECT_EQ(choose(h200, QueueWish::any), 2u);
    EXPECT_EQ(choose(h200, QueueWish::compute), 2u);
    EXPECT_EQ(choose(h200, QueueWish::graphics), 0u);
    EXPECT_EQ(choose(kCpu, QueueWish::any), 0u);
    EXPECT_EQ(choose(kCpu, QueueWish::graphics), 0u);
    std::string message;
    EXPECT_EQ(choose(kCpu, QueueWish::compute, &message), kNoIndex);
    EXPECT_NE(message.find("llvmpipe"), std::string::npos) << message;
    EXPECT_NE(message.find("HL_VK_QUEUE is 'compute'"), std::string::npos) << message;
    EXPECT_NE(message.find("graphics compute transfer x 1"), std::string::npos) << message;
    h200.families[0].queueCount = 0;
    EXPECT_EQ(choose(h200, QueueWish::graphics, &message), kNoIndex) << "a family without queues is none";
    EXPECT_NE(message.find("HL_VK_QUEUE is 'graphics'"), std::string::npos) << message;
    EXPECT_EQ(choose(h200, QueueWish::any), 2u);
}

TEST(Plan, MemoryOfAnH200) {
    const Memory m = Memory()
                         .heap(141ull << 30, true)
                         .heap(96ull << 30, false)
                         .type(0, 1)
                         .type(kLocal, 0)
                         .type(kVisible | kCoherent, 1)
                         .type(kVisible | kCoherent | kCached, 1)
                         .type(kLocal | kVisible | kCoherent, 0);
    EXPECT_EQ(order_of(plan_buffer_memory, m), (Order{4, 1, 0, 2, 3})) << "all of it is visible: use that";
    EXPECT_EQ(order_of(plan_staging_memory, m), (Order{3, 2, 4}));
    EXPECT_EQ(order_of(plan_scalar_memory, m), (Order{4, 2, 3}));
}

TEST(Plan, ASmallVisibleWindowIsNotForBuffers) {
    const Memory m = Memory()
                         .heap(8ull << 30, true)
                         .heap(256ull << 20, true)
                         .heap(16ull << 30, false)
                         .type(kLocal, 0)
                         .type(kLocal | kVisible | kCoherent, 1)
                         .type(kVisible | kCoherent, 2)
                         .type(kVisible | kCoherent | kCached, 2);
    EXPECT_EQ(order_of(plan_buffer_memory, m), (Order{0, 1, 2, 3}));
    EXPECT_EQ(order_of(plan_scalar_memory, m), (Order{1, 2, 3}));
}

TEST(Plan, UnifiedMemoryIsCachedAndThereIsOnlyOneType) {
    const VkMemoryPropertyFlags all = kLocal | kVisible | kCoherent | kCached;
    const Memory m = Memory().heap(16ull << 30, true).type(all, 0);
    for (auto plan : {plan_buffer_memory, plan_staging_memory, plan_scalar_memory})
        EXPECT_EQ(order_of(plan, m), (Order{0}));
}

TEST(Plan, CachedMemoryThatIsNotCoherentIsForStagingOnly) {
    const Memory m =
        Memory().heap(4ull << 30, true).type(kLocal | kVisible | kCached, 0).type(kLocal | kVisible | kCoherent, 0);
    EXPECT_EQ(order_of(plan_staging_memory, m), (Order{0, 1}));
    EXPECT_EQ(order_of(plan_scalar_memory, m), (Order{1})) << "scalars are never flushed";
}

TEST(Plan, SpecialMemoryIsLeftAlone) {
    const Memory m = Memory()
                         .heap(4ull << 30, true)
                         .type(kLocal | VK_MEMORY_PROPERTY_PROTECTED_BIT, 0)
                         .type(kLocal | VK_MEMORY_PROPERTY_LAZILY_ALLOCATED_BIT, 0)
                         .type(kLocal, 0);
    EXPECT_EQ(order_of(plan_buffer_memory, m), (Order{2}));
}

TEST(Plan, RegionsAreAlignedToTheLargestNeed) {
    VkPhysicalDeviceLimits limits = {};
    limits.minStorageBufferOffsetAlignment = 16;
    limits.nonCoherentAtomSize = 1;
    EXPECT_EQ(region_alignment(limits, 4, 0), 16u);
    EXPECT_EQ(region_alignment(limits, 64, 0), 64u);
    limits.minStorageBufferOffsetAlignment = 256;
    EXPECT_EQ(region_alignment(limits, 64, 32), 256u);
    limits.nonCoherentAtomSize = 512;
    EXPECT_EQ(region_alignment(limits, 64, 32), 512u);
    EXPECT_EQ(region_alignment(limits, 64, 1000), 1024u) << "the configured multiple, as a power of two";
}

TEST(Plan, OnlyLlvmpipesOwnConstantIsNotBelieved) {
    VkPhysicalDeviceProperties p = kCpu.properties;
    p.limits.maxStorageBufferRange = 128u << 20;
    EXPECT_EQ(storage_range(p), 0x7fffffffu);
    p.limits.maxStorageBufferRange = 4096;
    EXPECT_EQ(storage_range(p), 4096u);
    p = kDiscrete.properties;
    p.limits.maxStorageBufferRange = 128u << 20;
    EXPECT_EQ(storage_range(p), 128u << 20);
}
