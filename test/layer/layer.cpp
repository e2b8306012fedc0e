// layer.cpp: the layer's place in the chain: one wrapper per entry point, and what the loader asks for.
//
// A wrapper counts, returns a pending failure if there is one, calls the next function, and then runs what after() says
// for that entry point (ledger, changed reports). The wrappers are made from the function types of vulkan.h, so that a
// line in calls.def is all a new entry point needs. Only calls whose arguments must change on the way down (creation of
// instance and device, allocation, mapping) are written out by hand, as overloads of around().

#include <cstdio>
#include <cstring>
#include <type_traits>
#include <utility>

#define HV_COUNT_LAYER_IMPLEMENTATION
#include "count_layer.h"
#include "state.h"

namespace hv_layer {
namespace {

struct Any {};
template<Call C>
struct Tag : Any {};

template<Call C>
struct FunctionOf;
#define CALL(name, level)                                                                                              \
    template<>                                                                                                         \
    struct FunctionOf<k##name> {                                                                                       \
        using type = PFN_##name;                                                                                       \
    };
#include "calls.def"

template<Call C>
typename FunctionOf<C>::type next_call(Next &next) {
    return (typename FunctionOf<C>::type)next.call[C];
}

template<typename Handle>
uint64_t number(Handle handle) {
    return (uint64_t)handle;
}

// ---- after(): what happens once the driver has answered. `ok` is false where it returned an error.

template<typename... A>
void after(Any, bool, Next &, A...) {}

#define HV_CREATES(call, type, info)                                                                                   \
    void after(Tag<k##call>, bool ok, Next &, VkDevice device, const info *, const VkAllocationCallbacks *,            \
               type *made) {                                                                                           \
        if (ok) created(#type, number(*made), number(device));                                                         \
    }
#define HV_DESTROYS(call, type)                                                                                        \
    void after(Tag<k##call>, bool, Next &, VkDevice, type handle, const VkAllocationCallbacks *) {                     \
        destroyed(#type, number(handle));                                                                              \
    }
HV_CREATES(vkCreateBuffer, VkBuffer, VkBufferCreateInfo)
HV_DESTROYS(vkDestroyBuffer, VkBuffer)
HV_CREATES(vkCreateFence, VkFence, VkFenceCreateInfo)
HV_DESTROYS(vkDestroyFence, VkFence)
HV_CREATES(vkCreateSemaphore, VkSemaphore, VkSemaphoreCreateInfo)
HV_DESTROYS(vkDestroySemaphore, VkSemaphore)
HV_CREATES(vkCreateEvent, VkEvent, VkEventCreateInfo)
HV_DESTROYS(vkDestroyEvent, VkEvent)
HV_CREATES(vkCreateQueryPool, VkQueryPool, VkQueryPoolCreateInfo)
HV_DESTROYS(vkDestroyQueryPool, VkQueryPool)
HV_CREATES(vkCreateShaderModule, VkShaderModule, VkShaderModuleCreateInfo)
HV_DESTROYS(vkDestroyShaderModule, VkShaderModule)
HV_CREATES(vkCreatePipelineCache, VkPipelineCache, VkPipelineCacheCreateInfo)
HV_DESTROYS(vkDestroyPipelineCache, VkPipelineCache)
HV_CREATES(vkCreatePipelineLayout, VkPipelineLayout, VkPipelineLayoutCreateInfo)
HV_DESTROYS(vkDestroyPipelineLayout, VkPipelineLayout)
HV_DESTROYS(vkDestroyPipeline, VkPipeline)
HV_CREATES(vkCreateDescriptorSetLayout, VkDescriptorSetLayout, VkDescriptorSetLayoutCreateInfo)
HV_DESTROYS(vkDestroyDescriptorSetLayout, VkDescriptorSetLayout)
HV_CREATES(vkCreateDescriptorUpdateTemplate, VkDescriptorUpdateTemplate, VkDescriptorUpdateTemplateCreateInfo)
HV_DESTROYS(vkDestroyDescriptorUpdateTemplate, VkDescriptorUpdateTemplate)
HV_CREATES(vkCreateDescriptorUpdateTemplateKHR, VkDescriptorUpdateTemplate, VkDescriptorUpdateTemplateCreateInfo)
HV_DESTROYS(vkDestroyDescriptorUpdateTemplateKHR, VkDescriptorUpdateTemplate)
HV_CREATES(vkCreateDescriptorPool, VkDescriptorPool, VkDescriptorPoolCreateInfo)
HV_CREATES(vkCreateCommandPool, VkCommandPool, VkCommandPoolCreateInfo)
#undef HV_CREATES
#undef HV_DESTROYS

void after(Tag<kvkDestroyDescriptorPool>, bool, Next &, VkDevice, VkDescriptorPool pool,
           const VkAllocationCallbacks *) {
    destroyed_children("VkDescriptorSet", number(pool));
    destroyed("VkDescriptorPool", number(pool));
}
void after(Tag<kvkResetDescriptorPool>, bool, Next &, VkDevice, VkDescriptorPool pool, VkDescriptorPoolResetFlags) {
    destroyed_children("VkDescriptorSet", number(pool));
}
void after(Tag<kvkAllocateDescriptorSets>, bool ok, Next &, VkDevice, const VkDescriptorSetAllocateInfo *info,
           VkDescriptorSet *sets) {
    for (uint32_t i = 0; ok && i < info->descriptorSetCount; i++) {
        created("VkDescriptorSet", number(sets[i]), number(info->descriptorPool));
    }
}
void after(Tag<kvkFreeDescriptorSets>, bool, Next &, VkDevice, VkDescriptorPool, uint32_t count,
           const VkDescriptorSet *sets) {
    for (uint32_t i = 0; i < count; i++) destroyed("VkDescriptorSet", number(sets[i]));
}
void after(Tag<kvkDestroyCommandPool>, bool, Next &, VkDevice, VkCommandPool pool, const VkAllocationCallbacks *) {
    destroyed_children("VkCommandBuffer", number(pool));
    destroyed("VkCommandPool", number(pool));
}
void after(Tag<kvkAllocateCommandBuffers>, bool ok, Next &, VkDevice, const VkCommandBufferAllocateInfo *info,
           VkCommandBuffer *buffers) {
    for (uint32_t i = 0; ok && i < info->commandBufferCount; i++) {
        created("VkCommandBuffer", number(buffers[i]), number(info->commandPool));
    }
}
void after(Tag<kvkFreeCommandBuffers>, bool, Next &, VkDevice, VkCommandPool, uint32_t count,
           const VkCommandBuffer *buffers) {
    for (uint32_t i = 0; i < count; i++) destroyed("VkCommandBuffer", number(buffers[i]));
}
void after(Tag<kvkCreateComputePipelines>, bool, Next &, VkDevice device, VkPipelineCache, uint32_t count,
           const VkComputePipelineCreateInfo *, const VkAllocationCallbacks *, VkPipeline *made) {
    for (uint32_t i = 0; i < count; i++) {
        if (made[i] != VK_NULL_HANDLE) created("VkPipeline", number(made[i]), number(device));
    }
}
void after(Tag<kvkCreateDebugUtilsMessengerEXT>, bool ok, Next &, VkInstance instance,
           const VkDebugUtilsMessengerCreateInfoEXT *, const VkAllocationCallbacks *, VkDebugUtilsMessengerEXT *made) {
    if (ok) created("VkDebugUtilsMessengerEXT", number(*made), number(instance));
}
void after(Tag<kvkDestroyDebugUtilsMessengerEXT>, bool, Next &, VkInstance, VkDebugUtilsMessengerEXT messenger,
           const VkAllocationCallbacks *) {
    destroyed("VkDebugUtilsMessengerEXT", number(messenger));
}

const char *ledger_type(VkObjectType type) {
    switch (type) {
#define HV_TYPE(value, name)                                                                                           \
    case VK_OBJECT_TYPE_##value: return #name;
        HV_TYPE(DEVICE, VkDevice)
        HV_TYPE(BUFFER, VkBuffer)
        HV_TYPE(DEVICE_MEMORY, VkDeviceMemory)
        HV_TYPE(FENCE, VkFence)
        HV_TYPE(SEMAPHORE, VkSemaphore)
        HV_TYPE(QUERY_POOL, VkQueryPool)
        HV_TYPE(SHADER_MODULE, VkShaderModule)
        HV_TYPE(PIPELINE_CACHE, VkPipelineCache)
        HV_TYPE(PIPELINE, VkPipeline)
        HV_TYPE(PIPELINE_LAYOUT, VkPipelineLayout)
        HV_TYPE(DESCRIPTOR_SET_LAYOUT, VkDescriptorSetLayout)
        HV_TYPE(DESCRIPTOR_POOL, VkDescriptorPool)
        HV_TYPE(DESCRIPTOR_SET, VkDescriptorSet)
        HV_TYPE(COMMAND_POOL, VkCommandPool)
        HV_TYPE(COMMAND_BUFFER, VkCommandBuffer)
#undef HV_TYPE
    default: return "";
    }
}
void after(Tag<kvkSetDebugUtilsObjectNameEXT>, bool, Next &, VkDevice, const VkDebugUtilsObjectNameInfoEXT *info) {
    named(ledger_type(info->objectType), info->objectHandle, info->pObjectName);
}
void after(Tag<kvkCmdBeginDebugUtilsLabelEXT>, bool, Next &, VkCommandBuffer, const VkDebugUtilsLabelEXT *label) {
    labelled(label->pLabelName);
}

void after(Tag<kvkEnumeratePhysicalDevices>, bool ok, Next &, VkInstance, uint32_t *count, VkPhysicalDevice *devices) {
    if (ok && devices && *count > 1) remember_second_device(devices[1]);
}
void after(Tag<kvkGetPhysicalDeviceProperties>, bool, Next &, VkPhysicalDevice device, VkPhysicalDeviceProperties *p) {
    change(device, p);
}
void after(Tag<kvkGetPhysicalDeviceFeatures>, bool, Next &, VkPhysicalDevice, VkPhysicalDeviceFeatures *f) {
    change(f);
}
void after(Tag<kvkGetPhysicalDeviceQueueFamilyProperties>, bool, Next &, VkPhysicalDevice, uint32_t *count,
           VkQueueFamilyProperties *families) {
    if (families) change(families, *count);
}
void after(Tag<kvkGetPhysicalDeviceMemoryProperties>, bool, Next &next, VkPhysicalDevice physical,
           VkPhysicalDeviceMemoryProperties *m) {
    change(next, physical, m);
}
void after(Tag<kvkGetBufferMemoryRequirements>, bool, Next &next, VkDevice, VkBuffer, VkMemoryRequirements *r) {
    change(next, next.physical, r);
}
#define HV_CHANGES_2(suffix)                                                                                           \
    void after(Tag<kvkGetPhysicalDeviceProperties2##suffix>, bool, Next &, VkPhysicalDevice device,                    \
               VkPhysicalDeviceProperties2 *p) {                                                                       \
        change(device, &p->properties);                                                                                \
        change_chain(p->pNext);                                                                                        \
    }                                                                                                                  \
    void after(Tag<kvkGetPhysicalDeviceFeatures2##suffix>, bool, Next &, VkPhysicalDevice,                             \
               VkPhysicalDeviceFeatures2 *f) {                                                                         \
        change(&f->features);                                                                                          \
        change_chain(f->pNext);                                                                                        \
    }                                                                                                                  \
    void after(Tag<kvkGetPhysicalDeviceMemoryProperties2##suffix>, bool, Next &next, VkPhysicalDevice physical,        \
               VkPhysicalDeviceMemoryProperties2 *m) {                                                                 \
        change(next, physical, &m->memoryProperties);                                                                  \
        change_budgets(m->memoryProperties, m->pNext);                                                                 \
    }                                                                                                                  \
    void after(Tag<kvkGetBufferMemoryRequirements2##suffix>, bool, Next &next, VkDevice,                               \
               const VkBufferMemoryRequirementsInfo2 *, VkMemoryRequirements2 *r) {                                    \
        change(next, next.physical, &r->memoryRequirements);                                                           \
    }                                                                                                                  \
    void after(Tag<kvkGetDeviceBufferMemoryRequirements##suffix>, bool, Next &next, VkDevice,                          \
               const VkDeviceBufferMemoryRequirements *, VkMemoryRequirements2 *r) {                                   \
        change(next, next.physical, &r->memoryRequirements);                                                           \
    }
HV_CHANGES_2()
HV_CHANGES_2(KHR)
#undef HV_CHANGES_2

void after(Tag<kvkCmdPipelineBarrier>, bool, Next &, VkCommandBuffer, VkPipelineStageFlags, VkPipelineStageFlags to,
           VkDependencyFlags, uint32_t, const VkMemoryBarrier *, uint32_t, const VkBufferMemoryBarrier *, uint32_t,
           const VkImageMemoryBarrier *) {
    recorded_barrier(to);
}
void after(Tag<kvkInvalidateMappedMemoryRanges>, bool ok, Next &, VkDevice, uint32_t count,
           const VkMappedMemoryRange *ranges) {
    if (ok) copy_ranges(count, ranges, false);
}

// ---- on_failure(): what the specification asks to be written where a call fails.

template<typename... A>
void on_failure(Any, A...) {}
void on_failure(Tag<kvkCreateComputePipelines>, VkDevice, VkPipelineCache, uint32_t count,
                const VkComputePipelineCreateInfo *, const VkAllocationCallbacks *, VkPipeline *made) {
    for (uint32_t i = 0; i < count; i++) made[i] = VK_NULL_HANDLE;
}
void on_failure(Tag<kvkAllocateDescriptorSets>, VkDevice, const VkDescriptorSetAllocateInfo *info,
                VkDescriptorSet *sets) {
    for (uint32_t i = 0; i < info->descriptorSetCount; i++) sets[i] = VK_NULL_HANDLE;
}
void on_failure(Tag<kvkAllocateCommandBuffers>, VkDevice, const VkCommandBufferAllocateInfo *info,
                VkCommandBuffer *buffers) {
    for (uint32_t i = 0; i < info->commandBufferCount; i++) buffers[i] = VK_NULL_HANDLE;
}

// ---- around(): the call itself; plain, or with arguments changed.

template<Call C, typename... A>
auto around(Tag<C>, Next &next, A... a) {
    return next_call<C>(next)(a...);
}

VkResult around(Tag<kvkAllocateMemory>, Next &next, VkDevice device, const VkMemoryAllocateInfo *info,
                const VkAllocationCallbacks *callbacks, VkDeviceMemory *made) {
    if (limit_is_set("allocatedBytes") && would_exceed(info->allocationSize, limit_or("allocatedBytes", 0))) {
        return VK_ERROR_OUT_OF_DEVICE_MEMORY;
    }
    if (info->allocationSize > limit_or("maxMemoryAllocationSize", UINT64_MAX)) return VK_ERROR_OUT_OF_DEVICE_MEMORY;
    const uint32_t heap = heap_of_type(next, next.physical, info->memoryTypeIndex);
    if (heap_is_full(heap, info->allocationSize)) return VK_ERROR_OUT_OF_DEVICE_MEMORY;
    VkMemoryAllocateInfo real = *info;
    real.memoryTypeIndex = real_memory_type(next, next.physical, info->memoryTypeIndex);
    const VkResult result = next_call<kvkAllocateMemory>(next)(device, &real, callbacks, made);
    if (result == VK_SUCCESS) {
        created("VkDeviceMemory", number(*made), number(device), info->allocationSize);
        remember_memory(*made, info->memoryTypeIndex, info->allocationSize);
        heap_took(number(*made), heap, info->allocationSize);
    }
    return result;
}

void around(Tag<kvkFreeMemory>, Next &next, VkDevice device, VkDeviceMemory memory,
            const VkAllocationCallbacks *callbacks) {
    if (memory != VK_NULL_HANDLE) {
        destroyed_children("mapped", number(memory));
        forget_memory(memory);
        heap_gave(number(memory));
        destroyed("VkDeviceMemory", number(memory));
    }
    next_call<kvkFreeMemory>(next)(device, memory, callbacks);
}

VkResult around(Tag<kvkMapMemory>, Next &next, VkDevice device, VkDeviceMemory memory, VkDeviceSize offset,
                VkDeviceSize size, VkMemoryMapFlags flags, void **data) {
    if (!may_map(memory)) return VK_ERROR_MEMORY_MAP_FAILED;
    const VkResult result = next_call<kvkMapMemory>(next)(device, memory, offset, size, flags, data);
    if (result != VK_SUCCESS) return result;
    created("mapped", number(memory), number(memory));
    *data = shadow_of_mapping(memory, *data, offset, size);
    return result;
}

void around(Tag<kvkUnmapMemory>, Next &next, VkDevice device, VkDeviceMemory memory) {
    destroyed("mapped", number(memory));
    forget_mapping(memory);
    next_call<kvkUnmapMemory>(next)(device, memory);
}

VkResult around(Tag<kvkFlushMappedMemoryRanges>, Next &next, VkDevice device, uint32_t count,
                const VkMappedMemoryRange *ranges) {
    copy_ranges(count, ranges, true);
    return next_call<kvkFlushMappedMemoryRanges>(next)(device, count, ranges);
}

VkResult around(Tag<kvkCreateShaderModule>, Next &next, VkDevice device, const VkShaderModuleCreateInfo *info,
                const VkAllocationCallbacks *callbacks, VkShaderModule *made) {
    const VkResult result = next_call<kvkCreateShaderModule>(next)(device, info, callbacks, made);
    if (result == VK_SUCCESS && models_caches()) remember_module(*made, info);
    return result;
}

VkResult around(Tag<kvkCreatePipelineCache>, Next &next, VkDevice device, const VkPipelineCacheCreateInfo *info,
                const VkAllocationCallbacks *callbacks, VkPipelineCache *made) {
    remember_initial(info);
    VkPipelineCacheCreateInfo real = *info;
    if (models_caches()) real.initialDataSize = 0;
    const VkResult result = next_call<kvkCreatePipelineCache>(next)(device, &real, callbacks, made);
    if (result == VK_SUCCESS && models_caches()) remember_cache(next, *made, info);
    return result;
}

VkResult around(Tag<kvkGetPipelineCacheData>, Next &next, VkDevice device, VkPipelineCache cache, size_t *size,
                void *data) {
    if (models_caches()) return give_cache_data(next, cache, size, data);
    return next_call<kvkGetPipelineCacheData>(next)(device, cache, size, data);
}

VkResult around(Tag<kvkMergePipelineCaches>, Next &next, VkDevice device, VkPipelineCache into, uint32_t count,
                const VkPipelineCache *from) {
    if (models_caches()) merge_caches(into, count, from);
    return next_call<kvkMergePipelineCaches>(next)(device, into, count, from);
}

VkResult around(Tag<kvkCreateComputePipelines>, Next &next, VkDevice device, VkPipelineCache cache, uint32_t count,
                const VkComputePipelineCreateInfo *infos, const VkAllocationCallbacks *callbacks, VkPipeline *made) {
    const VkResult result = next_call<kvkCreateComputePipelines>(next)(device, cache, count, infos, callbacks, made);
    for (uint32_t i = 0; models_caches() && result == VK_SUCCESS && i < count; i++) look_up_pipeline(cache, infos[i]);
    return result;
}

VkResult around(Tag<kvkEnumerateDeviceExtensionProperties>, Next &next, VkPhysicalDevice physical, const char *layer,
                uint32_t *count, VkExtensionProperties *properties) {
    const auto call = next_call<kvkEnumerateDeviceExtensionProperties>(next);
    if (layer && strcmp(layer, HV_COUNT_LAYER_NAME) == 0) {
        *count = 0;
        return VK_SUCCESS;
    }
    if (layer) return call(physical, layer, count, properties);
    uint32_t all = 0;
    VkResult result = call(physical, nullptr, &all, nullptr);
    if (result != VK_SUCCESS) return result;
    std::vector<VkExtensionProperties> shown(all);
    result = call(physical, nullptr, &all, shown.data());
    if (result < 0) return result;
    size_t kept = 0;
    for (size_t i = 0; i < all; i++) {
        if (!extension_is_hidden(shown[i].extensionName)) shown[kept++] = shown[i];
    }
    if (budgets_are_set()) {
        shown.resize(kept + 1);
        shown[kept] = {};
        strcpy(shown[kept++].extensionName, VK_EXT_MEMORY_BUDGET_EXTENSION_NAME);
    }
    const uint32_t room = *count;
    *count = (uint32_t)kept;
    if (!properties) return VK_SUCCESS;
    if (room < kept) *count = room;
    memcpy(properties, shown.data(), *count * sizeof(*properties));
    return room < kept ? VK_INCOMPLETE : VK_SUCCESS;
}

void around(Tag<kvkDestroyInstance>, Next &next, VkInstance instance, const VkAllocationCallbacks *callbacks) {
    void *key = key_of(instance);
    destroyed("VkInstance", number(instance));
    next_call<kvkDestroyInstance>(next)(instance, callbacks);
    remove_next(key);
}

void around(Tag<kvkDestroyDevice>, Next &next, VkDevice device, const VkAllocationCallbacks *callbacks) {
    void *key = key_of(device);
    destroyed("VkDevice", number(device));
    next_call<kvkDestroyDevice>(next)(device, callbacks);
    remove_next(key);
}

// The loader hands each layer its successor in a list of link records in the create info; ours is the first of its
// kind, and is moved on before the call goes down.
template<typename Link>
Link *find_link(const void *p_next, VkStructureType type) {
    for (auto *one = (VkBaseInStructure *)p_next; one; one = (VkBaseInStructure *)one->pNext) {
        if (one->sType == type && ((Link *)one)->function == VK_LAYER_LINK_INFO) return (Link *)one;
    }
    return nullptr;
}

VKAPI_ATTR VkResult VKAPI_CALL create_instance(const VkInstanceCreateInfo *info, const VkAllocationCallbacks *callbacks,
                                               VkInstance *made) {
    count_call(kvkCreateInstance);
    const size_t place = log_call(kvkCreateInstance);
    VkResult result;
    if (take_failure(kvkCreateInstance, &result, nullptr)) {
        log_result(place, kvkCreateInstance, result);
        return result;
    }
    auto *link = find_link<VkLayerInstanceCreateInfo>(info->pNext, VK_STRUCTURE_TYPE_LOADER_INSTANCE_CREATE_INFO);
    if (!link) return VK_ERROR_INITIALIZATION_FAILED;
    const PFN_vkGetInstanceProcAddr get = link->u.pLayerInfo->pfnNextGetInstanceProcAddr;
    link->u.pLayerInfo = link->u.pLayerInfo->pNext;
    result = ((PFN_vkCreateInstance)get(VK_NULL_HANDLE, "vkCreateInstance"))(info, callbacks, made);
    log_result(place, kvkCreateInstance, result);
    if (result != VK_SUCCESS) return result;
    Next &next = add_next(key_of(*made));
    next.get_instance_proc = get;
    next.get_device_proc = nullptr;
    next.physical = VK_NULL_HANDLE;
    next.device = VK_NULL_HANDLE;
    for (int i = 0; i < kCallCount; i++) next.call[i] = get(*made, kCallNames[i]);
    created("VkInstance", number(*made), 0);
    entered_instance();
    return result;
}

VkResult around(Tag<kvkCreateDevice>, Next &instance, VkPhysicalDevice physical, const VkDeviceCreateInfo *info,
                const VkAllocationCallbacks *callbacks, VkDevice *made) {
    auto *link = find_link<VkLayerDeviceCreateInfo>(info->pNext, VK_STRUCTURE_TYPE_LOADER_DEVICE_CREATE_INFO);
    if (!link) return VK_ERROR_INITIALIZATION_FAILED;
    const PFN_vkGetDeviceProcAddr get = link->u.pLayerInfo->pfnNextGetDeviceProcAddr;
    link->u.pLayerInfo = link->u.pLayerInfo->pNext;
    const VkResult result = next_call<kvkCreateDevice>(instance)(physical, info, callbacks, made);
    if (result != VK_SUCCESS) return result;
    Next &next = add_next(key_of(*made));
    next.get_instance_proc = instance.get_instance_proc;
    next.get_device_proc = get;
    next.physical = physical;
    next.device = *made;
    for (int i = 0; i < kCallCount; i++) next.call[i] = get(*made, kCallNames[i]);
    // Kept beside the device's own, for real_memory_type and for the header of a pipeline cache.
    next.call[kvkGetPhysicalDeviceProperties] = instance.call[kvkGetPhysicalDeviceProperties];
    next.call[kvkGetPhysicalDeviceMemoryProperties] = instance.call[kvkGetPhysicalDeviceMemoryProperties];
    created("VkDevice", number(*made), 0);
    VkPhysicalDeviceProperties properties;
    next_call<kvkGetPhysicalDeviceProperties>(instance)(physical, &properties);
    change(physical, &properties);
    made_device_of(properties.deviceType);
    return result;
}

// ---- The wrappers.

template<Call C, typename Function>
struct Wrapper;

template<Call C, typename R, typename First, typename... A>
struct Wrapper<C, R(VKAPI_PTR *)(First, A...)> {
    static VKAPI_ATTR R VKAPI_CALL call(First first, A... a) {
        count_call(C);
        [[maybe_unused]] const size_t place = log_call(C);
        Next &next = next_of(key_of(first));
        if constexpr (std::is_same<R, VkResult>::value) {
            VkResult forced;
            if (take_failure(C, &forced, &next)) {
                if (forced == VK_ERROR_DEVICE_LOST) lose_device(next);
                if (forced < 0) on_failure(Tag<C>{}, first, a...);
                log_result(place, C, forced);
                return forced;
            }
        }
        if constexpr (std::is_void<R>::value) {
            around(Tag<C>{}, next, first, a...);
            if constexpr (C != kvkDestroyDevice && C != kvkDestroyInstance) after(Tag<C>{}, true, next, first, a...);
        } else {
            const R result = around(Tag<C>{}, next, first, a...);
            bool ok = true;
            if constexpr (std::is_same<R, VkResult>::value) {
                ok = result >= 0;
                log_result(place, C, result);
            }
            after(Tag<C>{}, ok, next, first, a...);
            return result;
        }
    }
};

enum Level { I, D };
struct Entry {
    const char *name;
    Level level;
    PFN_vkVoidFunction function;
};

template<Call C>
PFN_vkVoidFunction wrapper() {
    if constexpr (C == kvkCreateInstance) {
        return (PFN_vkVoidFunction)create_instance;
    } else {
        return (PFN_vkVoidFunction)&Wrapper<C, typename FunctionOf<C>::type>::call;
    }
}

const Entry kEntries[kCallCount] = {
#define CALL(name, level) {#name, level, wrapper<k##name>()},
#include "calls.def"
};

const Entry *entry_of(const char *name) {
    for (const Entry &entry : kEntries) {
        if (strcmp(entry.name, name) == 0) return &entry;
    }
    return nullptr;
}

VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL get_device_proc(VkDevice device, const char *name) {
    if (strcmp(name, "vkGetDeviceProcAddr") == 0) return (PFN_vkVoidFunction)get_device_proc;
    const PFN_vkVoidFunction below = next_of(key_of(device)).get_device_proc(device, name);
    const Entry *entry = entry_of(name);
    return below && entry && entry->level == D ? entry->function : below;
}

VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL get_instance_proc(VkInstance instance, const char *name) {
    if (strcmp(name, "vkGetInstanceProcAddr") == 0) return (PFN_vkVoidFunction)get_instance_proc;
    if (strcmp(name, "vkGetDeviceProcAddr") == 0) return (PFN_vkVoidFunction)get_device_proc;
    if (strcmp(name, "vkCreateInstance") == 0) return (PFN_vkVoidFunction)create_instance;
    if (!instance) return nullptr;
    const PFN_vkVoidFunction below = next_of(key_of(instance)).get_instance_proc(instance, name);
    const Entry *entry = entry_of(name);
    return below && entry ? entry->function : below;
}

}  // namespace
}  // namespace hv_layer

extern "C" __attribute__((visibility("default"))) VKAPI_ATTR VkResult VKAPI_CALL
vkNegotiateLoaderLayerInterfaceVersion(VkNegotiateLayerInterface *interface) {
    if (interface->loaderLayerInterfaceVersion < 2) return VK_ERROR_INITIALIZATION_FAILED;
    interface->loaderLayerInterfaceVersion = 2;
    interface->pfnGetInstanceProcAddr = hv_layer::get_instance_proc;
    interface->pfnGetDeviceProcAddr = hv_layer::get_device_proc;
    interface->pfnGetPhysicalDeviceProcAddr = nullptr;
    return VK_SUCCESS;
}
