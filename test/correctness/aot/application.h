// An application's own Vulkan instance, device and queue; application_hooks.h lends them to Halide.
//
// A user context of Halide's is a pointer to an Application.

#ifndef HV_APPLICATION_H
#define HV_APPLICATION_H

#include <vulkan/vulkan.h>

#include "../../layer/count_layer.h"

#include <gtest/gtest.h>

#include <atomic>
#include <mutex>

// What an application owns.
struct Application {
    VkInstance instance = VK_NULL_HANDLE;
    VkPhysicalDevice physical = VK_NULL_HANDLE;
    VkDevice device = VK_NULL_HANDLE;
    VkQueue queue = VK_NULL_HANDLE;
    uint32_t family = 0;
    std::mutex queue_lock;
    std::atomic<int> acquired{0}, released{0};
    // Set by a test that counts what happens while the queue is not lent.
    bool counts = false;
    uint64_t calls = 0, submits_while_away = 0;
    Application *owner = nullptr;  // of the device, where that is another

    Application() {
        VkApplicationInfo application = {VK_STRUCTURE_TYPE_APPLICATION_INFO};
        application.apiVersion = VK_API_VERSION_1_3;
        const char *layer = HV_COUNT_LAYER_NAME;
        VkInstanceCreateInfo info = {VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO};
        info.pApplicationInfo = &application;
        info.enabledLayerCount = 1;
        info.ppEnabledLayerNames = &layer;
        EXPECT_EQ(vkCreateInstance(&info, nullptr, &instance), VK_SUCCESS);
        uint32_t count = 1;
        vkEnumeratePhysicalDevices(instance, &count, &physical);
        EXPECT_EQ(count, 1u);
        uint32_t families = 16;
        VkQueueFamilyProperties properties[16];
        vkGetPhysicalDeviceQueueFamilyProperties(physical, &families, properties);
        while (family + 1 < families && !(properties[family].queueFlags & VK_QUEUE_COMPUTE_BIT)) family++;
        const float priority = 1;
        VkDeviceQueueCreateInfo queues = {VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO};
        queues.queueFamilyIndex = family;
        queues.queueCount = 1;
        queues.pQueuePriorities = &priority;
        // No optional feature is switched on: the runtime may assume none.
        VkDeviceCreateInfo device_info = {VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO};
        device_info.queueCreateInfoCount = 1;
        device_info.pQueueCreateInfos = &queues;
        EXPECT_EQ(vkCreateDevice(physical, &device_info, nullptr, &device), VK_SUCCESS);
        vkGetDeviceQueue(device, family, 0, &queue);
    }
    // Another user context on the same device and queue.
    explicit Application(Application &other)
        : instance(other.instance), physical(other.physical), device(other.device), queue(other.queue),
          family(other.family), owner(&other) {}
    std::mutex &lock_of_queue() { return owner ? owner->queue_lock : queue_lock; }
    ~Application() {
        if (owner) return;
        vkDestroyDevice(device, nullptr);
        vkDestroyInstance(instance, nullptr);
    }
    Application(const Application &) = delete;
};

#endif  // HV_APPLICATION_H
