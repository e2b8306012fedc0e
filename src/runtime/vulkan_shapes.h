// vulkan_shapes.h: layouts and descriptor sets, shared by all kernels of one shape.
//
// A kernel's descriptors are fully told by two numbers: whether it has a uniform block, and how many storage buffers.
// So there are as many layouts as pairs in use (about 60 at most), and a set serves any kernel of its shape.
//
// A set belongs to a slot of the submission ring: a shape has kBatchCommands sets for each slot, made when the shape is
// first met. The n-th launch of the shape in a batch takes the slot's n-th set and points it at its buffers. The slot
// comes back only when its submission is done, so a set is never changed while the GPU may read it, nothing is
// allocated or reset per launch, and pools cannot fragment. Where a driver refuses so many, a shape makes do with fewer
// sets, and a batch ends when they are used up.
//
// Thread rule: unsafe, the device's lock.

#ifndef HALIDE_VULKAN_SHAPES_H
#define HALIDE_VULKAN_SHAPES_H

#include "vulkan_spirv_patch.h"
#include "vulkan_submission.h"

namespace halide_vulkan {
namespace {

struct Shape {
    uint32_t uniforms;  // 0 or 1
    uint32_t buffers;
    VkDescriptorSetLayout set_layout;
    VkPipelineLayout layout;
    uint32_t push_bytes;  // of the layout's push constant range; 0 when relocated kernels do not fit
    VkDescriptorPool pool;
    VkDescriptorSet *sets;  // kSlots * sets_per_slot
    uint32_t sets_per_slot;
    uint32_t used;        // in the open batch ...
    uint64_t used_epoch;  // ... if it has this epoch

    // Null when the open batch has used up the slot's sets: submit, then ask again.
    VkDescriptorSet next_set(const Submissions &submissions) {
        if (used_epoch != submissions.open_epoch()) {
            used_epoch = submissions.open_epoch();
            used = 0;
        }
        if (used == sets_per_slot) return VK_NULL_HANDLE;
        return sets[submissions.open_slot() * sets_per_slot + used++];
    }
};

class Shapes {
public:
    // The shape is owned here and lives as long as the device. Null with the reason in failure.
    Shape *find(Gpu &gpu, uint32_t uniforms, uint32_t buffers, Failure &failure) {
        for (Shape *s : shapes) {
            if (s->uniforms == uniforms && s->buffers == buffers) return s;
        }
        if (!check_limits(gpu, uniforms, buffers, failure)) return nullptr;
        Shape *s = (Shape *)host_malloc(sizeof(Shape));
        if (!s || !shapes.push(s)) {
            host_free(s);
            failure.because(kOutOfMemory) << "Vulkan: out of host memory for a descriptor layout";
            return nullptr;
        }
        *s = {};
        s->uniforms = uniforms;
        s->buffers = buffers;
        if (create_layouts(gpu, *s, failure) && create_sets(gpu, *s, failure)) return s;
        shapes.pop();
        destroy_shape(gpu, s);
        return nullptr;
    }

    void destroy(Gpu &gpu) {
        for (Shape *s : shapes) destroy_shape(gpu, s);
        shapes.release();
    }

private:
    Array<Shape *> shapes;

    static bool check_limits(const Gpu &gpu, uint32_t uniforms, uint32_t buffers, Failure &failure) {
        const VkPhysicalDeviceLimits &l = gpu.limits();
        const struct {
            const char *name;
            uint32_t asked, limit;
        } checks[] = {
            {"maxPerStageDescriptorStorageBuffers", buffers, l.maxPerStageDescriptorStorageBuffers},
            {"maxDescriptorSetStorageBuffers", buffers, l.maxDescriptorSetStorageBuffers},
            {"maxPerStageResources", buffers + uniforms, l.maxPerStageResources},
        };
        for (const auto &check : checks) {
            if (check.asked <= check.limit) continue;
            failure.because(kDeviceRunFailed) << "Vulkan: a kernel with " << buffers << " buffers was asked for; "
                                              << check.name << " of this device is " << check.limit;
            return false;
        }
        return true;
    }

    static bool create_layouts(Gpu &gpu, Shape &s, Failure &failure) {
        Array<VkDescriptorSetLayoutBinding> bindings;
        if (!bindings.resize(s.uniforms + s.buffers)) {
            failure.because(kOutOfMemory) << "Vulkan: out of host memory for a descriptor layout";
            return false;
        }
        for (uint32_t i = 0; i < bindings.size(); i++) {
            bindings[i].binding = i;
            bindings[i].descriptorType =
                i < s.uniforms ? VK_DESCRIPTOR_TYPE_UNIFORM_BUFFER : VK_DESCRIPTOR_TYPE_STORAGE_BUFFER;
            bindings[i].descriptorCount = 1;
            bindings[i].stageFlags = VK_SHADER_STAGE_COMPUTE_BIT;
        }
        VkDescriptorSetLayoutCreateInfo info = {};
        info.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO;
        info.bindingCount = (uint32_t)bindings.size();
        info.pBindings = bindings.data();
        VkResult result = gpu.vk.vkCreateDescriptorSetLayout(gpu.device, &info, gpu.callbacks, &s.set_layout);
        bindings.release();
        if (result != VK_SUCCESS) {
            s.set_layout = VK_NULL_HANDLE;
            gpu_failed(gpu, failure, "vkCreateDescriptorSetLayout", result);
            return false;
        }
        VkPushConstantRange range = {VK_SHADER_STAGE_COMPUTE_BIT, 0, relocation_bytes(s.buffers)};
        VkPipelineLayoutCreateInfo layout = {};
        layout.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO;
        layout.setLayoutCount = 1;
        layout.pSetLayouts = &s.set_layout;
        if (range.size <= gpu.limits().maxPushConstantsSize) {
            layout.pushConstantRangeCount = 1;
            layout.pPushConstantRanges = &range;
            s.push_bytes = range.size;
        }
        result = gpu.vk.vkCreatePipelineLayout(gpu.device, &layout, gpu.callbacks, &s.layout);
        if (result != VK_SUCCESS) {
            s.layout = VK_NULL_HANDLE;
            gpu_failed(gpu, failure, "vkCreatePipelineLayout", result);
            return false;
        }
        name_object(gpu, VK_OBJECT_TYPE_DESCRIPTOR_SET_LAYOUT, s.set_layout, "buffers of a kernel:", s.buffers);
        name_object(gpu, VK_OBJECT_TYPE_PIPELINE_LAYOUT, s.layout, "buffers of a kernel:", s.buffers);
        trace("vk_create_pipeline_layout", handle_number(s.layout));
        return true;
    }

    // Tries a full batch of sets for each slot, then fewer: pool sizes are sums over the sets, and any refusal (out of
    // memory, out of pool memory, fragmented pool) only means that batches of this shape are shorter.
    static bool create_sets(Gpu &gpu, Shape &s, Failure &failure) {
        VkResult result = VK_SUCCESS;
        const char *call = "vkCreateDescriptorPool";
        for (uint32_t per_slot = kBatchCommands; per_slot >= 1; per_slot /= 4) {
            const uint32_t total = per_slot * kSlots;
            VkDescriptorPoolSize sizes[2];
            uint32_t kinds = 0;
            if (s.buffers) sizes[kinds++] = {VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, s.buffers * total};
            if (s.uniforms) sizes[kinds++] = {VK_DESCRIPTOR_TYPE_UNIFORM_BUFFER, s.uniforms * total};
            if (kinds == 0) sizes[kinds++] = {VK_DESCRIPTOR_TYPE_UNIFORM_BUFFER, 1};  // a pool must hold something
            VkDescriptorPoolCreateInfo info = {};
            info.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO;
            info.maxSets = total;
            info.poolSizeCount = kinds;
            info.pPoolSizes = sizes;
            call = "vkCreateDescriptorPool";
            result = gpu.vk.vkCreateDescriptorPool(gpu.device, &info, gpu.callbacks, &s.pool);
            if (result != VK_SUCCESS) {
                s.pool = VK_NULL_HANDLE;
                if (result == VK_ERROR_DEVICE_LOST) break;
                continue;
            }
            s.sets = (VkDescriptorSet *)host_malloc(total * sizeof(VkDescriptorSet));
            call = "vkAllocateDescriptorSets";
            result = s.sets ? allocate_sets(gpu, s, total) : VK_ERROR_OUT_OF_HOST_MEMORY;
            if (result == VK_SUCCESS) {
                s.sets_per_slot = per_slot;
                // Its sets, a thousand, have no names of their own: Mesa 22 leaks those when the pool goes.
                name_object(gpu, VK_OBJECT_TYPE_DESCRIPTOR_POOL, s.pool, "buffers of a kernel:", s.buffers);
                trace("vk_create_descriptor_pool", handle_number(s.pool));
                return true;
            }
            gpu.vk.vkDestroyDescriptorPool(gpu.device, s.pool, gpu.callbacks);
            s.pool = VK_NULL_HANDLE;
            host_free(s.sets);
            s.sets = nullptr;
            if (result == VK_ERROR_DEVICE_LOST) break;
        }
        gpu_failed(gpu, failure, call, result) << " for a kernel with " << s.buffers << " buffers";
        return false;
    }

    static VkResult allocate_sets(Gpu &gpu, Shape &s, uint32_t total) {
        VkDescriptorSetLayout layouts[64];
        for (VkDescriptorSetLayout &l : layouts) l = s.set_layout;
        for (uint32_t done = 0; done < total;) {
            VkDescriptorSetAllocateInfo info = {};
            info.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO;
            info.descriptorPool = s.pool;
            info.descriptorSetCount = min_of(total - done, 64u);
            info.pSetLayouts = layouts;
            const VkResult result = gpu.vk.vkAllocateDescriptorSets(gpu.device, &info, s.sets + done);
            if (result != VK_SUCCESS) return result;
            done += info.descriptorSetCount;
        }
        return VK_SUCCESS;
    }

    static void destroy_shape(Gpu &gpu, Shape *s) {
        if (s->pool) {
            trace("vk_destroy_descriptor_pool", handle_number(s->pool));
            gpu.vk.vkDestroyDescriptorPool(gpu.device, s->pool, gpu.callbacks);
        }
        if (s->layout) {
            trace("vk_destroy_pipeline_layout", handle_number(s->layout));
            gpu.vk.vkDestroyPipelineLayout(gpu.device, s->layout, gpu.callbacks);
        }
        if (s->set_layout) gpu.vk.vkDestroyDescriptorSetLayout(gpu.device, s->set_layout, gpu.callbacks);
        host_free(s->sets);
        host_free(s);
    }
};

}  // namespace
}  // namespace halide_vulkan

#endif  // HALIDE_VULKAN_SHAPES_H
