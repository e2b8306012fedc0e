// small_kernel.h: a kernel in SPIR-V assembly whose parts a test replaces: b(x) = a(x), one element per group.

#ifndef HALIDE_VULKAN_TEST_SMALL_KERNEL_H
#define HALIDE_VULKAN_TEST_SMALL_KERNEL_H

#include "kernel_inputs.h"

struct SmallKernel {
    std::string capabilities = "OpCapability Shader\n";
    std::string memory_model = "OpMemoryModel Logical GLSL450\n";
    std::string entry_point = "OpEntryPoint GLCompute %main \"small\" %group\n";
    std::string modes = "OpExecutionMode %main LocalSize 4 2 1\n";
    std::string decorations;
    std::string group_id = "WorkgroupId";
    std::string group_type = "%uint3";
    std::string globals;  // after the standard ones
    std::string body = "%id = OpLoad %uint3 %group\n"
                       "%x = OpCompositeExtract %uint %id 0\n"
                       "%from = OpAccessChain %pointer_float %a %zero %x\n"
                       "%value = OpLoad %float %from\n"
                       "%to = OpAccessChain %pointer_float %b %zero %x\n"
                       "OpStore %to %value\n";
    std::string functions;  // after main

    std::string text() const {
        return capabilities + memory_model + entry_point + modes + "OpDecorate %group BuiltIn " + group_id + "\n" +
               "OpDecorate %array ArrayStride 4\n"
               "OpDecorate %block BufferBlock\n"
               "OpMemberDecorate %block 0 Offset 0\n"
               "OpDecorate %b DescriptorSet 0\n"
               "OpDecorate %b Binding 1\n"
               "OpDecorate %a DescriptorSet 0\n"
               "OpDecorate %a Binding 0\n" +
               decorations +
               "%void = OpTypeVoid\n"
               "%function = OpTypeFunction %void\n"
               "%bool = OpTypeBool\n"
               "%float = OpTypeFloat 32\n"
               "%uint = OpTypeInt 32 0\n"
               "%uint3 = OpTypeVector %uint 3\n"
               "%pointer_input = OpTypePointer Input " +
               group_type + "\n" +
               "%array = OpTypeRuntimeArray %float\n"
               "%block = OpTypeStruct %array\n"
               "%pointer_block = OpTypePointer Uniform %block\n"
               "%pointer_float = OpTypePointer Uniform %float\n"
               "%zero = OpConstant %uint 0\n"
               "%one = OpConstant %uint 1\n"
               "%group = OpVariable %pointer_input Input\n"
               "%b = OpVariable %pointer_block Uniform\n"
               "%a = OpVariable %pointer_block Uniform\n" +
               globals +
               "%main = OpFunction %void None %function\n"
               "%entry = OpLabel\n" +
               body +
               "OpReturn\n"
               "OpFunctionEnd\n" +
               functions;
    }
    Words words(const std::string &version = "spv1.2") const { return assemble(text(), version); }
};

#endif  // HALIDE_VULKAN_TEST_SMALL_KERNEL_H
