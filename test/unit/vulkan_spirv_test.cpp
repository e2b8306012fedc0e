// The SPIR-V reader: what it finds in kernels of Halide and in hand-made ones, and that damage is survived.

#include <random>

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

// One kernel of a blob, as words of its own.
Words kernel_words(const std::string &name, size_t which = 0) {
    const Words words = blob_words(name);
    Blob blob;
    Failure failure;
    Words kernel;
    if (parse_blob(words.data(), words.size() * 4, blob, failure) && which < blob.kernels.size()) {
        kernel.assign(blob.kernels[which].spirv, blob.kernels[which].spirv + blob.kernels[which].spirv_words);
    }
    blob.release();
    return kernel;
}

Words main_style_words() { return assemble(read_file(source_folder() + "data/main_style.spvasm")); }

// What the reader says, in one line.
std::string read(const Words &words) {
    const Exact copy(words.data(), words.size());
    SpirvInfo info;
    Failure failure;
    if (!read_spirv(copy.get(), words.size(), info, failure)) {
        EXPECT_TRUE(failure.failed());
        EXPECT_TRUE(info.uniform_offsets.empty() && info.buffers.empty());
        return std::string("refused: ") + failure.message;
    }
    EXPECT_FALSE(failure.failed());
    EXPECT_EQ(info.relocatable, info.why_not == nullptr);
    std::string text = "size";
    for (int i = 0; i < 3; i++) {
        text += " " + std::to_string(info.local_size[i]);
        if (info.local_size_ids[i]) text += "(id " + std::to_string(info.local_size_ids[i]) + ")";
    }
    text += info.local_size_is_ids ? " by ids, uniform" : ", uniform";
    for (uint32_t offset : info.uniform_offsets) text += " " + std::to_string(offset);
    text += ", buffers";
    for (const SpirvBuffer &buffer : info.buffers) {
        text += " " + std::to_string(buffer.binding) + "/" + std::to_string(buffer.array_stride);
        text += buffer.written ? "w" : "r";
    }
    if (!info.relocatable) text += std::string(", fixed: ") + info.why_not;
    info.release();
    return text;
}

bool contains(const std::string &text, const std::string &part) { return text.find(part) != std::string::npos; }

TEST(Spirv, ReadsKernelsOfHalide) {
    EXPECT_EQ(read(kernel_words("grid3")),
              "size 8 4 2, uniform 0 4 8 12 16 20 24 28 32 36 40 44 48 52 56 60 64 68, buffers 1/4r 2/4w");
    EXPECT_EQ(read(kernel_words("copy_u8")),
              "size 16 8 1, uniform 0 4 8 12 16 20 24 28 32 36 40 44, buffers 1/1w 2/1r");
    EXPECT_EQ(read(kernel_words("vec")), "size 16 1 1, uniform, buffers 0/16w 1/16r");
    EXPECT_EQ(read(kernel_words("gather")), "size 16 1 1, uniform, buffers 0/16w 1/4r");
    EXPECT_EQ(read(kernel_words("multi", 0)), "size 16 8 1, uniform 0 4 8 12 16 20 24, buffers 1/4w 2/4r");
    EXPECT_EQ(read(kernel_words("multi", 1)), "size 16 8 1, uniform 0 4 8 12 16 20 24, buffers 1/4w 2/4r");
    EXPECT_EQ(read(kernel_words("dynshared")), "size 1(id 2) 4(id 3) 1(id 4) by ids, uniform 0 4 8 12 16 20 24 28 32, "
                                               "buffers 1/4w 2/4r");
    EXPECT_EQ(read(kernel_words("dyny")), "size 16 1 1, uniform 0 4 8 12 16 20 24 28 32 36 40 44, buffers 1/4w 2/4r");
    EXPECT_EQ(read(kernel_words("large")), "size 16 8 1, uniform 0 8 16 20 24 28 32 36 40, buffers 1/4w 2/4r");
}

TEST(Spirv, ReadsAKernelOfHalideMain) {
    // Three members for one scalar and two buffers: the caller sees that offsets are asked for.
    EXPECT_EQ(read(main_style_words()), "size 8 1 1, uniform 0 4 8, buffers 1/4w 2/4r");
}

// What a device must have beyond plain Vulkan: by capability, and by what buffers hold.
TEST(Spirv, KnowsWhatADeviceMustHave) {
    const auto features = [](const Words &words) {
        SpirvInfo info;
        Failure failure;
        EXPECT_TRUE(read_spirv(words.data(), words.size(), info, failure)) << failure.message;
        const uint32_t found = info.features;
        info.release();
        char text[512];
        Text told(text, sizeof(text));
        tell_features(found, told);
        return std::string(text);
    };
    EXPECT_EQ(features(kernel_words("grid3")), "");
    EXPECT_EQ(features(kernel_words("large")), "64-bit integers (shaderInt64)");
    EXPECT_EQ(features(kernel_words("copy_u8")),
              "8-bit integers (shaderInt8), 8-bit values in buffers (storageBuffer8BitAccess)");
    // Computes with 16 bits, and keeps 32 in its buffers.
    EXPECT_EQ(features(kernel_words("vec")), "16-bit integers (shaderInt16)");
    SmallKernel many;
    many.capabilities += "OpCapability Float64\nOpCapability Float16\nOpCapability Int64Atomics\nOpCapability Int64\n"
                         "OpCapability UniformAndStorageBuffer16BitAccess\nOpCapability StorageBuffer8BitAccess\n";
    EXPECT_EQ(features(many.words()),
              "64-bit floats (shaderFloat64), 64-bit integers (shaderInt64), 16-bit floats (shaderFloat16), "
              "16-bit values in buffers (storageBuffer16BitAccess), 8-bit values in buffers (storageBuffer8BitAccess), "
              "64-bit atomics (shaderBufferInt64Atomics)");
}

TEST(Spirv, KnowsTheEntryPoint) {
    const Words words = kernel_words("vec");
    SpirvInfo info;
    Failure failure;
    ASSERT_TRUE(read_spirv(words.data(), words.size(), info, failure)) << failure.message;
    EXPECT_STREQ(info.entry_point, "_kernel_f_s0_x_xo_block_id_x");
    info.release();
}

TEST(Spirv, ReadsASmallKernel) { EXPECT_EQ(read(SmallKernel().words()), "size 4 2 1, uniform, buffers 0/4r 1/4w"); }

// a, at binding 0, is only read by the small kernel. Each of these lines may write it.
TEST(Spirv, ABufferIsWrittenUnlessProvenOtherwise) {
    const struct {
        const char *what, *globals, *body, *functions;
    } uses[] = {
        {"store", "", "OpStore %from %value\n", ""},
        {"copy memory", "", "OpCopyMemory %from %to\n", ""},
        {"a copied pointer", "", "%p = OpCopyObject %pointer_float %from\nOpStore %p %value\n", ""},
        {"a pointer by choice", "%true = OpConstantTrue %bool\n",
         "%p = OpSelect %pointer_float %true %from %to\nOpStore %p %value\n", ""},
        {"a call with a pointer", "%taking = OpTypeFunction %void %pointer_float\n",
         "%r = OpFunctionCall %void %taker %from\n",
         "%taker = OpFunction %void None %taking\n%p = OpFunctionParameter %pointer_float\n%l = OpLabel\n"
         "OpStore %p %zero_float\nOpReturn\nOpFunctionEnd\n"},
        {"a call with the buffer", "%taking = OpTypeFunction %void %pointer_block\n",
         "%r = OpFunctionCall %void %taker %a\n",
         "%taker = OpFunction %void None %taking\n%p = OpFunctionParameter %pointer_block\n%l = OpLabel\n"
         "%q = OpAccessChain %pointer_float %p %zero %zero\nOpStore %q %zero_float\nOpReturn\nOpFunctionEnd\n"},
        {"an atomic", "", "%old = OpAtomicExchange %float %from %one %zero %value\n", ""},
        {"a built-in function", "", "%frac = OpExtInst %float %std Modf %value %from\n", ""},
        {"arithmetic with a pointer", "", "%p = OpPtrAccessChain %pointer_float %from %one\n", ""},
    };
    for (const auto &use : uses) {
        SmallKernel kernel;
        if (contains(use.body, "%std")) kernel.capabilities += "%std = OpExtInstImport \"GLSL.std.450\"\n";
        kernel.globals = std::string("%zero_float = OpConstant %float 0\n") + use.globals;
        kernel.body += use.body;
        kernel.functions = use.functions;
        EXPECT_TRUE(contains(read(kernel.words()), "buffers 0/4w 1/4w")) << use.what << ": " << read(kernel.words());
    }
}

TEST(Spirv, AComponentOfAVectorIsFollowed) {
    SmallKernel kernel;
    kernel.decorations = "OpDecorate %array4 ArrayStride 16\nOpDecorate %block4 BufferBlock\n"
                         "OpMemberDecorate %block4 0 Offset 0\n"
                         "OpDecorate %c DescriptorSet 0\nOpDecorate %c Binding 2\n";
    kernel.globals = "%float4 = OpTypeVector %float 4\n%array4 = OpTypeRuntimeArray %float4\n"
                     "%block4 = OpTypeStruct %array4\n%pointer_block4 = OpTypePointer Uniform %block4\n"
                     "%pointer_float4 = OpTypePointer Uniform %float4\n%c = OpVariable %pointer_block4 Uniform\n";
    const std::string read_only = kernel.body + "%v = OpAccessChain %pointer_float4 %c %zero %x\n"
                                                "%e = OpAccessChain %pointer_float %v %one\n%l = OpLoad %float %e\n";
    kernel.body = read_only;
    EXPECT_EQ(read(kernel.words()), "size 4 2 1, uniform, buffers 0/4r 1/4w 2/16r");
    kernel.body = read_only + "OpStore %e %value\n";
    EXPECT_EQ(read(kernel.words()), "size 4 2 1, uniform, buffers 0/4r 1/4w 2/16w");
}

TEST(Spirv, StorageBuffersOfTheNewerFormAreRead) {
    SmallKernel kernel;
    std::string text = kernel.text();
    for (size_t at; (at = text.find("BufferBlock")) != std::string::npos;) text.replace(at, 11, "Block");
    for (size_t at; (at = text.find(" Uniform")) != std::string::npos;) text.replace(at, 8, " StorageBuffer");
    const Words words = assemble(text, "spv1.3");
    EXPECT_EQ(validate(words.data(), words.size(), "vulkan1.1"), "");
    EXPECT_EQ(read(words), "size 4 2 1, uniform, buffers 0/4r 1/4w");
}

TEST(Spirv, SaysWhyAKernelCannotBeRelocated) {
    SmallKernel grid;
    grid.group_id = "GlobalInvocationId";
    EXPECT_TRUE(contains(read(grid.words()), "fixed: it reads a built-in that depends on the whole grid"));
    grid.group_id = "NumWorkgroups";
    EXPECT_TRUE(contains(read(grid.words()), "fixed: it reads a built-in that depends on the whole grid"));

    SmallKernel push;
    push.decorations = "OpDecorate %pushed Block\nOpMemberDecorate %pushed 0 Offset 0\n";
    push.globals = "%pushed = OpTypeStruct %uint\n%pointer_pushed = OpTypePointer PushConstant %pushed\n"
                   "%p = OpVariable %pointer_pushed PushConstant\n";
    EXPECT_TRUE(contains(read(push.words()), "fixed: it has push constants already"));

    SmallKernel call;
    call.body += "%r = OpFunctionCall %void %other\n";
    call.functions = "%other = OpFunction %void None %function\n%l = OpLabel\nOpReturn\nOpFunctionEnd\n";
    EXPECT_TRUE(contains(read(call.words()), "fixed: it has more than one function"));

    SmallKernel component;
    component.globals = "%pointer_uint = OpTypePointer Input %uint\n";
    component.body += "%which = OpAccessChain %pointer_uint %group %x\n%w = OpLoad %uint %which\n";
    EXPECT_TRUE(contains(read(component.words()), "fixed: the group id is indexed in an unexpected way"));

    SmallKernel length;
    length.body += "%n = OpArrayLength %uint %a 0\n";
    EXPECT_EQ(read(length.words()),
              "size 4 2 1, uniform, buffers 0/4w 1/4w, fixed: a buffer is used other than by its elements");

    SmallKernel narrow;
    narrow.capabilities += "OpCapability Int16\n";
    narrow.globals = "%ushort = OpTypeInt 16 0\n";
    narrow.body += "%i = OpUConvert %ushort %x\n%e = OpAccessChain %pointer_float %a %zero %i\n";
    EXPECT_TRUE(contains(read(narrow.words()), "fixed: an index is not known to be an integer of 32 or 64 bits"));

    SmallKernel shared_binding;
    shared_binding.decorations = "OpDecorate %c DescriptorSet 0\nOpDecorate %c Binding 0\n";
    shared_binding.globals = "%c = OpVariable %pointer_block Uniform\n";
    shared_binding.body += "%e = OpAccessChain %pointer_float %c %zero %x\nOpStore %e %value\n";
    EXPECT_EQ(read(shared_binding.words()),
              "size 4 2 1, uniform, buffers 0/4w 1/4w, fixed: two variables share a binding");
}

TEST(Spirv, FindsTheLocalSizeInAConstant) {
    SmallKernel kernel;
    kernel.decorations = "OpDecorate %size BuiltIn WorkgroupSize\nOpDecorate %sy SpecId 7\n";
    kernel.globals = "%sx = OpConstant %uint 32\n%sy = OpSpecConstant %uint 5\n"
                     "%size = OpSpecConstantComposite %uint3 %sx %sy %one\n";
    EXPECT_EQ(read(kernel.words()), "size 32 5(id 7) 1 by ids, uniform, buffers 0/4r 1/4w");
}

TEST(Spirv, RefusesWhatALaunchCouldNotServe) {
    const auto refused = [](const SmallKernel &kernel, const char *why) {
        const std::string text = read(kernel.words());
        EXPECT_TRUE(contains(text, "refused") && contains(text, why)) << text;
    };
    SmallKernel k;
    k.entry_point += "OpEntryPoint GLCompute %main \"twin\" %group\n";
    refused(k, "one compute entry point expected");
    k = SmallKernel();
    k.entry_point = "OpEntryPoint Vertex %main \"small\" %group\n";
    refused(k, "one compute entry point expected");
    k = SmallKernel();
    k.modes = "";
    refused(k, "the local size is 0 0 0");
    k = SmallKernel();
    k.decorations = "OpDecorate %c DescriptorSet 0\nOpDecorate %c Binding 2\n";
    k.globals = "%uniforms = OpTypeStruct %float\n%pointer_uniforms = OpTypePointer Uniform %uniforms\n"
                "%c = OpVariable %pointer_uniforms Uniform\n";
    refused(k, "is not the one block at binding 0");
    k.decorations = "OpDecorate %c DescriptorSet 1\nOpDecorate %c Binding 0\n";
    refused(k, "has no binding in descriptor set 0");
    k.decorations = "OpDecorate %uniforms Block\nOpDecorate %c DescriptorSet 0\nOpDecorate %c Binding 0\n";
    refused(k, "member 0 of the uniform block has no offset");
    k.decorations += "OpMemberDecorate %uniforms 0 Offset 0\n";
    refused(k, "binding 0 is both");
    k = SmallKernel();
    k.capabilities += "OpCapability Addresses\n";
    k.memory_model = "OpMemoryModel Physical32 OpenCL\n";
    refused(k, "addressing model");
    k = SmallKernel();
    k.decorations = "OpDecorate %c DescriptorSet 0\nOpDecorate %c Binding 2\n";
    k.globals = "%sampler = OpTypeSampler\n%pointer_sampler = OpTypePointer UniformConstant %sampler\n"
                "%c = OpVariable %pointer_sampler UniformConstant\n";
    refused(k, "only uniform and storage buffers are supported");
    k = SmallKernel();
    k.decorations = "OpDecorate %all RelaxedPrecision\n%all = OpDecorationGroup\nOpGroupDecorate %all %a\n";
    refused(k, "decoration groups");
}

TEST(Spirv, RefusesABadHeader) {
    const Words words = kernel_words("vec");
    const struct {
        size_t at;
        uint32_t value;
    } damages[] = {{0, 1}, {1, 0x00010700u}, {1, 0}, {3, 0}, {3, kMaxSpirvBound + 1}, {3, 5}};
    for (const auto &damage : damages) {
        Words damaged = words;
        damaged[damage.at] = damage.value;
        EXPECT_TRUE(contains(read(damaged), "refused: Vulkan: damaged SPIR-V at word")) << read(damaged);
    }
    Failure failure;
    SpirvInfo info;
    EXPECT_FALSE(read_spirv(nullptr, 0, info, failure));
}

// Reads damaged words and, where they are taken, patches them. Nothing may be read outside of them.
bool read_and_patch(const Words &words) {
    const Exact copy(words.data(), words.size());
    SpirvInfo info;
    Failure failure;
    const bool ok = read_spirv(copy.get(), words.size(), info, failure);
    EXPECT_EQ(ok, !failure.failed());
    if (ok) {
        for (const bool relocate : {false, true}) {
            Array<uint32_t> out;
            Failure why;
            const bool patched = patch_spirv(copy.get(), words.size(), info, {{1, 2, 3}, relocate}, out, why);
            EXPECT_EQ(patched, !why.failed());
            EXPECT_EQ(patched, !out.empty());
            EXPECT_TRUE(relocate || patched) << why.message;
            out.release();
        }
    }
    info.release();
    return ok;
}

TEST(Spirv, SurvivesACutAnywhere) {
    for (const char *name : kBlobs) {
        const Words words = kernel_words(name);
        ASSERT_FALSE(words.empty());
        int taken = 0;
        for (size_t n = 0; n < words.size(); n++) {
            taken += read_and_patch(Words(words.begin(), words.begin() + (ptrdiff_t)n));
        }
        // A cut between two instructions of the function leaves a module the reader can make sense of.
        EXPECT_LT((size_t)taken, words.size() / 2) << name;
        EXPECT_TRUE(read_and_patch(words));
    }
}

TEST(Spirv, SurvivesRandomDamage) {
    std::mt19937 random(30);
    std::vector<Words> kernels;
    for (const char *name : kBlobs) kernels.push_back(kernel_words(name));
    kernels.push_back(main_style_words());
    int taken = 0, rounds = 0;
    for (const Words &words : kernels) {
        for (int round = 0; round < 1500; round++, rounds++) {
            Words damaged = words;
            for (uint32_t n = 1 + random() % 4; n > 0; n--) {
                uint32_t &word = damaged[random() % damaged.size()];
                switch (random() % 5) {
                case 0: word ^= 1u << (random() % 32); break;
                case 1: word = random(); break;
                case 2: word = random() % words[3]; break;
                case 3: word = (word & 0xffff0000u) | random() % 260; break;
                default: word = damaged[random() % damaged.size()]; break;
                }
            }
            taken += read_and_patch(damaged);
        }
    }
    EXPECT_GT(taken, rounds / 100);
    EXPECT_LT(taken, rounds);
}

TEST(Spirv, ReportsMemoryThatIsOut) {
    const Words words = kernel_words("grid3");
    int failures = 0;
    for (int allowed = 0;; allowed++) {
        SpirvInfo info;
        Failure failure;
        allocations_left = allowed;
        const bool ok = read_spirv(words.data(), words.size(), info, failure);
        allocations_left = -1;
        info.release();
        EXPECT_EQ(allocations_alive, 0);
        if (ok) break;
        EXPECT_EQ(failure.code, kOutOfMemory);
        failures++;
    }
    EXPECT_EQ(failures, 3);  // ids, uniform offsets, buffers
}

}  // namespace
