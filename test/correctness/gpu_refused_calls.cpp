// The driver refuses: every fallible call that the runtime makes fails, once or for good, and what follows is right.
//
// The counting layer stands in front of the driver and returns an error in its place. For each call: the pipeline fails
// with exactly one message (or copes, and is right), nothing is left behind (the layer's ledger is empty after a
// release), nothing is destroyed twice, and the next pipeline works. A refused submission gives back its slot, its
// staging and its descriptor sets: a hundred of them in a row leave the runtime as it was. A lost device is told once
// to each call, without asking the driver again, until halide_device_release.
//
// Needs HL_VK_LAYERS=VK_LAYER_HALIDEVULKAN_count (CMakeLists.txt). Stock: fails (leaks, aborts, several messages).

#include "support.h"

using namespace Halide;
using namespace vulkan_test;

namespace {

using Words = Runtime::Buffer<int32_t, 1>;

constexpr int kOutOfHostMemory = -1, kOutOfDeviceMemory = -2, kDeviceLost = -4;  // VkResult

class GpuRefusedCalls : public ::testing::Test {
protected:
    Context context;

    void SetUp() override {
        release();
        hv_layer_clear();
    }
    void TearDown() override { hv_layer_clear(); }

    static void release() { vulkan_interface()->device_release(nullptr, vulkan_interface()); }

    // Upload, launch, download; a fresh pipeline, so that kernels are compiled as well. 0, or the first error code.
    int run(int n = 3000) {
        Callable kernel = line_kernel(2);
        Words in(n), out(n);
        fill(in, [](const int *p) { return p[0]; });
        int code = kernel(context.jit(), in, 5, out);
        if (code == 0) code = out.copy_to_host(context.raw());
        if (code == 0) {
            EXPECT_TRUE(matches(out, [](const int *p) { return p[0] * 2 + 5; }));
        }
        // Frees never report what went wrong before.
        const size_t messages = context.errors.size();
        in.device_free(context.raw());
        out.device_free(context.raw());
        EXPECT_EQ(context.errors.size(), messages) << context.all();
        return code;
    }
    void fails_or_copes(const std::string &call) {
        context.clear();
        const int code = run();
        if (code == 0) {
            EXPECT_TRUE(context.errors.empty()) << call << ": " << context.all();
        } else {
            EXPECT_LT(code, 0) << call;
            EXPECT_TRUE(one_message(context)) << call;
        }
    }
    void works() {
        context.clear();
        ASSERT_EQ(run(), 0) << context.all();
    }
    static void nothing_is_left(const std::string &call) {
        release();
        EXPECT_EQ(hv_layer_left(), 0) << call;
        EXPECT_EQ(hv_layer_wrong_destroys(), 0u) << call;
    }
};

const char *const kFallible[] = {
    "vkCreateInstance",
    "vkEnumeratePhysicalDevices",
    "vkEnumerateDeviceExtensionProperties",
    "vkCreateDevice",
    "vkCreateFence",
    "vkCreateCommandPool",
    "vkAllocateCommandBuffers",
    "vkCreateBuffer",
    "vkAllocateMemory",
    "vkBindBufferMemory",
    "vkMapMemory",
    "vkCreatePipelineCache",
    "vkCreateDescriptorSetLayout",
    "vkCreatePipelineLayout",
    "vkCreateDescriptorPool",
    "vkAllocateDescriptorSets",
    "vkCreateShaderModule",
    "vkCreateComputePipelines",
    "vkResetFences",
    "vkResetCommandPool",
    "vkBeginCommandBuffer",
    "vkEndCommandBuffer",
    "vkQueueSubmit",
    "vkWaitForFences",
    "vkGetFenceStatus",
};

TEST_F(GpuRefusedCalls, ForGood) {
    for (const char *call : kFallible) {
        ASSERT_TRUE(hv_layer_fail(call, -1, kOutOfDeviceMemory)) << call;
        fails_or_copes(call);
        fails_or_copes(call);
        hv_layer_clear();
        works();
        nothing_is_left(call);
    }
}

TEST_F(GpuRefusedCalls, TheNthTime) {
    for (const char *call : kFallible) {
        for (int nth : {1, 2, 3, 9, 17}) {
            const uint64_t before = hv_layer_failed();
            ASSERT_TRUE(hv_layer_fail(call, nth, kOutOfHostMemory)) << call;
            fails_or_copes(call);
            const bool reached = hv_layer_failed() > before;
            hv_layer_clear();
            works();
            nothing_is_left(call);
            if (!reached) break;
        }
    }
}

TEST_F(GpuRefusedCalls, SubmitsGiveEverythingBack) {
    works();
    const int64_t live = hv_layer_live("");
    for (int i = 0; i < 100; i++) {
        ASSERT_TRUE(hv_layer_fail("vkQueueSubmit", -1, kOutOfDeviceMemory));
        fails_or_copes("vkQueueSubmit");
    }
    hv_layer_clear();
    for (int i = 0; i < 40; i++) works();
    // Pipelines and kernel layouts are kept; slots, staging and memory are the same.
    EXPECT_EQ(hv_layer_live("VkFence") + hv_layer_live("VkSemaphore"), hv_layer_live("VkSemaphore") ? 1 : 16);
    EXPECT_EQ(hv_layer_live("VkCommandPool"), 16);
    EXPECT_LE(hv_layer_live("VkDeviceMemory"), live);
    nothing_is_left("vkQueueSubmit");
}

TEST_F(GpuRefusedCalls, ALostDeviceIsToldUntilReleased) {
    works();
    ASSERT_TRUE(hv_layer_fail("vkQueueSubmit", 1, kDeviceLost));
    context.clear();
    // Large enough to go through a submit of its own.
    EXPECT_LT(run(2000000), 0);
    EXPECT_TRUE(one_message(context, {"VK_ERROR_DEVICE_LOST"}));
    hv_layer_clear();
    for (int i = 0; i < 3; i++) {
        hv_layer_reset();
        context.clear();
        EXPECT_LT(run(), 0);
        EXPECT_TRUE(one_message(context, {"lost"}));
        EXPECT_EQ(hv_layer_count("vkQueueSubmit"), 0u);
    }
    release();
    works();
    nothing_is_left("a lost device");
}

// A buffer whose writer was refused does not pass for right; written anew, it is good again.
TEST_F(GpuRefusedCalls, LostContentsAreNotHandedOut) {
    Var x("x"), xi("xi");
    ImageParam input(Int(32), 1, "input");
    Func f("f");
    f(x) = input(x) + 1;
    f.gpu_tile(x, xi, 32, TailStrategy::GuardWithIf);
    Callable kernel = f.compile_to_callable({input}, gpu_target());
    Words in(500), out(500);
    fill(in, [](const int *p) { return p[0]; });
    ASSERT_OK(kernel(in, out));
    ASSERT_OK(out.copy_to_host());
    ASSERT_TRUE(hv_layer_fail("vkQueueSubmit", -1, kOutOfHostMemory));
    context.clear();
    // Refused at once, or when the copy submits it.
    int code = kernel(context.jit(), in, out);
    if (code == 0) code = out.copy_to_host(context.raw());
    EXPECT_LT(code, 0);
    hv_layer_clear();
    out.set_device_dirty();
    context.clear();
    EXPECT_LT(out.copy_to_host(context.raw()), 0);
    EXPECT_TRUE(one_message(context, {"lost"}));
    out.set_device_dirty(false);
    context.clear();
    ASSERT_OK(kernel(in, out));
    ASSERT_OK(out.copy_to_host());
    EXPECT_TRUE(matches(out, [](const int *p) { return p[0] + 1; }));
}

}  // namespace
