// vulkan_copy_kernel.h: copies from region to region by a kernel.
//
// vkCmdCopyBuffer moves 48 MB in 119 us on an H200, whatever the queue and however the copy is cut; a kernel that moves
// 16 bytes at a time moves them at the speed of the memory. So long dense copies on a GPU are dispatched; short ones,
// strided ones and those that do not begin at a descriptor's alignment stay with the copy command.
//
// Made when the first such copy is asked for. A device that cannot make it copies with the command.
//
// Thread rule: unsafe, the device's lock.

#ifndef HALIDE_VULKAN_COPY_KERNEL_H
#define HALIDE_VULKAN_COPY_KERNEL_H

#include "vulkan_memory.h"
#include "vulkan_shapes.h"

namespace halide_vulkan {
namespace {

// Compiled with glslangValidator -V --target-env vulkan1.0 and spirv-opt -O --strip-debug from:
//
//     #version 450
//     layout(local_size_x = 256) in;
//     layout(set = 0, binding = 0, std430) readonly buffer Source { uvec4 from[]; };
//     layout(set = 0, binding = 1, std430) writeonly buffer Destination { uvec4 to[]; };
//     layout(push_constant) uniform Push { uint count; uint stride; };
//     void main() {
//         for (uint i = gl_GlobalInvocationID.x; i < count; i += stride) to[i] = from[i];
//     }
constexpr uint32_t kCopyKernelCode[] = {
    0x07230203, 0x00010000, 0x0008000b, 0x00000038, 0x00000000, 0x00020011, 0x00000001, 0x0006000b, 0x00000001,
    0x4c534c47, 0x6474732e, 0x3035342e, 0x00000000, 0x0003000e, 0x00000000, 0x00000001, 0x0006000f, 0x00000005,
    0x00000004, 0x6e69616d, 0x00000000, 0x0000000b, 0x00060010, 0x00000004, 0x00000011, 0x00000100, 0x00000001,
    0x00000001, 0x00040047, 0x0000000b, 0x0000000b, 0x0000001c, 0x00050048, 0x00000016, 0x00000000, 0x00000023,
    0x00000000, 0x00050048, 0x00000016, 0x00000001, 0x00000023, 0x00000004, 0x00030047, 0x00000016, 0x00000002,
    0x00040047, 0x00000021, 0x00000006, 0x00000010, 0x00040048, 0x00000022, 0x00000000, 0x00000019, 0x00050048,
    0x00000022, 0x00000000, 0x00000023, 0x00000000, 0x00030047, 0x00000022, 0x00000003, 0x00040047, 0x00000024,
    0x00000022, 0x00000000, 0x00040047, 0x00000024, 0x00000021, 0x00000001, 0x00040047, 0x00000026, 0x00000006,
    0x00000010, 0x00040048, 0x00000027, 0x00000000, 0x00000018, 0x00050048, 0x00000027, 0x00000000, 0x00000023,
    0x00000000, 0x00030047, 0x00000027, 0x00000003, 0x00040047, 0x00000029, 0x00000022, 0x00000000, 0x00040047,
    0x00000029, 0x00000021, 0x00000000, 0x00040047, 0x00000036, 0x0000000b, 0x00000019, 0x00020013, 0x00000002,
    0x00030021, 0x00000003, 0x00000002, 0x00040015, 0x00000006, 0x00000020, 0x00000000, 0x00040017, 0x00000009,
    0x00000006, 0x00000003, 0x00040020, 0x0000000a, 0x00000001, 0x00000009, 0x0004003b, 0x0000000a, 0x0000000b,
    0x00000001, 0x0004002b, 0x00000006, 0x0000000c, 0x00000000, 0x00040020, 0x0000000d, 0x00000001, 0x00000006,
    0x0004001e, 0x00000016, 0x00000006, 0x00000006, 0x00040020, 0x00000017, 0x00000009, 0x00000016, 0x0004003b,
    0x00000017, 0x00000018, 0x00000009, 0x00040015, 0x00000019, 0x00000020, 0x00000001, 0x0004002b, 0x00000019,
    0x0000001a, 0x00000000, 0x00040020, 0x0000001b, 0x00000009, 0x00000006, 0x00020014, 0x0000001e, 0x00040017,
    0x00000020, 0x00000006, 0x00000004, 0x0003001d, 0x00000021, 0x00000020, 0x0003001e, 0x00000022, 0x00000021,
    0x00040020, 0x00000023, 0x00000002, 0x00000022, 0x0004003b, 0x00000023, 0x00000024, 0x00000002, 0x0003001d,
    0x00000026, 0x00000020, 0x0003001e, 0x00000027, 0x00000026, 0x00040020, 0x00000028, 0x00000002, 0x00000027,
    0x0004003b, 0x00000028, 0x00000029, 0x00000002, 0x00040020, 0x0000002b, 0x00000002, 0x00000020, 0x0004002b,
    0x00000019, 0x0000002f, 0x00000001, 0x0004002b, 0x00000006, 0x00000034, 0x00000100, 0x0004002b, 0x00000006,
    0x00000035, 0x00000001, 0x0006002c, 0x00000009, 0x00000036, 0x00000034, 0x00000035, 0x00000035, 0x00050036,
    0x00000002, 0x00000004, 0x00000000, 0x00000003, 0x000200f8, 0x00000005, 0x00050041, 0x0000000d, 0x0000000e,
    0x0000000b, 0x0000000c, 0x0004003d, 0x00000006, 0x0000000f, 0x0000000e, 0x000200f9, 0x00000010, 0x000200f8,
    0x00000010, 0x000700f5, 0x00000006, 0x00000037, 0x0000000f, 0x00000005, 0x00000033, 0x00000011, 0x00050041,
    0x0000001b, 0x0000001c, 0x00000018, 0x0000001a, 0x0004003d, 0x00000006, 0x0000001d, 0x0000001c, 0x000500b0,
    0x0000001e, 0x0000001f, 0x00000037, 0x0000001d, 0x000400f6, 0x00000012, 0x00000011, 0x00000000, 0x000400fa,
    0x0000001f, 0x00000011, 0x00000012, 0x000200f8, 0x00000011, 0x00060041, 0x0000002b, 0x0000002c, 0x00000029,
    0x0000001a, 0x00000037, 0x0004003d, 0x00000020, 0x0000002d, 0x0000002c, 0x00060041, 0x0000002b, 0x0000002e,
    0x00000024, 0x0000001a, 0x00000037, 0x0003003e, 0x0000002e, 0x0000002d, 0x00050041, 0x0000001b, 0x00000030,
    0x00000018, 0x0000002f, 0x0004003d, 0x00000006, 0x00000031, 0x00000030, 0x00050080, 0x00000006, 0x00000033,
    0x00000037, 0x00000031, 0x000200f9, 0x00000010, 0x000200f8, 0x00000012, 0x000100fd, 0x00010038,
};

constexpr uint32_t kCopyThreads = 256;  // of a workgroup, as in the code
constexpr uint32_t kCopyUnit = 16;      // bytes an invocation moves at a time
// Enough workgroups to fill the largest GPUs several times over; each invocation then loops.
constexpr uint32_t kCopyGroups = 4096;
// Below this a copy takes little longer than the dispatch.
constexpr uint64_t kKernelCopyBytes = 256 << 10;

// A pipeline of our own, made when first asked for. A device that refuses is not asked again.
struct CopyPipeline {
    VkPipeline pipeline;
    bool unusable;
    bool has_run;  // a dispatch was recorded

    // Null: copy with the command.
    VkPipeline get(Gpu &gpu, const Shape &shape, const uint32_t *words, size_t bytes) {
        if (pipeline || unusable) return pipeline;
        unusable = true;
        const VkPhysicalDeviceLimits &l = gpu.limits();
        if (l.maxComputeWorkGroupSize[0] < kCopyThreads || l.maxComputeWorkGroupInvocations < kCopyThreads)
            return VK_NULL_HANDLE;
        VkShaderModuleCreateInfo code = {};
        code.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO;
        code.codeSize = bytes;
        code.pCode = words;
        VkShaderModule module = VK_NULL_HANDLE;
        if (gpu.vk.vkCreateShaderModule(gpu.device, &code, gpu.callbacks, &module) != VK_SUCCESS) return VK_NULL_HANDLE;
        name_object(gpu, VK_OBJECT_TYPE_SHADER_MODULE, module, "copy kernel");
        VkComputePipelineCreateInfo info = {};
        info.sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO;
        info.stage.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO;
        info.stage.stage = VK_SHADER_STAGE_COMPUTE_BIT;
        info.stage.module = module;
        info.stage.pName = "main";
        info.layout = shape.layout;
        const VkResult result =
            gpu.vk.vkCreateComputePipelines(gpu.device, VK_NULL_HANDLE, 1, &info, gpu.callbacks, &pipeline);
        gpu.vk.vkDestroyShaderModule(gpu.device, module, gpu.callbacks);
        if (result != VK_SUCCESS) pipeline = VK_NULL_HANDLE;
        if (pipeline) name_object(gpu, VK_OBJECT_TYPE_PIPELINE, pipeline, "copy kernel");
        unusable = result != VK_SUCCESS;
        return pipeline;
    }
    void destroy(Gpu &gpu) {
        if (pipeline) gpu.vk.vkDestroyPipeline(gpu.device, pipeline, gpu.callbacks);
        pipeline = VK_NULL_HANDLE;
    }
};

class CopyKernel {
public:
    // Whether a copy of this kind is for the kernel.
    static bool suits(const Gpu &gpu, uint64_t storage_range, uint64_t from, uint64_t to, uint64_t bytes) {
        const uint64_t alignment = max_of<uint64_t>(kCopyUnit, gpu.limits().minStorageBufferOffsetAlignment);
        return gpu.properties.deviceType != VK_PHYSICAL_DEVICE_TYPE_CPU && bytes >= kKernelCopyBytes &&
               bytes <= storage_range && ((from | to) & (alignment - 1)) == 0;
    }

    // Records the dispatch for the part of the copy that is a multiple of kCopyUnit. False when the kernel cannot be
    // had, or the batch has no descriptor set left (*full): then nothing was recorded.
    bool record(Gpu &gpu, Shapes &shapes, Submissions &submissions, VkBuffer from, uint64_t from_offset, VkBuffer to,
                uint64_t to_offset, uint64_t bytes, bool *full) {
        *full = false;
        const VkPipeline copy = ready(gpu, shapes);
        if (!copy) return false;
        const VkDescriptorSet set = shape->next_set(submissions);
        if (!set) {
            *full = true;
            return false;
        }
        const VkDescriptorBufferInfo infos[2] = {{from, from_offset, bytes}, {to, to_offset, bytes}};
        VkWriteDescriptorSet write = {};
        write.sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET;
        write.dstSet = set;
        write.descriptorCount = 2;
        write.descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER;
        write.pBufferInfo = infos;
        gpu.vk.vkUpdateDescriptorSets(gpu.device, 1, &write, 0, nullptr);
        const uint32_t count = (uint32_t)(bytes / kCopyUnit);
        const uint32_t groups = min_of(kCopyGroups, (count + kCopyThreads - 1) / kCopyThreads);
        const uint32_t push[2] = {count, groups * kCopyThreads};
        const VkCommandBuffer commands = submissions.commands();
        submissions.bind_pipeline(gpu, copy);
        gpu.vk.vkCmdBindDescriptorSets(commands, VK_PIPELINE_BIND_POINT_COMPUTE, shape->layout, 0, 1, &set, 0, nullptr);
        gpu.vk.vkCmdPushConstants(commands, shape->layout, VK_SHADER_STAGE_COMPUTE_BIT, 0, sizeof(push), push);
        gpu.vk.vkCmdDispatch(commands, groups, 1, 1);
        return true;
    }

    void destroy(Gpu &gpu) { pipeline.destroy(gpu); }

private:
    Shape *shape;
    CopyPipeline pipeline;

    VkPipeline ready(Gpu &gpu, Shapes &shapes) {
        Failure ignored;
        if (!shape) shape = shapes.find(gpu, 0, 2, ignored);
        if (!shape || shape->push_bytes < 8) return VK_NULL_HANDLE;
        return pipeline.get(gpu, *shape, kCopyKernelCode, sizeof(kCopyKernelCode));
    }
};

}  // namespace
}  // namespace halide_vulkan

#endif  // HALIDE_VULKAN_COPY_KERNEL_H
