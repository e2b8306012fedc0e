// The SPIR-V patcher: what it changes, that it changes nothing else, and that the results are valid.
//
// That relocated kernels also compute the same is tested on a device, by the tests of unaligned crops and large grids.

#include <gtest/gtest.h>

static int allocations_left = -1;  // -1: no limit
static int allocations_alive = 0;
static void *limited_malloc(size_t bytes);
static void counted_free(void *pointer);
#define HALIDE_VULKAN_MALLOC(bytes) limited_malloc(bytes)
#define HALIDE_VULKAN_FREE(pointer) counted_free(pointer)
#include "vulkan_spirv_patch.h"

#include "small_kernel.h"

static void *limited_malloc(size_t bytes) {
    if (allocations_left == 0) return nullptr;
    if (allocations_left > 0) allocations_left--;
    allocations_alive++;
    return malloc(bytes);
}
static void counted_free(void *pointer) {
    if (pointer) allocations_alive--;
    free(pointer);
}

using namespace halide_vulkan;

namespace {

std::vector<Words> kernels_of(const std::string &name) {
    const Words words = blob_words(name);
    Blob blob;
    Failure failure;
    std::vector<Words> kernels;
    if (parse_blob(words.data(), words.size() * 4, blob, failure)) {
        for (const BlobKernel &k : blob.kernels) kernels.emplace_back(k.spirv, k.spirv + k.spirv_words);
    }
    blob.release();
    return kernels;
}

// A module and what the reader says of it.
class Module {
public:
    explicit Module(Words from) : words(std::move(from)) {
        Failure failure;
        ok = read_spirv(words.data(), words.size(), info, failure);
        EXPECT_TRUE(ok) << failure.message;
    }
    Module(const Module &) = delete;
    Module &operator=(const Module &) = delete;
    ~Module() { info.release(); }

    // Empty where it is refused.
    Words patched(const SpirvPatch &patch) const {
        Array<uint32_t> out;
        Failure failure;
        const bool done = patch_spirv(words.data(), words.size(), info, patch, out, failure);
        EXPECT_EQ(done, !failure.failed());
        refusal = failure.message;
        const Words result(out.begin(), out.end());
        out.release();
        return result;
    }
    Words relocated() const { return patched({{info.local_size[0], info.local_size[1], info.local_size[2]}, true}); }
    std::string validity(const char *environment) const { return validate(words.data(), words.size(), environment); }
    std::string text() const { return disassemble(words.data(), words.size()); }

    Words words;
    SpirvInfo info;
    bool ok;
    mutable std::string refusal;
};

bool contains(const std::string &text, const std::string &part) { return text.find(part) != std::string::npos; }

size_t count_of(const std::string &text, const std::string &part) {
    size_t n = 0;
    for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) n++;
    return n;
}

TEST(SpirvPatch, AFixedSizeThatIsRightChangesNothing) {
    for (const char *name : {"grid3", "copy_u8", "vec", "gather", "multi"}) {
        for (const Words &words : kernels_of(name)) {
            const Module module(words);
            const uint32_t *size = module.info.local_size;
            EXPECT_EQ(module.patched({{size[0], size[1], size[2]}, false}), words) << name;
        }
    }
}

TEST(SpirvPatch, AFixedSizeThatIsWrongIsReplaced) {
    // Halide writes 16 1 1 where only the second size is dynamic.
    const Module module(kernels_of("dyny")[0]);
    const Module patched(module.patched({{16, 12, 1}, false}));
    EXPECT_EQ(patched.info.local_size[1], 12u);
    ASSERT_EQ(patched.words.size(), module.words.size());
    size_t changed = 0;
    for (size_t i = 0; i < patched.words.size(); i++) changed += patched.words[i] != module.words[i];
    EXPECT_EQ(changed, 1u);
}

TEST(SpirvPatch, ASizeByIdsBecomesLiteral) {
    const Module module(kernels_of("dynshared")[0]);
    EXPECT_TRUE(module.info.local_size_is_ids);
    EXPECT_NE(module.validity("vulkan1.1"), "") << "the module as compiled needs no patch any more";
    const Module patched(module.patched({{17, 4, 1}, false}));
    EXPECT_FALSE(patched.info.local_size_is_ids);
    EXPECT_EQ(patched.info.local_size[0], 17u);
    EXPECT_EQ(patched.info.local_size[1], 4u);
    EXPECT_EQ(patched.info.local_size[2], 1u);
    EXPECT_FALSE(contains(patched.text(), "OpExecutionModeId"));
    EXPECT_EQ(count_of(patched.text(), "OpExecutionMode"), 1u);
    // The constants stay, for the size of shared memory is one of them and all get values at a launch.
    EXPECT_EQ(count_of(patched.text(), "SpecId"), 4u);
    for (const char *environment : {"vulkan1.1", "vulkan1.2", "vulkan1.3"}) {
        EXPECT_EQ(patched.validity(environment), "");
    }
}

// Signed alone, scalar or vector; the rest stays as it is.
TEST(SpirvPatch, SignedShiftsKeepTheSign) {
    SmallKernel kernel;
    kernel.globals = "%int = OpTypeInt 32 1\n%int3 = OpTypeVector %int 3\n%amounts = OpConstantComposite %uint3 %one "
                     "%one %one\n";
    kernel.body = "%id = OpLoad %uint3 %group\n%ids = OpBitcast %int3 %id\n%x = OpCompositeExtract %int %ids 0\n"
                  "%s1 = OpShiftRightLogical %int %x %one\n%s2 = OpShiftRightLogical %int3 %ids %amounts\n"
                  "%u1 = OpShiftRightLogical %uint %x %one\n%u2 = OpShiftRightLogical %uint3 %id %amounts\n"
                  "%l1 = OpShiftLeftLogical %int %x %one\n%a1 = OpShiftRightArithmetic %uint %x %one\n";
    const Module module(kernel.words()), patched(module.patched({{4, 2, 1}, false}));
    EXPECT_EQ(patched.validity("vulkan1.1"), "");
    ASSERT_EQ(patched.words.size(), module.words.size());
    std::vector<uint32_t> changes;
    for (size_t i = 0; i < module.words.size(); i++) {
        if (patched.words[i] != module.words[i]) changes.push_back(patched.words[i]);
    }
    EXPECT_EQ(changes, (std::vector<uint32_t>{5u << 16 | 195, 5u << 16 | 195}));
    EXPECT_EQ(count_of(patched.text(), "OpShiftRightLogical"), 2u);
    EXPECT_EQ(count_of(patched.text(), "OpShiftRightArithmetic"), 3u);
}

TEST(SpirvPatch, ASizeInAConstantIsReplaced) {
    SmallKernel kernel;
    kernel.decorations = "OpDecorate %size BuiltIn WorkgroupSize\nOpDecorate %sy SpecId 7\n";
    kernel.globals = "%sx = OpConstant %uint 32\n%sy = OpSpecConstant %uint 5\n"
                     "%size = OpSpecConstantComposite %uint3 %sx %sy %one\n";
    for (const bool relocate : {false, true}) {
        const Module patched(Module(kernel.words()).patched({{6, 7, 8}, relocate}));
        EXPECT_EQ(patched.info.local_size[0], 6u);
        EXPECT_EQ(patched.info.local_size[1], 7u);
        EXPECT_EQ(patched.info.local_size[2], 8u);
        EXPECT_FALSE(patched.info.local_size_is_ids);
        EXPECT_EQ(patched.validity("vulkan1.1"), "");
    }
}

TEST(SpirvPatch, RelocatedKernelsAreValidAndSayTheSame) {
    std::vector<std::pair<std::string, Words>> inputs;
    for (const char *name : kBlobs) {
        for (const Words &words : kernels_of(name)) inputs.emplace_back(name, words);
    }
    inputs.emplace_back("main_style", assemble(read_file(source_folder() + "data/main_style.spvasm")));
    ASSERT_EQ(inputs.size(), 10u);
    for (const auto &input : inputs) {
        const Module module(input.second);
        EXPECT_TRUE(module.info.relocatable) << input.first << ": " << module.info.why_not;
        const Module relocated(module.relocated());
        ASSERT_TRUE(relocated.ok) << input.first;
        for (const char *environment : {"vulkan1.1", "vulkan1.2", "vulkan1.3"}) {
            EXPECT_EQ(relocated.validity(environment), "") << input.first;
        }
        EXPECT_STREQ(relocated.info.entry_point, module.info.entry_point);
        ASSERT_EQ(relocated.info.buffers.size(), module.info.buffers.size());
        for (size_t k = 0; k < module.info.buffers.size(); k++) {
            EXPECT_EQ(relocated.info.buffers[k].binding, module.info.buffers[k].binding);
            EXPECT_EQ(relocated.info.buffers[k].array_stride, module.info.buffers[k].array_stride);
            EXPECT_EQ(relocated.info.buffers[k].written, module.info.buffers[k].written);
        }
        ASSERT_EQ(relocated.info.uniform_offsets.size(), module.info.uniform_offsets.size());
        // Once is enough: the offsets of a second time would lie where those of the first do.
        EXPECT_STREQ(relocated.info.why_not, "it has push constants already");
        EXPECT_TRUE(relocated.relocated().empty());
        EXPECT_TRUE(contains(relocated.refusal, "cannot be relocated: it has push constants already"));
    }
}

// One addition for the load of the group id, one for each index into a buffer.
TEST(SpirvPatch, RelocationAddsAsOftenAsNeeded) {
    for (const char *name : kBlobs) {
        for (const Words &words : kernels_of(name)) {
            const Module module(words);
            const Module relocated(module.relocated());
            const std::string before = module.text(), after = relocated.text();
            size_t accesses = 0;
            for (size_t at = 0, end; (end = before.find('\n', at)) != std::string::npos; at = end + 1) {
                const std::string line = before.substr(at, end - at);
                // An element of a buffer: { result, type, base, 0, index }. Scalars and shared memory have no 0.
                if (contains(line, "AccessChain") && count_of(line, "%") == 5) accesses++;
            }
            EXPECT_GE(accesses, module.info.buffers.size()) << name;
            EXPECT_EQ(count_of(after, "OpIAdd") - count_of(before, "OpIAdd"), accesses + 1) << name;
        }
    }
}

TEST(SpirvPatch, WritesWhatTheHeaderSays) {
    const std::string text = "OpCapability Shader\n"
                             "OpMemoryModel Logical GLSL450\n"
                             "OpEntryPoint GLCompute %1 \"k\" %2\n"
                             "OpExecutionMode %1 LocalSize 1 1 1\n"
                             "OpDecorate %2 BuiltIn WorkgroupId\n"
                             "OpDecorate %3 ArrayStride 4\n"
                             "OpDecorate %4 BufferBlock\n"
                             "OpMemberDecorate %4 0 Offset 0\n"
                             "OpDecorate %5 DescriptorSet 0\n"
                             "OpDecorate %5 Binding 3\n"
                             "%6 = OpTypeVoid\n"
                             "%7 = OpTypeFunction %6\n"
                             "%8 = OpTypeInt 32 0\n"
                             "%9 = OpTypeVector %8 3\n"
                             "%10 = OpTypePointer Input %9\n"
                             "%3 = OpTypeRuntimeArray %8\n"
                             "%4 = OpTypeStruct %3\n"
                             "%11 = OpTypePointer Uniform %4\n"
                             "%12 = OpTypePointer Uniform %8\n"
                             "%13 = OpConstant %8 0\n"
                             "%2 = OpVariable %10 Input\n"
                             "%5 = OpVariable %11 Uniform\n"
                             "%1 = OpFunction %6 None %7\n"
                             "%14 = OpLabel\n"
                             "%15 = OpLoad %9 %2\n"
                             "%16 = OpCompositeExtract %8 %15 1\n"
                             "%17 = OpAccessChain %12 %5 %13 %16\n"
                             "OpStore %17 %16\n"
                             "OpReturn\n"
                             "OpFunctionEnd\n";
    const Module relocated(Module(assemble(text)).patched({{8, 4, 2}, true}));
    EXPECT_EQ(relocated.text(), "OpCapability Shader\n"
                                "OpMemoryModel Logical GLSL450\n"
                                "OpEntryPoint GLCompute %1 \"k\" %2\n"
                                "OpExecutionMode %1 LocalSize 8 4 2\n"
                                "OpMemberDecorate %20 0 Offset 0\n"
                                "OpMemberDecorate %20 1 Offset 16\n"
                                "OpDecorate %20 Block\n"
                                "OpDecorate %2 BuiltIn WorkgroupId\n"
                                "OpDecorate %3 ArrayStride 4\n"
                                "OpDecorate %4 BufferBlock\n"
                                "OpMemberDecorate %4 0 Offset 0\n"
                                "OpDecorate %5 DescriptorSet 0\n"
                                "OpDecorate %5 Binding 3\n"
                                "%6 = OpTypeVoid\n"
                                "%7 = OpTypeFunction %6\n"
                                "%8 = OpTypeInt 32 0\n"
                                "%9 = OpTypeVector %8 3\n"
                                "%10 = OpTypePointer Input %9\n"
                                "%3 = OpTypeRuntimeArray %8\n"
                                "%4 = OpTypeStruct %3\n"
                                "%11 = OpTypePointer Uniform %4\n"
                                "%12 = OpTypePointer Uniform %8\n"
                                "%13 = OpConstant %8 0\n"
                                "%2 = OpVariable %10 Input\n"
                                "%5 = OpVariable %11 Uniform\n"
                                "%19 = OpTypeInt 32 1\n"
                                "%20 = OpTypeStruct %9 %19\n"
                                "%21 = OpTypePointer PushConstant %20\n"
                                "%22 = OpTypePointer PushConstant %9\n"
                                "%23 = OpTypePointer PushConstant %19\n"
                                "%26 = OpConstant %19 0\n"
                                "%27 = OpConstant %19 1\n"
                                "%24 = OpVariable %21 PushConstant\n"
                                "%1 = OpFunction %6 None %7\n"
                                "%14 = OpLabel\n"
                                "%28 = OpAccessChain %22 %24 %26\n"
                                "%25 = OpLoad %9 %28\n"
                                "%29 = OpAccessChain %23 %24 %27\n"
                                "%18 = OpLoad %19 %29\n"
                                "%30 = OpLoad %9 %2\n"
                                "%15 = OpIAdd %9 %30 %25\n"
                                "%16 = OpCompositeExtract %8 %15 1\n"
                                "%31 = OpIAdd %8 %16 %18\n"
                                "%17 = OpAccessChain %12 %5 %13 %31\n"
                                "OpStore %17 %16\n"
                                "OpReturn\n"
                                "OpFunctionEnd\n");
    EXPECT_EQ(relocation_bytes(1), 20u);
}

TEST(SpirvPatch, AKernelWithNothingToRelocateGainsNothing) {
    SmallKernel kernel;
    kernel.body = "";
    const Module module(kernel.words());
    EXPECT_EQ(module.relocated(), module.words);
}

TEST(SpirvPatch, AComponentOfTheGroupIdIsRelocated) {
    SmallKernel kernel;
    kernel.globals = "%two = OpConstant %uint 2\n%pointer_uint = OpTypePointer Input %uint\n";
    kernel.body = "%at = OpAccessChain %pointer_uint %group %two\n%x = OpLoad %uint %at\n"
                  "%to = OpAccessChain %pointer_float %b %zero %x\n%zero_float = OpConvertUToF %float %zero\n"
                  "OpStore %to %zero_float\n";
    const Module relocated(Module(kernel.words()).relocated());
    EXPECT_EQ(relocated.validity("vulkan1.1"), "");
    const std::string text = relocated.text();
    const size_t extract = text.find("OpCompositeExtract");
    ASSERT_NE(extract, std::string::npos);
    EXPECT_EQ(text.substr(text.find('\n', extract) - 2, 2), " 2");
}

TEST(SpirvPatch, ASignedGroupIdIsRelocated) {
    SmallKernel kernel;
    kernel.group_type = "%int3";
    std::string text = kernel.text();
    const std::string types = "%int = OpTypeInt 32 1\n%int3 = OpTypeVector %int 3\n";
    text.insert(text.find("%pointer_input ="), types);
    text.replace(text.find("OpLoad %uint3"), 13, "OpLoad %int3");
    text.replace(text.find("OpCompositeExtract %uint"), 24, "OpCompositeExtract %int");
    const Module module(assemble(text));
    EXPECT_TRUE(module.info.relocatable) << module.info.why_not;
    EXPECT_EQ(Module(module.relocated()).validity("vulkan1.1"), "");
}

TEST(SpirvPatch, LoadsStandAfterTheVariablesOfTheFunction) {
    SmallKernel kernel;
    kernel.globals = "%pointer_function = OpTypePointer Function %float\n";
    kernel.body = "%v = OpVariable %pointer_function Function\n%w = OpVariable %pointer_function Function\n" +
                  kernel.body + "OpStore %v %value\nOpStore %w %value\nOpBranch %next\n%next = OpLabel\n";
    EXPECT_EQ(Module(Module(kernel.words()).relocated()).validity("vulkan1.1"), "");
}

TEST(SpirvPatch, NewerVersionsListThePushConstants) {
    SmallKernel kernel;
    kernel.entry_point = "OpEntryPoint GLCompute %main \"small\" %group %a %b\n";
    std::string text = kernel.text();
    for (size_t at; (at = text.find("BufferBlock")) != std::string::npos;) text.replace(at, 11, "Block");
    for (size_t at; (at = text.find(" Uniform")) != std::string::npos;) text.replace(at, 8, " StorageBuffer");
    const Module module(assemble(text, "spv1.4"));
    EXPECT_EQ(module.validity("vulkan1.2"), "");
    EXPECT_EQ(Module(module.relocated()).validity("vulkan1.2"), "");
}

TEST(SpirvPatch, ManyBuffersHaveTheirOffsetsInBindingOrder) {
    SmallKernel kernel;
    // Declared in falling order; each is read once.
    for (int k = 40; k >= 2; k--) {
        const std::string n = std::to_string(k);
        kernel.decorations += "OpDecorate %b" + n + " DescriptorSet 0\nOpDecorate %b" + n + " Binding " + n + "\n";
        kernel.globals += "%b" + n + " = OpVariable %pointer_block Uniform\n";
        kernel.body += "%p" + n + " = OpAccessChain %pointer_float %b" + n + " %zero %x\n%v" + n +
                       " = OpLoad %float %p" + n + "\n";
    }
    const Module module(kernel.words());
    ASSERT_EQ(module.info.buffers.size(), 41u);
    for (uint32_t k = 0; k < 41; k++) EXPECT_EQ(module.info.buffers[k].binding, k);
    const Module relocated(module.relocated());
    EXPECT_EQ(relocated.validity("vulkan1.1"), "");
    EXPECT_TRUE(contains(relocated.text(), "41 Offset " + std::to_string(relocation_bytes(40))));
}

TEST(SpirvPatch, RefusesASizeOfNothing) {
    const Module module(kernels_of("vec")[0]);
    EXPECT_TRUE(module.patched({{0, 1, 1}, false}).empty());
    EXPECT_TRUE(contains(module.refusal, "a local size of 0 1 1"));
}

TEST(SpirvPatch, ReportsMemoryThatIsOut) {
    const Module module(kernels_of("grid3")[0]);
    int failures = 0;
    for (int allowed = 0;; allowed++) {
        Array<uint32_t> out;
        Failure failure;
        const int before = allocations_alive;
        allocations_left = allowed;
        const SpirvPatch patch{{8, 4, 2}, true};
        const bool ok = patch_spirv(module.words.data(), module.words.size(), module.info, patch, out, failure);
        allocations_left = -1;
        out.release();
        EXPECT_EQ(allocations_alive, before);
        if (ok) break;
        EXPECT_EQ(failure.code, kOutOfMemory);
        failures++;
    }
    EXPECT_EQ(failures, 3);  // ids, offsets of buffers, output
}

}  // namespace
