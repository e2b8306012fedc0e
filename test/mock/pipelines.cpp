// pipelines.cpp: shaders, pipelines, layouts and descriptors.
//
// A shader is not run: of its SPIR-V only the name and the local size are looked at. Pools count what is taken from
// them.

#include "state.h"

#include <cstring>

namespace mock {

namespace {

constexpr uint32_t kMagic = 0x07230203u;
constexpr uint32_t kOpEntryPoint = 15, kOpExecutionMode = 16, kModeLocalSize = 17;
constexpr uint32_t kOpVariable = 59, kPushConstant = 9;

// The literal local size of an entry point, and whether the module reads push constants.
void read_shader(const std::vector<uint32_t> &words, const std::string &entry, uint32_t size[3], bool *pushes) {
    uint32_t function = 0;
    for (size_t at = 5; at < words.size();) {
        const uint32_t op = words[at] & 0xffff, count = words[at] >> 16;
        if (count == 0 || at + count > words.size()) return;
        if (op == kOpEntryPoint && count > 3 && entry == (const char *)&words[at + 3]) function = words[at + 2];
        if (op == kOpExecutionMode && count == 6 && words[at + 1] == function && words[at + 2] == kModeLocalSize)
            memcpy(size, &words[at + 3], 12);
        if (op == kOpVariable && count >= 4 && words[at + 3] == kPushConstant) *pushes = true;
        at += count;
    }
}

}  // namespace

VkResult do_vkCreateShaderModule(VkDevice handle, const VkShaderModuleCreateInfo *info,
                                 const VkAllocationCallbacks *callbacks, VkShaderModule *out) {
    if (info->codeSize < 20 || info->codeSize % 4 || info->pCode[0] != kMagic) wrong("this is no SPIR-V");
    Shader *shader = make(get(handle), callbacks, out);
    shader->words.assign(info->pCode, info->pCode + info->codeSize / 4);
    return VK_SUCCESS;
}

VkResult do_vkCreateComputePipelines(VkDevice handle, VkPipelineCache cache, uint32_t count,
                                     const VkComputePipelineCreateInfo *infos, const VkAllocationCallbacks *callbacks,
                                     VkPipeline *out) {
    Device &device = get(handle);
    for (uint32_t i = 0; i < count; i++) {
        const VkPipelineShaderStageCreateInfo &stage = infos[i].stage;
        get(infos[i].layout);
        Shader &shader = get(stage.module);
        Pipeline *pipeline = make(device, callbacks, &out[i]);
        pipeline->kernel = stage.pName;
        pipeline->words = shader.words;
        read_shader(shader.words, pipeline->kernel, pipeline->local_size, &pipeline->pushes);
        if (cache) get(cache).pipelines.insert(hash_of(shader.words, pipeline->kernel));
        const Profile &p = *device.profile;
        for (int d = 0; d < 3; d++) {
            if (pipeline->local_size[d] > p.group_size[d]) wrong("a workgroup is over maxComputeWorkGroupSize");
        }
    }
    return VK_SUCCESS;
}

VkResult do_vkCreatePipelineLayout(VkDevice handle, const VkPipelineLayoutCreateInfo *info,
                                   const VkAllocationCallbacks *callbacks, VkPipelineLayout *out) {
    Device &device = get(handle);
    for (uint32_t i = 0; i < info->setLayoutCount; i++) get(info->pSetLayouts[i]);
    PipelineLayout *layout = make(device, callbacks, out);
    for (uint32_t i = 0; i < info->pushConstantRangeCount; i++) {
        const VkPushConstantRange &range = info->pPushConstantRanges[i];
        if (range.offset + range.size > device.profile->push_bytes) wrong("push constants over maxPushConstantsSize");
        if (range.offset + range.size > layout->push_bytes) layout->push_bytes = range.offset + range.size;
    }
    return VK_SUCCESS;
}

VkResult do_vkCreateDescriptorSetLayout(VkDevice handle, const VkDescriptorSetLayoutCreateInfo *info,
                                        const VkAllocationCallbacks *callbacks, VkDescriptorSetLayout *out) {
    SetLayout *layout = make(get(handle), callbacks, out);
    for (uint32_t i = 0; i < info->bindingCount; i++) {
        const VkDescriptorSetLayoutBinding &binding = info->pBindings[i];
        if (binding.binding >= layout->types.size()) layout->types.resize(binding.binding + 1);
        layout->types[binding.binding] = binding.descriptorType;
    }
    return VK_SUCCESS;
}

VkResult do_vkCreateDescriptorPool(VkDevice handle, const VkDescriptorPoolCreateInfo *info,
                                   const VkAllocationCallbacks *callbacks, VkDescriptorPool *out) {
    Device &device = get(handle);
    if (device.profile && device.profile->sets_of_a_pool && info->maxSets > device.profile->sets_of_a_pool)
        return VK_ERROR_OUT_OF_DEVICE_MEMORY;
    DescriptorPool *pool = make(device, callbacks, out);
    pool->sets_left = info->maxSets;
    for (uint32_t i = 0; i < info->poolSizeCount; i++)
        pool->left[info->pPoolSizes[i].type] += info->pPoolSizes[i].descriptorCount;
    return VK_SUCCESS;
}

void do_vkDestroyDescriptorPool(VkDevice, VkDescriptorPool handle, const VkAllocationCallbacks *callbacks) {
    if (!handle) return;
    DescriptorPool &pool = get(handle);
    for (DescriptorSet *set : pool.sets) end_child(set);
    pool.sets.clear();
    end_object(&pool, callbacks);
}

VkResult do_vkResetDescriptorPool(VkDevice, VkDescriptorPool handle, VkDescriptorPoolResetFlags) {
    DescriptorPool &pool = get(handle);
    for (DescriptorSet *set : pool.sets) {
        for (const DescriptorSet::Binding &binding : set->bindings) pool.left[binding.type]++;
        end_child(set);
        pool.sets_left++;
    }
    pool.sets.clear();
    return VK_SUCCESS;
}

VkResult do_vkAllocateDescriptorSets(VkDevice, const VkDescriptorSetAllocateInfo *info, VkDescriptorSet *out) {
    DescriptorPool &pool = get(info->descriptorPool);
    std::map<VkDescriptorType, uint32_t> wanted;
    for (uint32_t i = 0; i < info->descriptorSetCount; i++) {
        for (VkDescriptorType type : get(info->pSetLayouts[i]).types) wanted[type]++;
    }
    bool enough = info->descriptorSetCount <= pool.sets_left;
    for (const auto &one : wanted) enough = enough && one.second <= pool.left[one.first];
    if (!enough) return VK_ERROR_OUT_OF_POOL_MEMORY;
    for (const auto &one : wanted) pool.left[one.first] -= one.second;
    pool.sets_left -= info->descriptorSetCount;
    for (uint32_t i = 0; i < info->descriptorSetCount; i++) {
        DescriptorSet *set = make(pool, nullptr, &out[i]);
        for (VkDescriptorType type : get(info->pSetLayouts[i]).types) set->bindings.push_back({type});
        pool.sets.push_back(set);
    }
    return VK_SUCCESS;
}

void do_vkUpdateDescriptorSets(VkDevice handle, uint32_t count, const VkWriteDescriptorSet *writes, uint32_t,
                               const VkCopyDescriptorSet *) {
    const Profile &p = *get(handle).profile;
    for (uint32_t i = 0; i < count; i++) {
        const VkWriteDescriptorSet &write = writes[i];
        DescriptorSet &set = get(write.dstSet);
        if (set.recorded && !set.device->lost) wrong("a descriptor set is updated while recorded commands use it");
        for (uint32_t k = 0; k < write.descriptorCount; k++) {
            // Consecutive bindings of one type are updated by one write.
            const uint32_t at = write.dstBinding + k;
            if (at >= set.bindings.size() || set.bindings[at].type != write.descriptorType) {
                wrong("a descriptor is written that the set's layout does not have");
                break;
            }
            const VkDescriptorBufferInfo &to = write.pBufferInfo[k];
            Buffer &buffer = get(to.buffer);
            const bool uniform = write.descriptorType == VK_DESCRIPTOR_TYPE_UNIFORM_BUFFER;
            const uint64_t range = to.range == VK_WHOLE_SIZE ? buffer.size - to.offset : to.range;
            if (to.offset % (uniform ? p.uniform_alignment : p.storage_alignment))
                wrong("a descriptor begins at byte " + std::to_string(to.offset) + ", no multiple of its alignment");
            if (range == 0 || to.offset + range > buffer.size) wrong("a descriptor ends behind its buffer");
            if (range > (uniform ? p.uniform_range : p.storage_range)) wrong("a descriptor is over the largest range");
            set.bindings[at].buffer = buffer.handle;
            set.bindings[at].offset = to.offset;
            set.bindings[at].range = range;
        }
    }
}

}  // namespace mock
