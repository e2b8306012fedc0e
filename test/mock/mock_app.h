// mock_app.h: an application of the mock driver, for tests: its functions, an instance, a device and a few shorthands.
//
// A test that wants a device of its own beside the runtime's, or that tests the mock itself, uses this.

#ifndef HALIDE_VULKAN_MOCK_APP_H
#define HALIDE_VULKAN_MOCK_APP_H

#ifndef VK_NO_PROTOTYPES
#define VK_NO_PROTOTYPES
#endif
#include <vulkan/vulkan.h>

#include "mock.h"

#include <vector>

struct MockApp {
#define MOCK_CALL(name, version, extension, errors, written) PFN_##name name = nullptr;
#include "calls.inc"

    VkInstance instance = VK_NULL_HANDLE;
    VkPhysicalDevice physical = VK_NULL_HANDLE;
    VkDevice device = VK_NULL_HANDLE;

    // A device with all queues of its families.
    explicit MockApp(bool make_device = true) {
        vkGetInstanceProcAddr = (PFN_vkGetInstanceProcAddr)dlsym(mock_file(), "vkGetInstanceProcAddr");
        vkCreateInstance = (PFN_vkCreateInstance)vkGetInstanceProcAddr(nullptr, "vkCreateInstance");
        const auto version =
            (PFN_vkEnumerateInstanceVersion)vkGetInstanceProcAddr(nullptr, "vkEnumerateInstanceVersion");
        VkApplicationInfo application = {VK_STRUCTURE_TYPE_APPLICATION_INFO};
        application.apiVersion = VK_API_VERSION_1_0;
        if (version) version(&application.apiVersion);
        VkInstanceCreateInfo info = {VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO};
        info.pApplicationInfo = &application;
        if (vkCreateInstance(&info, nullptr, &instance) != VK_SUCCESS) return;
#define MOCK_CALL(name, version, extension, errors, written)                                                           \
    if (PFN_vkVoidFunction found = vkGetInstanceProcAddr(instance, #name)) name = (PFN_##name)found;
#include "calls.inc"
        uint32_t count = 1;
        vkEnumeratePhysicalDevices(instance, &count, &physical);
        if (count == 1 && make_device) create_device();
    }
    ~MockApp() {
        if (device) vkDestroyDevice(device, nullptr);
        if (instance) vkDestroyInstance(instance, nullptr);
    }
    MockApp(const MockApp &) = delete;
    MockApp &operator=(const MockApp &) = delete;

    void create_device() {
        uint32_t families = 16;
        VkQueueFamilyProperties properties[16];
        vkGetPhysicalDeviceQueueFamilyProperties(physical, &families, properties);
        const std::vector<float> priorities(64, 1.0f);
        std::vector<VkDeviceQueueCreateInfo> queues;
        for (uint32_t i = 0; i < families; i++) {
            queues.push_back({VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO, nullptr, 0, i, properties[i].queueCount,
                              priorities.data()});
        }
        VkDeviceCreateInfo info = {VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO};
        info.queueCreateInfoCount = families;
        info.pQueueCreateInfos = queues.data();
        vkCreateDevice(physical, &info, nullptr, &device);
    }
    VkQueue queue(uint32_t family, uint32_t index = 0) {
        VkQueue found = VK_NULL_HANDLE;
        vkGetDeviceQueue(device, family, index, &found);
        return found;
    }
    VkFence fence() {
        VkFenceCreateInfo info = {VK_STRUCTURE_TYPE_FENCE_CREATE_INFO};
        VkFence made = VK_NULL_HANDLE;
        vkCreateFence(device, &info, nullptr, &made);
        return made;
    }
};

// A buffer with memory of the given type, mapped where that can be.
struct MockAppBuffer {
    MockApp &app;
    VkBuffer buffer = VK_NULL_HANDLE;
    VkDeviceMemory memory = VK_NULL_HANDLE;
    uint8_t *mapped = nullptr;

    MockAppBuffer(MockApp &app, uint64_t bytes, uint32_t type) : app(app) {
        VkBufferCreateInfo info = {VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO};
        info.size = bytes;
        info.usage =
            VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT;
        app.vkCreateBuffer(app.device, &info, nullptr, &buffer);
        VkMemoryRequirements needs;
        app.vkGetBufferMemoryRequirements(app.device, buffer, &needs);
        VkMemoryAllocateInfo allocate = {VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO, nullptr, needs.size, type};
        app.vkAllocateMemory(app.device, &allocate, nullptr, &memory);
        app.vkBindBufferMemory(app.device, buffer, memory, 0);
        VkPhysicalDeviceMemoryProperties types;
        app.vkGetPhysicalDeviceMemoryProperties(app.physical, &types);
        if (types.memoryTypes[type].propertyFlags & VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT)
            app.vkMapMemory(app.device, memory, 0, VK_WHOLE_SIZE, 0, (void **)&mapped);
    }
    ~MockAppBuffer() {
        app.vkDestroyBuffer(app.device, buffer, nullptr);
        app.vkFreeMemory(app.device, memory, nullptr);
    }
};

// A pool with one command buffer.
struct MockAppCommands {
    MockApp &app;
    VkCommandPool pool = VK_NULL_HANDLE;
    VkCommandBuffer commands = VK_NULL_HANDLE;

    explicit MockAppCommands(MockApp &app, uint32_t family = 0) : app(app) {
        VkCommandPoolCreateInfo info = {VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO};
        info.queueFamilyIndex = family;
        app.vkCreateCommandPool(app.device, &info, nullptr, &pool);
        VkCommandBufferAllocateInfo allocate = {VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO, nullptr, pool,
                                                VK_COMMAND_BUFFER_LEVEL_PRIMARY, 1};
        app.vkAllocateCommandBuffers(app.device, &allocate, &commands);
        begin();
    }
    ~MockAppCommands() { app.vkDestroyCommandPool(app.device, pool, nullptr); }
    void begin() {
        VkCommandBufferBeginInfo info = {VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
        info.flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT;
        app.vkBeginCommandBuffer(commands, &info);
    }
    void copy(const MockAppBuffer &from, const MockAppBuffer &to, uint64_t bytes) {
        VkBufferCopy region = {0, 0, bytes};
        app.vkCmdCopyBuffer(commands, from.buffer, to.buffer, 1, &region);
    }
    VkResult submit(VkQueue queue, VkFence fence = VK_NULL_HANDLE, const void *next = nullptr,
                    VkSemaphore signal = VK_NULL_HANDLE, VkSemaphore wait = VK_NULL_HANDLE) {
        app.vkEndCommandBuffer(commands);
        const VkPipelineStageFlags stage = VK_PIPELINE_STAGE_ALL_COMMANDS_BIT;
        VkSubmitInfo info = {VK_STRUCTURE_TYPE_SUBMIT_INFO, next};
        info.commandBufferCount = 1;
        info.pCommandBuffers = &commands;
        info.signalSemaphoreCount = signal ? 1 : 0;
        info.pSignalSemaphores = &signal;
        info.waitSemaphoreCount = wait ? 1 : 0;
        info.pWaitSemaphores = &wait;
        info.pWaitDstStageMask = &stage;
        return app.vkQueueSubmit(queue, 1, &info, fence);
    }
};

#endif
