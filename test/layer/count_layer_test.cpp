// The counting layer's own test: what it says must be true before another test may lean on it.

#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <vulkan/vulkan.h>

#include "count_layer.h"

namespace {

class CountLayer : public testing::Test {
protected:
    void SetUp() override {
        hv_layer_clear();
        hv_layer_reset();
        const char *layer = HV_COUNT_LAYER_NAME;
        VkApplicationInfo application = {VK_STRUCTURE_TYPE_APPLICATION_INFO};
        application.apiVersion = VK_API_VERSION_1_1;
        VkInstanceCreateInfo info = {VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO};
        info.pApplicationInfo = &application;
        info.enabledLayerCount = 1;
        info.ppEnabledLayerNames = &layer;
        ASSERT_EQ(vkCreateInstance(&info, nullptr, &instance), VK_SUCCESS);
        uint32_t count = 1;
        ASSERT_GE(vkEnumeratePhysicalDevices(instance, &count, &physical), 0);
        ASSERT_EQ(count, 1u) << "no Vulkan device on this machine";
    }
    void TearDown() override {
        if (device) vkDestroyDevice(device, nullptr);
        if (instance) vkDestroyInstance(instance, nullptr);
        hv_layer_clear();
    }
    void make_device() {
        const float priority = 1;
        VkDeviceQueueCreateInfo queue = {VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO};
        queue.queueCount = 1;
        queue.pQueuePriorities = &priority;
        VkDeviceCreateInfo info = {VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO};
        info.queueCreateInfoCount = 1;
        info.pQueueCreateInfos = &queue;
        ASSERT_EQ(vkCreateDevice(physical, &info, nullptr, &device), VK_SUCCESS);
    }
    VkBuffer make_buffer(VkDeviceSize size) {
        VkBufferCreateInfo info = {VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO};
        info.size = size;
        info.usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT;
        VkBuffer buffer = VK_NULL_HANDLE;
        EXPECT_EQ(vkCreateBuffer(device, &info, nullptr, &buffer), VK_SUCCESS);
        return buffer;
    }
    VkResult allocate(VkDeviceSize size, uint32_t type, VkDeviceMemory *memory) {
        VkMemoryAllocateInfo info = {VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO};
        info.allocationSize = size;
        info.memoryTypeIndex = type;
        return vkAllocateMemory(device, &info, nullptr, memory);
    }

    VkInstance instance = VK_NULL_HANDLE;
    VkPhysicalDevice physical = VK_NULL_HANDLE;
    VkDevice device = VK_NULL_HANDLE;
};

TEST_F(CountLayer, CountsCalls) {
    make_device();
    EXPECT_EQ(hv_layer_count("vkCreateInstance"), 1u);
    EXPECT_EQ(hv_layer_count("vkCreateDevice"), 1u);
    EXPECT_EQ(hv_layer_count("vkDeviceWaitIdle"), 0u);
    for (int i = 0; i < 3; i++) EXPECT_EQ(vkDeviceWaitIdle(device), VK_SUCCESS);
    EXPECT_EQ(hv_layer_count("vkDeviceWaitIdle"), 3u);
    EXPECT_EQ(hv_layer_count_prefix("vkCreate"), 2u);
    EXPECT_EQ(hv_layer_count("vkNoSuchCall"), UINT64_MAX);
    hv_layer_reset();
    EXPECT_EQ(hv_layer_count_prefix("vk"), 0u);
}

TEST_F(CountLayer, FailsTheNthCall) {
    make_device();
    EXPECT_EQ(hv_layer_fail("vkDestroyDevice", 1, VK_ERROR_DEVICE_LOST), 0) << "returns nothing, so cannot fail";
    EXPECT_EQ(hv_layer_fail("vkNoSuchCall", 1, VK_ERROR_DEVICE_LOST), 0);
    ASSERT_EQ(hv_layer_fail("vkDeviceWaitIdle", 2, VK_ERROR_OUT_OF_DEVICE_MEMORY), 1);
    const uint64_t before = hv_layer_failed();
    EXPECT_EQ(vkDeviceWaitIdle(device), VK_SUCCESS);
    EXPECT_EQ(vkDeviceWaitIdle(device), VK_ERROR_OUT_OF_DEVICE_MEMORY);
    EXPECT_EQ(vkDeviceWaitIdle(device), VK_SUCCESS);
    EXPECT_EQ(hv_layer_failed() - before, 1u);
    ASSERT_EQ(hv_layer_fail("vkDeviceWaitIdle", -1, VK_ERROR_OUT_OF_HOST_MEMORY), 1);
    for (int i = 0; i < 3; i++) EXPECT_EQ(vkDeviceWaitIdle(device), VK_ERROR_OUT_OF_HOST_MEMORY);
    hv_layer_clear();
    EXPECT_EQ(vkDeviceWaitIdle(device), VK_SUCCESS);
}

// A device that is lost stays lost, whatever is cleared.
TEST_F(CountLayer, LosesTheDevice) {
    make_device();
    ASSERT_EQ(hv_layer_fail("vkDeviceWaitIdle", 2, VK_ERROR_DEVICE_LOST), 1);
    EXPECT_EQ(vkDeviceWaitIdle(device), VK_SUCCESS);
    for (int i = 0; i < 3; i++) EXPECT_EQ(vkDeviceWaitIdle(device), VK_ERROR_DEVICE_LOST);
    hv_layer_clear();
    EXPECT_EQ(vkDeviceWaitIdle(device), VK_ERROR_DEVICE_LOST);
}

// From vkCreateInstance on, with what the calls returned.
TEST_F(CountLayer, LogsCalls) {
    hv_layer_log(1);
    TearDown();
    SetUp();
    make_device();
    ASSERT_EQ(hv_layer_fail("vkDeviceWaitIdle", 1, VK_ERROR_OUT_OF_HOST_MEMORY), 1);
    EXPECT_EQ(vkDeviceWaitIdle(device), VK_ERROR_OUT_OF_HOST_MEMORY);
    hv_layer_log(0);
    int result = 1;
    EXPECT_STREQ(hv_layer_logged(0, &result), "vkCreateInstance");
    EXPECT_EQ(result, VK_SUCCESS);
    uint64_t calls = 0;
    while (hv_layer_logged(calls, nullptr)) calls++;
    EXPECT_STREQ(hv_layer_logged(calls - 1, &result), "vkDeviceWaitIdle");
    EXPECT_EQ(result, VK_ERROR_OUT_OF_HOST_MEMORY);
}

TEST_F(CountLayer, KeepsALedger) {
    make_device();
    EXPECT_EQ(hv_layer_live("VkBuffer"), 0);
    EXPECT_EQ(hv_layer_live("VkNothing"), -1);
    VkBuffer a = make_buffer(100), b = make_buffer(100);
    EXPECT_EQ(hv_layer_live("VkBuffer"), 2);
    EXPECT_EQ(hv_layer_live(""), 4) << "instance, device, two buffers";
    vkDestroyBuffer(device, a, nullptr);
    vkDestroyBuffer(device, VK_NULL_HANDLE, nullptr);
    EXPECT_EQ(hv_layer_live("VkBuffer"), 1);
    vkDestroyBuffer(device, b, nullptr);

    VkCommandPoolCreateInfo pool_info = {VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO};
    VkCommandPool pool;
    ASSERT_EQ(vkCreateCommandPool(device, &pool_info, nullptr, &pool), VK_SUCCESS);
    VkCommandBufferAllocateInfo info = {VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO};
    info.commandPool = pool;
    info.commandBufferCount = 3;
    VkCommandBuffer commands[3];
    ASSERT_EQ(vkAllocateCommandBuffers(device, &info, commands), VK_SUCCESS);
    EXPECT_EQ(hv_layer_live("VkCommandBuffer"), 3);
    vkFreeCommandBuffers(device, pool, 1, commands);
    EXPECT_EQ(hv_layer_live("VkCommandBuffer"), 2);
    vkDestroyCommandPool(device, pool, nullptr);
    EXPECT_EQ(hv_layer_live("VkCommandBuffer"), 0);
    EXPECT_EQ(hv_layer_live(""), 2);
    EXPECT_EQ(hv_layer_wrong_destroys(), 0u);
}

TEST_F(CountLayer, TellsBarriersToTheHost) {
    make_device();
    VkCommandPoolCreateInfo pool_info = {VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO};
    VkCommandPool pool;
    ASSERT_EQ(vkCreateCommandPool(device, &pool_info, nullptr, &pool), VK_SUCCESS);
    VkCommandBufferAllocateInfo info = {VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO};
    info.commandPool = pool;
    info.commandBufferCount = 1;
    VkCommandBuffer commands;
    ASSERT_EQ(vkAllocateCommandBuffers(device, &info, &commands), VK_SUCCESS);
    VkCommandBufferBeginInfo begin = {VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
    ASSERT_EQ(vkBeginCommandBuffer(commands, &begin), VK_SUCCESS);
    VkMemoryBarrier memory = {VK_STRUCTURE_TYPE_MEMORY_BARRIER};
    const auto barrier = [&](VkPipelineStageFlags to) {
        vkCmdPipelineBarrier(commands, VK_PIPELINE_STAGE_TRANSFER_BIT, to, 0, 1, &memory, 0, nullptr, 0, nullptr);
    };
    barrier(VK_PIPELINE_STAGE_TRANSFER_BIT);
    barrier(VK_PIPELINE_STAGE_HOST_BIT);
    barrier(VK_PIPELINE_STAGE_HOST_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT);
    EXPECT_EQ(hv_layer_count("vkCmdPipelineBarrier"), 3u);
    EXPECT_EQ(hv_layer_host_barriers(), 1u);
    hv_layer_reset();
    EXPECT_EQ(hv_layer_host_barriers(), 0u);
    vkDestroyCommandPool(device, pool, nullptr);
}

TEST_F(CountLayer, CountsBytesAndLimitsThem) {
    make_device();
    VkDeviceMemory a, b;
    ASSERT_EQ(allocate(4096, 0, &a), VK_SUCCESS);
    EXPECT_EQ(hv_layer_allocated_bytes(), 4096u);
    ASSERT_EQ(hv_layer_limit("allocatedBytes", 8000), 1);
    EXPECT_EQ(allocate(4096, 0, &b), VK_ERROR_OUT_OF_DEVICE_MEMORY);
    vkFreeMemory(device, a, nullptr);
    EXPECT_EQ(allocate(4096, 0, &b), VK_SUCCESS);
    vkFreeMemory(device, b, nullptr);
    EXPECT_EQ(hv_layer_allocated_bytes(), 0u);
    EXPECT_EQ(hv_layer_peak_allocated_bytes(), 4096u);
}

TEST_F(CountLayer, ReportsOtherLimits) {
    EXPECT_EQ(hv_layer_limit("noSuchLimit", 1), 0);
    ASSERT_EQ(hv_layer_limit("minStorageBufferOffsetAlignment", 256), 1);
    ASSERT_EQ(hv_layer_limit("maxComputeWorkGroupCount", 1000), 1);
    ASSERT_EQ(hv_layer_limit("maxComputeWorkGroupCount.z", 7), 1);
    ASSERT_EQ(hv_layer_limit("timelineSemaphore", 0), 1);
    ASSERT_EQ(hv_layer_limit("VkMemoryRequirements.alignment", 65536), 1);
    ASSERT_EQ(hv_layer_limit("VkMemoryRequirements.padding", 12), 1);
    VkPhysicalDeviceProperties properties;
    vkGetPhysicalDeviceProperties(physical, &properties);
    EXPECT_EQ(properties.limits.minStorageBufferOffsetAlignment, 256u);
    EXPECT_EQ(properties.limits.maxComputeWorkGroupCount[0], 1000u);
    EXPECT_EQ(properties.limits.maxComputeWorkGroupCount[2], 7u);
    VkPhysicalDeviceTimelineSemaphoreFeatures timeline = {
        VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_TIMELINE_SEMAPHORE_FEATURES};
    VkPhysicalDeviceFeatures2 features = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, &timeline};
    timeline.timelineSemaphore = VK_TRUE;
    vkGetPhysicalDeviceFeatures2(physical, &features);
    EXPECT_EQ(timeline.timelineSemaphore, VK_FALSE);
    make_device();
    VkBuffer buffer = make_buffer(1);
    VkMemoryRequirements requirements;
    vkGetBufferMemoryRequirements(device, buffer, &requirements);
    EXPECT_EQ(requirements.alignment, 65536u);
    EXPECT_GE(requirements.size, 13u);
    vkDestroyBuffer(device, buffer, nullptr);
}

TEST_F(CountLayer, KnowsWhatDevicesWereToldOf) {
    constexpr uint32_t kVendor = 0x4711;
    VkPhysicalDeviceProperties properties;
    EXPECT_FALSE(hv_layer_told_vendor(kVendor));
    make_device();
    vkGetPhysicalDeviceProperties(physical, &properties);
    EXPECT_EQ(hv_layer_device_type(), (int)properties.deviceType);
    EXPECT_TRUE(hv_layer_told_vendor(properties.vendorID));
    EXPECT_FALSE(hv_layer_told_vendor(kVendor));
    ASSERT_EQ(hv_layer_limit("vendorID", kVendor), 1);
    vkGetPhysicalDeviceProperties(physical, &properties);
    EXPECT_TRUE(hv_layer_told_vendor(kVendor));
    vkDestroyDevice(device, nullptr);
    ASSERT_EQ(hv_layer_limit("deviceType", VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU), 1);
    make_device();
    EXPECT_EQ(hv_layer_device_type(), (int)VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU);
}

// One instance may be left where an NVIDIA device was told of; nothing else, and not elsewhere.
TEST_F(CountLayer, LeavesOutTheInstanceThatKeepsADriverLoaded) {
    if (hv_layer_told_vendor(0x10de)) GTEST_SKIP() << "this machine has such a device";
    make_device();
    EXPECT_EQ(hv_layer_left(), 2);
    ASSERT_EQ(hv_layer_limit("vendorID", 0x10de), 1);
    VkPhysicalDeviceProperties properties;
    vkGetPhysicalDeviceProperties(physical, &properties);
    EXPECT_EQ(hv_layer_left(), 1) << "the device counts";
    vkDestroyDevice(device, nullptr);
    device = VK_NULL_HANDLE;
    EXPECT_EQ(hv_layer_left(), 0);
    vkDestroyInstance(instance, nullptr);
    instance = VK_NULL_HANDLE;
    EXPECT_EQ(hv_layer_left(), 0);
}

TEST_F(CountLayer, PretendsASecondDeviceOfAnotherType) {
    VkPhysicalDevice devices[8];
    uint32_t count = 8;
    ASSERT_GE(vkEnumeratePhysicalDevices(instance, &count, devices), VK_SUCCESS);
    ASSERT_EQ(hv_layer_limit("secondDevice.deviceType", VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU), 1);
    for (uint32_t i = 0; i < count; i++) {
        VkPhysicalDeviceProperties properties;
        vkGetPhysicalDeviceProperties(devices[i], &properties);
        EXPECT_EQ(std::string(properties.deviceName) == "Pretended GPU", i == 1);
        if (i == 1) {
            EXPECT_EQ(properties.deviceType, VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU);
        }
    }
}

TEST_F(CountLayer, HidesExtensions) {
    auto names = [&] {
        uint32_t count = 0;
        EXPECT_EQ(vkEnumerateDeviceExtensionProperties(physical, nullptr, &count, nullptr), VK_SUCCESS);
        std::vector<VkExtensionProperties> all(count);
        EXPECT_EQ(vkEnumerateDeviceExtensionProperties(physical, nullptr, &count, all.data()), VK_SUCCESS);
        all.resize(count);
        return all;
    };
    const auto before = names();
    ASSERT_FALSE(before.empty());
    const std::string hidden = before[0].extensionName;
    ASSERT_EQ(hv_layer_limit(("extension:" + hidden).c_str(), 0), 1);
    const auto after = names();
    EXPECT_EQ(after.size() + 1, before.size());
    for (const auto &one : after) EXPECT_NE(hidden, one.extensionName);
}

TEST_F(CountLayer, PretendsOtherMemoryTypes) {
    const uint32_t types[] = {VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT, VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT};
    ASSERT_EQ(hv_layer_memory_types(types, 2), 1);
    VkPhysicalDeviceMemoryProperties memory;
    vkGetPhysicalDeviceMemoryProperties(physical, &memory);
    ASSERT_EQ(memory.memoryTypeCount, 2u);
    EXPECT_EQ(memory.memoryTypes[0].propertyFlags, types[0]);
    EXPECT_EQ(memory.memoryTypes[1].propertyFlags, types[1]);
    make_device();
    VkDeviceMemory local, host;
    ASSERT_EQ(allocate(4096, 0, &local), VK_SUCCESS);
    ASSERT_EQ(allocate(4096, 1, &host), VK_SUCCESS);
    char *data = nullptr;
    EXPECT_EQ(vkMapMemory(device, local, 0, VK_WHOLE_SIZE, 0, (void **)&data), VK_ERROR_MEMORY_MAP_FAILED);

    // Not coherent: without a flush the bytes are gone with the mapping, with one they are kept.
    VkMappedMemoryRange range = {VK_STRUCTURE_TYPE_MAPPED_MEMORY_RANGE, nullptr, host, 0, VK_WHOLE_SIZE};
    for (bool flush : {true, false}) {
        ASSERT_EQ(vkMapMemory(device, host, 0, VK_WHOLE_SIZE, 0, (void **)&data), VK_SUCCESS);
        EXPECT_EQ(hv_layer_live("mapped"), 1);
        memset(data, flush ? 7 : 8, 4096);
        if (flush) {
            EXPECT_EQ(vkFlushMappedMemoryRanges(device, 1, &range), VK_SUCCESS);
        }
        vkUnmapMemory(device, host);
        EXPECT_EQ(hv_layer_live("mapped"), 0);
    }
    ASSERT_EQ(vkMapMemory(device, host, 0, VK_WHOLE_SIZE, 0, (void **)&data), VK_SUCCESS);
    EXPECT_EQ((unsigned char)data[100], 0xCD) << "not invalidated yet";
    EXPECT_EQ(vkInvalidateMappedMemoryRanges(device, 1, &range), VK_SUCCESS);
    EXPECT_EQ(data[100], 7);
    vkFreeMemory(device, host, nullptr);
    vkFreeMemory(device, local, nullptr);
    EXPECT_EQ(hv_layer_live("mapped"), 0) << "freeing unmaps";
}

// An empty kernel with a workgroup of x threads.
std::vector<uint32_t> empty_kernel(uint32_t x) {
    return {0x07230203, 0x00010000, 0,          5, 0,  0x00020011, 1, 0x0003000e, 0,          1, 0x0005000f, 5, 1,
            0x6e69616d, 0,          0x00060010, 1, 17, x,          1, 1,          0x00020013, 2, 0x00030021, 3, 2,
            0x00050036, 2,          1,          0, 3,  0x000200f8, 4, 0x000100fd, 0x00010038};
}

TEST_F(CountLayer, ModelsPipelineCaches) {
    ASSERT_EQ(hv_layer_limit("pipelineCache.model", 100), 1);
    ASSERT_EQ(hv_layer_limit("pipelineCacheUUID", 0x1122334455667788), 1);
    make_device();
    VkPipelineLayoutCreateInfo layout_info = {VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO};
    VkPipelineLayout layout;
    ASSERT_EQ(vkCreatePipelineLayout(device, &layout_info, nullptr, &layout), VK_SUCCESS);
    const auto make_cache = [&](const std::string &initial) {
        VkPipelineCacheCreateInfo info = {VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO};
        info.initialDataSize = initial.size();
        info.pInitialData = initial.data();
        VkPipelineCache cache = VK_NULL_HANDLE;
        EXPECT_EQ(vkCreatePipelineCache(device, &info, nullptr, &cache), VK_SUCCESS);
        return cache;
    };
    const auto data_of = [&](VkPipelineCache cache) {
        size_t size = 0;
        EXPECT_EQ(vkGetPipelineCacheData(device, cache, &size, nullptr), VK_SUCCESS);
        std::string data(size, 0);
        EXPECT_EQ(vkGetPipelineCacheData(device, cache, &size, &data[0]), VK_SUCCESS);
        return data;
    };
    // Makes the kernel of x threads and says whether the cache had it.
    const auto found = [&](VkPipelineCache cache, uint32_t x) {
        const uint64_t before = hv_layer_cache_found(), compiled = hv_layer_cache_compiled();
        const std::vector<uint32_t> code = empty_kernel(x);
        VkShaderModuleCreateInfo module_info = {VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO};
        module_info.codeSize = code.size() * 4;
        module_info.pCode = code.data();
        VkComputePipelineCreateInfo info = {VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO};
        info.stage.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO;
        info.stage.stage = VK_SHADER_STAGE_COMPUTE_BIT;
        info.stage.pName = "main";
        info.layout = layout;
        VkPipeline pipeline = VK_NULL_HANDLE;
        EXPECT_EQ(vkCreateShaderModule(device, &module_info, nullptr, &info.stage.module), VK_SUCCESS);
        EXPECT_EQ(vkCreateComputePipelines(device, cache, 1, &info, nullptr, &pipeline), VK_SUCCESS);
        vkDestroyShaderModule(device, info.stage.module, nullptr);
        vkDestroyPipeline(device, pipeline, nullptr);
        const uint64_t hits = hv_layer_cache_found() - before;
        EXPECT_EQ(hits + hv_layer_cache_compiled() - compiled, 1u);
        return hits == 1;
    };

    const VkPipelineCache a = make_cache(""), b = make_cache("");
    EXPECT_FALSE(found(a, 1));
    EXPECT_TRUE(found(a, 1));
    EXPECT_FALSE(found(a, 2)) << "another kernel";
    EXPECT_FALSE(found(b, 3));
    EXPECT_FALSE(found(VK_NULL_HANDLE, 1));
    const std::string of_a = data_of(a);
    EXPECT_EQ(of_a.size(), 32u + 2 * 100);
    EXPECT_EQ(of_a.substr(16, 8), std::string("\x88\x77\x66\x55\x44\x33\x22\x11"));
    size_t room = of_a.size() - 1;
    std::string cut(of_a.size(), 0);
    EXPECT_EQ(vkGetPipelineCacheData(device, a, &room, &cut[0]), VK_INCOMPLETE);
    EXPECT_EQ(room, 32u + 100);

    const VkPipelineCache c = make_cache(of_a);
    std::string seen(1000, 0);
    EXPECT_EQ(hv_layer_cache_initial(&seen[0], seen.size()), of_a.size());
    EXPECT_EQ(seen.substr(0, of_a.size()), of_a);
    EXPECT_TRUE(found(c, 2));
    EXPECT_EQ(vkMergePipelineCaches(device, c, 1, &b), VK_SUCCESS);
    EXPECT_TRUE(found(c, 3));
    EXPECT_FALSE(found(c, 4));

    const uint64_t refused = hv_layer_cache_refused();
    std::string damaged = of_a;
    damaged[150] ^= 1;
    const VkPipelineCache d = make_cache(damaged);
    EXPECT_EQ(hv_layer_cache_refused(), refused + 1);
    EXPECT_FALSE(found(d, 1));
    for (VkPipelineCache cache : {a, b, c, d}) vkDestroyPipelineCache(device, cache, nullptr);
    vkDestroyPipelineLayout(device, layout, nullptr);
    EXPECT_EQ(hv_layer_live(""), 2);
}

}  // namespace
