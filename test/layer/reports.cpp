// reports.cpp: other limits, features and memory types than the driver's.
//
// Keys of hv_layer_limit:
//   a member of VkPhysicalDeviceLimits listed below; of the three-element ones all elements, or one with ".x" ".y" ".z"
//   maxMemoryAllocationSize (enforced too), maxBufferSize, apiVersion, deviceType, vendorID, deviceID, driverVersion
//   secondDevice.deviceType          of the second device of the list alone, which is then named "Pretended GPU"
//   pipelineCacheUUID, driverUUID    the first eight bytes
//   pipelineCache.model              bytes of a pipeline in the layer's own pipeline caches, 8 at least; see caches.cpp
//   timestampValidBits               of every queue family
//   VkMemoryRequirements.alignment   the least alignment a buffer is said to need
//   VkMemoryRequirements.padding     bytes added to the size it is said to need
//   memoryPropertyFlags.strip        flags taken from every memory type
//   queueFlags                       what every queue family is said to do
//   allocatedBytes                   vkAllocateMemory beyond this sum fails with VK_ERROR_OUT_OF_DEVICE_MEMORY
//   heapSize.0, .1, .2               size of a heap, as reported and as enforced: allocations beyond it fail in the
//   same
//                                    way. heapSize.2 makes a third heap, a window: hv_layer_memory_types that are both
//                                    DEVICE_LOCAL and HOST_VISIBLE lie in it
//   heapBudget.0, .1, .2             VK_EXT_memory_budget is there and reports this budget for the heap, and as usage
//                                    what is allocated in it. A budget is not enforced
//   a feature listed below           0: reported as not there (other values leave the driver's answer)
//   extension:NAME                   0: this device extension is reported as not there
// A smaller limit or a larger alignment is always safe for the driver below. Claims beyond the driver's are possible,
// and the test's own responsibility.

#include <atomic>
#include <cstring>

#include "state.h"

#define HV_LIMITS(X)                                                                                                   \
    X(minStorageBufferOffsetAlignment)                                                                                 \
    X(minUniformBufferOffsetAlignment)                                                                                 \
    X(nonCoherentAtomSize)                                                                                             \
    X(minMemoryMapAlignment)                                                                                           \
    X(bufferImageGranularity)                                                                                          \
    X(maxStorageBufferRange)                                                                                           \
    X(maxUniformBufferRange)                                                                                           \
    X(maxPushConstantsSize)                                                                                            \
    X(maxMemoryAllocationCount)                                                                                        \
    X(maxBoundDescriptorSets)                                                                                          \
    X(maxPerStageDescriptorStorageBuffers)                                                                             \
    X(maxPerStageDescriptorUniformBuffers)                                                                             \
    X(maxPerStageResources)                                                                                            \
    X(maxDescriptorSetStorageBuffers)                                                                                  \
    X(maxDescriptorSetUniformBuffers)                                                                                  \
    X(maxComputeSharedMemorySize)                                                                                      \
    X(maxComputeWorkGroupInvocations)                                                                                  \
    X(timestampPeriod)

#define HV_VECTOR_LIMITS(X)                                                                                            \
    X(maxComputeWorkGroupCount)                                                                                        \
    X(maxComputeWorkGroupSize)

#define HV_CORE_FEATURES(X)                                                                                            \
    X(robustBufferAccess)                                                                                              \
    X(shaderFloat64)                                                                                                   \
    X(shaderInt64)                                                                                                     \
    X(shaderInt16)

// X(member, structure, its sType): a feature may be in several structures, so it has a line for each.
#define HV_CHAINED_FEATURES(X)                                                                                         \
    X(storageBuffer16BitAccess, VkPhysicalDevice16BitStorageFeatures, 16BIT_STORAGE_FEATURES)                          \
    X(uniformAndStorageBuffer16BitAccess, VkPhysicalDevice16BitStorageFeatures, 16BIT_STORAGE_FEATURES)                \
    X(storageBuffer16BitAccess, VkPhysicalDeviceVulkan11Features, VULKAN_1_1_FEATURES)                                 \
    X(uniformAndStorageBuffer16BitAccess, VkPhysicalDeviceVulkan11Features, VULKAN_1_1_FEATURES)                       \
    X(storageBuffer8BitAccess, VkPhysicalDevice8BitStorageFeatures, 8BIT_STORAGE_FEATURES)                             \
    X(uniformAndStorageBuffer8BitAccess, VkPhysicalDevice8BitStorageFeatures, 8BIT_STORAGE_FEATURES)                   \
    X(shaderFloat16, VkPhysicalDeviceShaderFloat16Int8Features, SHADER_FLOAT16_INT8_FEATURES)                          \
    X(shaderInt8, VkPhysicalDeviceShaderFloat16Int8Features, SHADER_FLOAT16_INT8_FEATURES)                             \
    X(timelineSemaphore, VkPhysicalDeviceTimelineSemaphoreFeatures, TIMELINE_SEMAPHORE_FEATURES)                       \
    X(bufferDeviceAddress, VkPhysicalDeviceBufferDeviceAddressFeatures, BUFFER_DEVICE_ADDRESS_FEATURES)                \
    X(hostQueryReset, VkPhysicalDeviceHostQueryResetFeatures, HOST_QUERY_RESET_FEATURES)                               \
    X(scalarBlockLayout, VkPhysicalDeviceScalarBlockLayoutFeatures, SCALAR_BLOCK_LAYOUT_FEATURES)                      \
    X(uniformBufferStandardLayout, VkPhysicalDeviceUniformBufferStandardLayoutFeatures,                                \
      UNIFORM_BUFFER_STANDARD_LAYOUT_FEATURES)                                                                         \
    X(storageBuffer8BitAccess, VkPhysicalDeviceVulkan12Features, VULKAN_1_2_FEATURES)                                  \
    X(uniformAndStorageBuffer8BitAccess, VkPhysicalDeviceVulkan12Features, VULKAN_1_2_FEATURES)                        \
    X(shaderFloat16, VkPhysicalDeviceVulkan12Features, VULKAN_1_2_FEATURES)                                            \
    X(shaderInt8, VkPhysicalDeviceVulkan12Features, VULKAN_1_2_FEATURES)                                               \
    X(timelineSemaphore, VkPhysicalDeviceVulkan12Features, VULKAN_1_2_FEATURES)                                        \
    X(bufferDeviceAddress, VkPhysicalDeviceVulkan12Features, VULKAN_1_2_FEATURES)                                      \
    X(hostQueryReset, VkPhysicalDeviceVulkan12Features, VULKAN_1_2_FEATURES)                                           \
    X(scalarBlockLayout, VkPhysicalDeviceVulkan12Features, VULKAN_1_2_FEATURES)                                        \
    X(uniformBufferStandardLayout, VkPhysicalDeviceVulkan12Features, VULKAN_1_2_FEATURES)                              \
    X(maintenance4, VkPhysicalDeviceMaintenance4Features, MAINTENANCE_4_FEATURES)                                      \
    X(synchronization2, VkPhysicalDeviceSynchronization2Features, SYNCHRONIZATION_2_FEATURES)                          \
    X(subgroupSizeControl, VkPhysicalDeviceSubgroupSizeControlFeatures, SUBGROUP_SIZE_CONTROL_FEATURES)                \
    X(pipelineCreationCacheControl, VkPhysicalDevicePipelineCreationCacheControlFeatures,                              \
      PIPELINE_CREATION_CACHE_CONTROL_FEATURES)                                                                        \
    X(maintenance4, VkPhysicalDeviceVulkan13Features, VULKAN_1_3_FEATURES)                                             \
    X(synchronization2, VkPhysicalDeviceVulkan13Features, VULKAN_1_3_FEATURES)                                         \
    X(subgroupSizeControl, VkPhysicalDeviceVulkan13Features, VULKAN_1_3_FEATURES)                                      \
    X(pipelineCreationCacheControl, VkPhysicalDeviceVulkan13Features, VULKAN_1_3_FEATURES)

namespace hv_layer {
namespace {

const char *const kOtherKeys[] = {"maxMemoryAllocationSize",
                                  "maxBufferSize",
                                  "apiVersion",
                                  "deviceType",
                                  "secondDevice.deviceType",
                                  "vendorID",
                                  "deviceID",
                                  "driverVersion",
                                  "pipelineCacheUUID",
                                  "driverUUID",
                                  "pipelineCache.model",
                                  "timestampValidBits",
                                  "VkMemoryRequirements.alignment",
                                  "VkMemoryRequirements.padding",
                                  "memoryPropertyFlags.strip",
                                  "allocatedBytes",
                                  "queueFlags",
                                  "heapSize.0",
                                  "heapSize.1",
                                  "heapSize.2",
                                  "heapBudget.0",
                                  "heapBudget.1",
                                  "heapBudget.2"};
const char *const kHeapSizes[kMaxHeaps] = {"heapSize.0", "heapSize.1", "heapSize.2"};
const char *const kHeapBudgets[kMaxHeaps] = {"heapBudget.0", "heapBudget.1", "heapBudget.2"};
const char *const kKeys[] = {
#define X(name) #name,
    HV_LIMITS(X) HV_CORE_FEATURES(X)
#undef X
#define X(name) #name, #name ".x", #name ".y", #name ".z",
        HV_VECTOR_LIMITS(X)
#undef X
#define X(name, structure, type) #name,
            HV_CHAINED_FEATURES(X)
#undef X
};

// Of the instance that was looked at last: there is rarely more than one.
std::atomic<VkPhysicalDevice> second_device;

template<typename T>
void replace(T *value, const char *key) {
    if (limit_is_set(key)) *value = (T)limit_or(key, 0);
}

void replace_uuid(uint8_t *uuid, const char *key) {
    const uint64_t value = limit_or(key, 0);
    if (limit_is_set(key)) memcpy(uuid, &value, sizeof(value));
}

void strip(VkBool32 *feature, const char *key) {
    if (limit_or(key, 1) == 0) *feature = VK_FALSE;
}

void real_memory(Next &next, VkPhysicalDevice physical, VkPhysicalDeviceMemoryProperties *memory) {
    next.call[kvkGetPhysicalDeviceMemoryProperties]
        ? ((PFN_vkGetPhysicalDeviceMemoryProperties)next.call[kvkGetPhysicalDeviceMemoryProperties])(physical, memory)
        : (void)(*memory = {});
}

}  // namespace

bool is_limit(const char *key) {
    if (strncmp(key, "extension:", 10) == 0) return true;
    for (const char *one : kKeys) {
        if (strcmp(one, key) == 0) return true;
    }
    for (const char *one : kOtherKeys) {
        if (strcmp(one, key) == 0) return true;
    }
    return false;
}

void remember_second_device(VkPhysicalDevice device) { second_device.store(device); }

void change(VkPhysicalDevice device, VkPhysicalDeviceProperties *properties) {
    if (limit_is_set("secondDevice.deviceType") && device == second_device.load()) {
        replace(&properties->deviceType, "secondDevice.deviceType");
        strcpy(properties->deviceName, "Pretended GPU");
    }
    replace(&properties->apiVersion, "apiVersion");
    replace(&properties->deviceType, "deviceType");
    replace(&properties->vendorID, "vendorID");
    told_of_vendor(properties->vendorID);
    replace(&properties->deviceID, "deviceID");
    replace(&properties->driverVersion, "driverVersion");
    replace_uuid(properties->pipelineCacheUUID, "pipelineCacheUUID");
    VkPhysicalDeviceLimits *limits = &properties->limits;
#define X(name) replace(&limits->name, #name);
    HV_LIMITS(X)
#undef X
#define X(name)                                                                                                        \
    for (int i = 0; i < 3; i++) {                                                                                      \
        static const char *const keys[] = {#name ".x", #name ".y", #name ".z"};                                        \
        replace(&limits->name[i], #name);                                                                              \
        replace(&limits->name[i], keys[i]);                                                                            \
    }
    HV_VECTOR_LIMITS(X)
#undef X
}

void change(VkQueueFamilyProperties *families, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        replace(&families[i].queueFlags, "queueFlags");
        replace(&families[i].timestampValidBits, "timestampValidBits");
    }
}

void change(VkPhysicalDeviceFeatures *features) {
#define X(name) strip(&features->name, #name);
    HV_CORE_FEATURES(X)
#undef X
}

void change_chain(void *p_next) {
    for (auto *one = (VkBaseOutStructure *)p_next; one; one = one->pNext) {
#define X(name, structure, type)                                                                                       \
    if (one->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_##type) strip(&((structure *)one)->name, #name);
        HV_CHAINED_FEATURES(X)
#undef X
        switch (one->sType) {
        case VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_ID_PROPERTIES:
            replace_uuid(((VkPhysicalDeviceIDProperties *)one)->driverUUID, "driverUUID");
            break;
        case VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_3_PROPERTIES:
            replace(&((VkPhysicalDeviceMaintenance3Properties *)one)->maxMemoryAllocationSize,
                    "maxMemoryAllocationSize");
            break;
        case VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES:
            replace(&((VkPhysicalDeviceVulkan11Properties *)one)->maxMemoryAllocationSize, "maxMemoryAllocationSize");
            break;
        case VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_4_PROPERTIES:
            replace(&((VkPhysicalDeviceMaintenance4Properties *)one)->maxBufferSize, "maxBufferSize");
            break;
        case VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_PROPERTIES:
            replace(&((VkPhysicalDeviceVulkan13Properties *)one)->maxBufferSize, "maxBufferSize");
            break;
        default: break;
        }
    }
}

void change(Next &next, VkPhysicalDevice physical, VkPhysicalDeviceMemoryProperties *memory) {
    (void)next, (void)physical;
    const std::vector<uint32_t> wanted = wanted_memory_types();
    if (!wanted.empty()) {
        // Two heaps of the first heap's size, as a discrete device has: its own memory, and the host's. A window into
        // device memory is a third.
        const VkDeviceSize size = memory->memoryHeaps[0].size;
        const bool window = limit_is_set("heapSize.2");
        const uint32_t local = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT;
        const uint32_t both = local | VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT;
        memory->memoryTypeCount = (uint32_t)wanted.size();
        memory->memoryHeapCount = window ? 3 : 2;
        memory->memoryHeaps[0] = {size, VK_MEMORY_HEAP_DEVICE_LOCAL_BIT};
        memory->memoryHeaps[1] = {size, 0};
        memory->memoryHeaps[2] = {size, VK_MEMORY_HEAP_DEVICE_LOCAL_BIT};
        for (uint32_t i = 0; i < memory->memoryTypeCount; i++) {
            const bool in_window = window && (wanted[i] & both) == both;
            memory->memoryTypes[i] = {wanted[i], in_window ? 2u : wanted[i] & local ? 0u : 1u};
        }
    }
    for (uint32_t i = 0; i < memory->memoryHeapCount && i < kMaxHeaps; i++)
        replace(&memory->memoryHeaps[i].size, kHeapSizes[i]);
    const uint32_t stripped = (uint32_t)limit_or("memoryPropertyFlags.strip", 0);
    for (uint32_t i = 0; i < memory->memoryTypeCount; i++) memory->memoryTypes[i].propertyFlags &= ~stripped;
}

// For VkPhysicalDeviceMemoryProperties2: the budgets in its chain, once its own part was changed.
void change_budgets(const VkPhysicalDeviceMemoryProperties &memory, void *p_next) {
    for (auto *one = (VkBaseOutStructure *)p_next; one; one = one->pNext) {
        if (one->sType != VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT || !budgets_are_set())
            continue;
        auto *budget = (VkPhysicalDeviceMemoryBudgetPropertiesEXT *)one;
        for (uint32_t i = 0; i < memory.memoryHeapCount && i < kMaxHeaps; i++) {
            budget->heapBudget[i] = limit_or(kHeapBudgets[i], memory.memoryHeaps[i].size);
            budget->heapUsage[i] = heap_used(i);
        }
    }
}

bool budgets_are_set() {
    for (const char *key : kHeapBudgets) {
        if (limit_is_set(key)) return true;
    }
    return false;
}

// The heap of a memory type as reported, and whether an allocation in it is refused.
uint32_t heap_of_type(Next &next, VkPhysicalDevice physical, uint32_t type) {
    VkPhysicalDeviceMemoryProperties memory;
    real_memory(next, physical, &memory);
    change(next, physical, &memory);
    return type < memory.memoryTypeCount ? memory.memoryTypes[type].heapIndex : 0;
}
bool heap_is_full(uint32_t heap, uint64_t bytes) {
    return heap < kMaxHeaps && limit_is_set(kHeapSizes[heap]) &&
           heap_used(heap) + bytes > limit_or(kHeapSizes[heap], 0);
}

// The driver's type behind one of the test's: the first that can do all the test's can. Without one the first type.
uint32_t real_memory_type(Next &next, VkPhysicalDevice physical, uint32_t type) {
    const std::vector<uint32_t> wanted = wanted_memory_types();
    if (wanted.empty() || type >= wanted.size()) return type;
    VkPhysicalDeviceMemoryProperties memory;
    real_memory(next, physical, &memory);
    for (uint32_t i = 0; i < memory.memoryTypeCount; i++) {
        if ((memory.memoryTypes[i].propertyFlags & wanted[type]) == wanted[type]) return i;
    }
    return 0;
}

void change(Next &next, VkPhysicalDevice physical, VkMemoryRequirements *requirements) {
    const std::vector<uint32_t> wanted = wanted_memory_types();
    if (!wanted.empty()) {
        uint32_t bits = 0;
        for (uint32_t i = 0; i < wanted.size(); i++) {
            if (requirements->memoryTypeBits & (1u << real_memory_type(next, physical, i))) bits |= 1u << i;
        }
        requirements->memoryTypeBits = bits;
    }
    const VkDeviceSize alignment = limit_or("VkMemoryRequirements.alignment", 1);
    if (alignment > requirements->alignment) requirements->alignment = alignment;
    requirements->size += limit_or("VkMemoryRequirements.padding", 0);
}

bool extension_is_hidden(const char *name) { return limit_or((std::string("extension:") + name).c_str(), 1) == 0; }

}  // namespace hv_layer
