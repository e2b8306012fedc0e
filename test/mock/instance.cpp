// instance.cpp: instances, physical devices and devices, as the profile says.

#include "state.h"

#include <cstring>

namespace mock {

namespace {

constexpr const char *kLayer = "VK_LAYER_MOCK_nothing";  // there is one layer, and it does nothing

bool has(const std::vector<const char *> &names, const char *name) {
    for (const char *one : names) {
        if (strcmp(one, name) == 0) return true;
    }
    return false;
}

std::vector<VkExtensionProperties> described(const std::vector<const char *> &names) {
    std::vector<VkExtensionProperties> list;
    for (const char *name : names) {
        VkExtensionProperties one = {};
        strncpy(one.extensionName, name, sizeof(one.extensionName) - 1);
        one.specVersion = 1;
        list.push_back(one);
    }
    return list;
}

// What still hangs on a device or instance that goes is noted, and goes with it.
void drop_leaks(const Object &parent) {
    for (Object *child : children_of(&parent)) {
        if (strcmp(child->type, "VkQueue") == 0 || strcmp(child->type, "VkPhysicalDevice") == 0) continue;
        wrong(std::string(parent.type) + " is destroyed while it has a " + child->type);
        drop_leaks(*child);
        child->pending = 0;
        end_child(child);
    }
}

VkPhysicalDeviceFeatures features_of(const Profile &p) {
    VkPhysicalDeviceFeatures f = {};
    f.robustBufferAccess = VK_TRUE;
    f.shaderInt64 = p.int64;
    f.shaderInt16 = p.int16;
    f.shaderFloat64 = p.float64;
    return f;
}

// Fills the feature structures of a chain that this mock knows, and leaves the others alone.
void fill_features(const Profile &p, void *chain) {
    for (auto *next = (VkBaseOutStructure *)chain; next; next = next->pNext) {
        switch (next->sType) {
        case VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_16BIT_STORAGE_FEATURES: {
            auto &f = *(VkPhysicalDevice16BitStorageFeatures *)next;
            f.storageBuffer16BitAccess = f.uniformAndStorageBuffer16BitAccess = p.storage16;
            break;
        }
        case VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_8BIT_STORAGE_FEATURES: {
            auto &f = *(VkPhysicalDevice8BitStorageFeatures *)next;
            f.storageBuffer8BitAccess = f.uniformAndStorageBuffer8BitAccess = p.storage8;
            break;
        }
        case VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_FLOAT16_INT8_FEATURES: {
            auto &f = *(VkPhysicalDeviceShaderFloat16Int8Features *)next;
            f.shaderFloat16 = p.float16;
            f.shaderInt8 = p.int8;
            break;
        }
        case VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_TIMELINE_SEMAPHORE_FEATURES:
            ((VkPhysicalDeviceTimelineSemaphoreFeatures *)next)->timelineSemaphore = p.timeline;
            break;
        case VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES:
            ((VkPhysicalDeviceVulkan12Features *)next)->timelineSemaphore = p.timeline;
            break;
        default: break;
        }
    }
}

// Features that are switched on but not there: VkBool32s from the first to the last member.
bool asks_too_much(const VkPhysicalDeviceFeatures &asked, const VkPhysicalDeviceFeatures &offered) {
    VkBool32 a[sizeof(asked) / 4], o[sizeof(offered) / 4];
    memcpy(a, &asked, sizeof(a));
    memcpy(o, &offered, sizeof(o));
    for (size_t i = 0; i < sizeof(a) / 4; i++) {
        if (a[i] && !o[i]) return true;
    }
    return false;
}

void fill_properties(const Profile &p, VkPhysicalDeviceProperties &out) {
    out = {};
    out.apiVersion = p.version;
    out.driverVersion = 1;
    out.vendorID = 0x10000;
    out.deviceID = 1;
    out.deviceType = p.type;
    strncpy(out.deviceName, p.device, sizeof(out.deviceName) - 1);
    memcpy(out.pipelineCacheUUID, "mock-driver-uuid", VK_UUID_SIZE);
    VkPhysicalDeviceLimits &l = out.limits;
    l.maxUniformBufferRange = p.uniform_range;
    l.maxStorageBufferRange = p.storage_range;
    l.maxPushConstantsSize = p.push_bytes;
    l.maxMemoryAllocationCount = 4096;
    l.bufferImageGranularity = 1;
    l.maxBoundDescriptorSets = 4;
    l.maxPerStageDescriptorUniformBuffers = 12;
    l.maxPerStageDescriptorStorageBuffers = l.maxDescriptorSetStorageBuffers = p.storage_buffers;
    l.maxPerStageResources = p.storage_buffers + 12;
    l.maxDescriptorSetUniformBuffers = 72;
    l.maxComputeSharedMemorySize = p.shared_bytes;
    memcpy(l.maxComputeWorkGroupCount, p.groups, sizeof(p.groups));
    memcpy(l.maxComputeWorkGroupSize, p.group_size, sizeof(p.group_size));
    l.maxComputeWorkGroupInvocations = p.invocations;
    l.minMemoryMapAlignment = 4096;
    l.minStorageBufferOffsetAlignment = p.storage_alignment;
    l.minUniformBufferOffsetAlignment = p.uniform_alignment;
    l.optimalBufferCopyOffsetAlignment = p.copy_alignment;
    l.nonCoherentAtomSize = p.atom;
    l.timestampPeriod = 1.0f;
    l.timestampComputeAndGraphics = p.families[0].timestampValidBits != 0;
}

void fill_memory(const Profile &p, VkPhysicalDeviceMemoryProperties &out) {
    out = {};
    out.memoryTypeCount = (uint32_t)p.types.size();
    for (size_t i = 0; i < p.types.size(); i++) out.memoryTypes[i] = p.types[i];
    out.memoryHeapCount = (uint32_t)p.heaps.size();
    for (size_t i = 0; i < p.heaps.size(); i++) out.memoryHeaps[i] = p.heaps[i];
}

}  // namespace

VkResult do_vkEnumerateInstanceVersion(uint32_t *version) {
    *version = current_profile().loader_version;
    return VK_SUCCESS;
}

VkResult do_vkEnumerateInstanceExtensionProperties(const char *, uint32_t *count, VkExtensionProperties *to) {
    return enumerate(described(current_profile().instance_extensions), count, to);
}

VkResult do_vkEnumerateInstanceLayerProperties(uint32_t *count, VkLayerProperties *to) {
    VkLayerProperties layer = {};
    strcpy(layer.layerName, kLayer);
    layer.specVersion = VK_API_VERSION_1_3;
    return enumerate(std::vector<VkLayerProperties>{layer}, count, to);
}

VkResult do_vkCreateInstance(const VkInstanceCreateInfo *info, const VkAllocationCallbacks *callbacks,
                             VkInstance *out) {
    const Profile &p = current_profile();
    for (uint32_t i = 0; i < info->enabledLayerCount; i++) {
        if (strcmp(info->ppEnabledLayerNames[i], kLayer) != 0) return VK_ERROR_LAYER_NOT_PRESENT;
    }
    for (uint32_t i = 0; i < info->enabledExtensionCount; i++) {
        if (!has(p.instance_extensions, info->ppEnabledExtensionNames[i])) return VK_ERROR_EXTENSION_NOT_PRESENT;
    }
    const uint32_t asked = info->pApplicationInfo && info->pApplicationInfo->apiVersion
                               ? info->pApplicationInfo->apiVersion
                               : VK_API_VERSION_1_0;
    // Vulkan 1.0 knows no newer version; later ones take any.
    if (VK_API_VERSION_MINOR(p.loader_version) == 0 && VK_API_VERSION_MINOR(asked) > 0)
        return VK_ERROR_INCOMPATIBLE_DRIVER;
    auto *instance = new Instance;
    add_object(instance, "VkInstance", nullptr, callbacks);
    instance->profile = &p;
    instance->api_version = asked;
    for (uint32_t i = 0; i < info->enabledExtensionCount; i++)
        instance->extensions.push_back(info->ppEnabledExtensionNames[i]);
    // A device that is portable only in part is listed only to who asks for such.
    const bool portability = (info->flags & VK_INSTANCE_CREATE_ENUMERATE_PORTABILITY_BIT_KHR) != 0;
    if (portability || !has(p.extensions, "VK_KHR_portability_subset")) {
        auto *physical = new Physical;
        add_object(physical, "VkPhysicalDevice", instance, nullptr);
        physical->profile = &p;
    }
    *out = (VkInstance)instance->handle;
    return VK_SUCCESS;
}

void do_vkDestroyInstance(VkInstance handle, const VkAllocationCallbacks *callbacks) {
    if (!handle) return;
    Instance &instance = get(handle);
    drop_leaks(instance);
    for (Object *child : children_of(&instance)) end_child(child);
    end_object(&instance, callbacks);
}

VkResult do_vkEnumeratePhysicalDevices(VkInstance handle, uint32_t *count, VkPhysicalDevice *to) {
    std::vector<VkPhysicalDevice> list;
    for (Object *child : children_of(&get(handle))) {
        if (strcmp(child->type, "VkPhysicalDevice") == 0) list.push_back((VkPhysicalDevice)child->handle);
    }
    return enumerate(list, count, to);
}

void do_vkGetPhysicalDeviceProperties(VkPhysicalDevice physical, VkPhysicalDeviceProperties *out) {
    fill_properties(*get(physical).profile, *out);
}
void do_vkGetPhysicalDeviceProperties2(VkPhysicalDevice physical, VkPhysicalDeviceProperties2 *out) {
    fill_properties(*get(physical).profile, out->properties);
}
void do_vkGetPhysicalDeviceFeatures(VkPhysicalDevice physical, VkPhysicalDeviceFeatures *out) {
    *out = features_of(*get(physical).profile);
}
void do_vkGetPhysicalDeviceFeatures2(VkPhysicalDevice physical, VkPhysicalDeviceFeatures2 *out) {
    out->features = features_of(*get(physical).profile);
    fill_features(*get(physical).profile, out->pNext);
}
void do_vkGetPhysicalDeviceFeatures2KHR(VkPhysicalDevice physical, VkPhysicalDeviceFeatures2 *out) {
    do_vkGetPhysicalDeviceFeatures2(physical, out);
}
void do_vkGetPhysicalDeviceMemoryProperties(VkPhysicalDevice physical, VkPhysicalDeviceMemoryProperties *out) {
    fill_memory(*get(physical).profile, *out);
}
void do_vkGetPhysicalDeviceMemoryProperties2(VkPhysicalDevice physical, VkPhysicalDeviceMemoryProperties2 *out) {
    fill_memory(*get(physical).profile, out->memoryProperties);
}
void do_vkGetPhysicalDeviceQueueFamilyProperties(VkPhysicalDevice physical, uint32_t *count,
                                                 VkQueueFamilyProperties *to) {
    enumerate(get(physical).profile->families, count, to);
}
VkResult do_vkEnumerateDeviceExtensionProperties(VkPhysicalDevice physical, const char *, uint32_t *count,
                                                 VkExtensionProperties *to) {
    return enumerate(described(get(physical).profile->extensions), count, to);
}

VkResult do_vkCreateDevice(VkPhysicalDevice handle, const VkDeviceCreateInfo *info,
                           const VkAllocationCallbacks *callbacks, VkDevice *out) {
    Physical &physical = get(handle);
    const Profile &p = *physical.profile;
    for (uint32_t i = 0; i < info->enabledExtensionCount; i++) {
        if (!has(p.extensions, info->ppEnabledExtensionNames[i])) return VK_ERROR_EXTENSION_NOT_PRESENT;
    }
    const VkPhysicalDeviceFeatures *features = info->pEnabledFeatures;
    for (auto *next = (const VkBaseInStructure *)info->pNext; next; next = next->pNext) {
        if (next->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2)
            features = &((const VkPhysicalDeviceFeatures2 *)next)->features;
    }
    if (features && asks_too_much(*features, features_of(p))) return VK_ERROR_FEATURE_NOT_PRESENT;
    Device *device = make(*physical.parent, callbacks, out);
    device->device = device;
    device->profile = &p;
    const Instance &instance = *(Instance *)physical.parent;
    device->api_version = p.version < instance.api_version ? p.version : instance.api_version;
    for (uint32_t i = 0; i < info->enabledExtensionCount; i++)
        device->extensions.push_back(info->ppEnabledExtensionNames[i]);
    bool portable = !has(p.extensions, "VK_KHR_portability_subset");
    for (const std::string &name : device->extensions) portable = portable || name == "VK_KHR_portability_subset";
    if (!portable) wrong("VK_KHR_portability_subset is offered and not switched on");
    for (uint32_t i = 0; i < info->queueCreateInfoCount; i++) {
        const VkDeviceQueueCreateInfo &asked = info->pQueueCreateInfos[i];
        if (asked.queueFamilyIndex >= p.families.size() ||
            asked.queueCount > p.families[asked.queueFamilyIndex].queueCount) {
            wrong("there is no such queue");
            continue;
        }
        for (uint32_t k = 0; k < asked.queueCount; k++) {
            auto *queue = new Queue;
            add_object(queue, "VkQueue", device, nullptr);
            queue->family = asked.queueFamilyIndex;
            queue->index = k;
            device->queues.push_back(queue);
        }
    }
    return VK_SUCCESS;
}

void do_vkDestroyDevice(VkDevice handle, const VkAllocationCallbacks *callbacks) {
    if (!handle) return;
    Device &device = get(handle);
    for (Queue *queue : device.queues) {
        if (!queue->submissions.empty() && !device.lost) wrong("VkDevice is destroyed while it works");
    }
    finish_all_of(device);
    drop_leaks(device);
    for (Queue *queue : device.queues) end_child(queue);
    end_object(&device, callbacks);
}

void do_vkGetDeviceQueue(VkDevice handle, uint32_t family, uint32_t index, VkQueue *out) {
    *out = VK_NULL_HANDLE;
    for (Queue *queue : get(handle).queues) {
        if (queue->family == family && queue->index == index) *out = (VkQueue)queue->handle;
    }
    if (!*out) wrong("the device was made without that queue");
}

VkResult do_vkCreateDebugUtilsMessengerEXT(VkInstance instance, const VkDebugUtilsMessengerCreateInfoEXT *,
                                           const VkAllocationCallbacks *callbacks, VkDebugUtilsMessengerEXT *out) {
    make(get(instance), callbacks, out);
    return VK_SUCCESS;
}
void do_vkDestroyDebugUtilsMessengerEXT(VkInstance, VkDebugUtilsMessengerEXT handle,
                                        const VkAllocationCallbacks *callbacks) {
    if (handle) end_object(&get(handle), callbacks);
}

}  // namespace mock
