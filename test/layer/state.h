// state.h: what the layer knows, shared by its files: counts, pending failures, other limits, and the next functions.

#ifndef HALIDE_VULKAN_COUNT_LAYER_STATE_H
#define HALIDE_VULKAN_COUNT_LAYER_STATE_H

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include <vulkan/vulkan.h>

#include <vulkan/vk_layer.h>

namespace hv_layer {

enum Call : int {
#define CALL(name, level) k##name,
#include "calls.def"
    kCallCount
};

extern const char *const kCallNames[kCallCount];

// The functions one step nearer to the driver, for one instance or device. Found by the dispatch key: the first word of
// every dispatchable handle, which queues and command buffers share with their device.
struct Next {
    std::atomic<void *> key;
    PFN_vkVoidFunction call[kCallCount];
    PFN_vkGetInstanceProcAddr get_instance_proc;
    PFN_vkGetDeviceProcAddr get_device_proc;
    VkPhysicalDevice physical;  // of a device
    VkDevice device;            // null of an instance
    std::atomic<bool> lost;     // to the program; see faults.cpp
};

inline void *key_of(const void *handle) { return *(void *const *)handle; }
Next &next_of(void *key);  // aborts on an unknown key: a test that goes on would prove nothing
Next &add_next(void *key);
void remove_next(void *key);

void count_call(Call call);
bool take_failure(Call call, VkResult *result, Next *next);

// faults.cpp: `next` is null where there is none yet.
bool take_numbered_failure(Call call, VkResult *result, Next *next);
void note_failure(Call call, VkResult result);
void lose_device(Next &next);
// In the order in which calls are made; the place is for what it returns.
size_t log_call(Call call);
void log_result(size_t place, Call call, VkResult result);
void reset_log();
void clear_numbered_failures();

// The value set for key, or otherwise.
uint64_t limit_or(const char *key, uint64_t otherwise);
bool limit_is_set(const char *key);

// The memory types the test asked for; empty: the driver's.
std::vector<uint32_t> wanted_memory_types();

// The ledger.
void created(const char *type, uint64_t handle, uint64_t parent, uint64_t bytes = 0);
void destroyed(const char *type, uint64_t handle);
void destroyed_children(const char *type, uint64_t parent);
// Device memory by reported heap.
void heap_took(uint64_t memory, uint32_t heap, uint64_t bytes);
void heap_gave(uint64_t memory);
uint64_t heap_used(uint32_t heap);
bool would_exceed(uint64_t bytes, uint64_t limit);
void entered_instance();
void told_of_vendor(uint32_t vendor);
void made_device_of(VkPhysicalDeviceType type);
void recorded_barrier(VkPipelineStageFlags to);
void named(const char *type, uint64_t handle, const char *name);
void labelled(const char *name);

// reports.cpp: changes what the driver said.
bool is_limit(const char *key);
void remember_second_device(VkPhysicalDevice device);
void change(VkPhysicalDevice device, VkPhysicalDeviceProperties *properties);
void change(VkQueueFamilyProperties *families, uint32_t count);
void change_chain(void *p_next);
void change(VkPhysicalDeviceFeatures *features);
void change(Next &next, VkPhysicalDevice physical, VkPhysicalDeviceMemoryProperties *memory);
void change(Next &next, VkPhysicalDevice physical, VkMemoryRequirements *requirements);
constexpr uint32_t kMaxHeaps = 3;  // of those whose size or budget a test can set
void change_budgets(const VkPhysicalDeviceMemoryProperties &memory, void *p_next);
bool budgets_are_set();
uint32_t heap_of_type(Next &next, VkPhysicalDevice physical, uint32_t type);
bool heap_is_full(uint32_t heap, uint64_t bytes);
uint32_t real_memory_type(Next &next, VkPhysicalDevice physical, uint32_t type);
bool extension_is_hidden(const char *name);

// shadow.cpp: memory of a type that the test made not coherent or not mappable.
void remember_memory(VkDeviceMemory memory, uint32_t type, VkDeviceSize size);
void forget_memory(VkDeviceMemory memory);
bool may_map(VkDeviceMemory memory);
void *shadow_of_mapping(VkDeviceMemory memory, void *real, VkDeviceSize offset, VkDeviceSize size);
void forget_mapping(VkDeviceMemory memory);
void copy_ranges(uint32_t count, const VkMappedMemoryRange *ranges, bool to_device);

// caches.cpp: what pipeline caches hold.
bool models_caches();
void remember_module(VkShaderModule module, const VkShaderModuleCreateInfo *info);
void remember_initial(const VkPipelineCacheCreateInfo *info);
void remember_cache(Next &next, VkPipelineCache cache, const VkPipelineCacheCreateInfo *info);
void look_up_pipeline(VkPipelineCache cache, const VkComputePipelineCreateInfo &info);
VkResult give_cache_data(Next &next, VkPipelineCache cache, size_t *size, void *to);
void merge_caches(VkPipelineCache into, uint32_t count, const VkPipelineCache *from);

}  // namespace hv_layer

#endif
