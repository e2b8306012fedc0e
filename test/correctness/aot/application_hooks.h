// The hooks that lend an Application's device to Halide, instead of the runtime's own. For one file of a program, or of
// a library with a runtime.

#ifndef HV_APPLICATION_HOOKS_H
#define HV_APPLICATION_HOOKS_H

#include "HalideRuntime.h"

#include "application.h"

#include "HalideRuntimeVulkan.h"

// A null user context has no device here.
extern "C" int halide_vulkan_acquire_context(void *user_context, halide_vulkan_memory_allocator **allocator,
                                             VkInstance *instance, VkDevice *device, VkPhysicalDevice *physical_device,
                                             VkQueue *queue, uint32_t *queue_family_index,
                                             VkDebugUtilsMessengerEXT *messenger, bool) {
    *allocator = nullptr;
    *messenger = VK_NULL_HANDLE;
    Application *application = (Application *)user_context;
    if (!application) {
        *instance = VK_NULL_HANDLE;
        *device = VK_NULL_HANDLE;
        *physical_device = VK_NULL_HANDLE;
        *queue = VK_NULL_HANDLE;
        *queue_family_index = 0;
        return halide_error_code_device_interface_no_device;
    }
    application->lock_of_queue().lock();
    application->acquired++;
    if (application->counts) application->submits_while_away += hv_layer_count_prefix("vkQueue") - application->calls;
    *instance = application->instance;
    *device = application->device;
    *physical_device = application->physical;
    *queue = application->queue;
    *queue_family_index = application->family;
    return 0;
}

extern "C" int halide_vulkan_release_context(void *user_context, VkInstance, VkDevice, VkQueue,
                                             VkDebugUtilsMessengerEXT) {
    Application *application = (Application *)user_context;
    if (application) {
        application->released++;
        if (application->counts) application->calls = hv_layer_count_prefix("vkQueue");
        application->lock_of_queue().unlock();
    }
    return 0;
}

#endif  // HV_APPLICATION_HOOKS_H
