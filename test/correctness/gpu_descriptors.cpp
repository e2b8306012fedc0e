// Descriptors never run out: kernels of every number of buffers, launched in turn by the thousand, and drivers that
// refuse sets.
//
// On some drivers a pool whose counts are not sums over its sets is used up after a few launches, and one whose sets
// are freed singly fragments. Sets are made with a kernel's shape and used over and over; a refusal means that batches
// of that shape are shorter, and nobody sees it.
//
// Needs HL_VK_LAYERS=VK_LAYER_HALIDEVULKAN_count (CMakeLists.txt). Stock: the refused sets fail the launch.

#include "support.h"

using namespace Halide;
using namespace vulkan_test;

namespace {

using Words = Buffer<uint32_t>;

constexpr int kMostBuffers = 31;  // of one kernel, its output included
constexpr int kWords = 40;

class GpuDescriptors : public ::testing::Test {
protected:
    void SetUp() override {
        release();
        hv_layer_clear();
    }
    void TearDown() override {
        release();
        EXPECT_EQ(hv_layer_wrong_destroys(), 0u);
        hv_layer_clear();
    }
    // out = seed + x + the sum of count - 1 inputs, the k-th times k + 1. The k-th input holds k + 3 everywhere.
    struct Kernel {
        Func f;
        Param<uint32_t> seed{"seed"};
        std::vector<ImageParam> inputs;
    };
    // Compiled once for all tests, and never destroyed.
    struct Kernels {
        std::vector<Words> inputs;
        std::vector<Kernel> of = std::vector<Kernel>(kMostBuffers + 1);
        Kernels() {
            for (uint32_t k = 0; k + 1 < (uint32_t)kMostBuffers; k++) {
                inputs.emplace_back(kWords);
                inputs.back().fill(k + 3);
                inputs.back().set_host_dirty();
            }
            for (int count = 1; count <= kMostBuffers; count++) {
                Kernel &kernel = of[count];
                Var x("x"), xi("xi");
                Expr sum = kernel.seed + cast<uint32_t>(x);
                for (int k = 0; k < count - 1; k++) {
                    kernel.inputs.emplace_back(UInt(32), 1, "in" + std::to_string(k));
                    kernel.inputs.back().set(inputs[k]);
                    sum += kernel.inputs.back()(x) * Expr((uint32_t)k + 1);
                }
                kernel.f = Func("of_" + std::to_string(count));
                kernel.f(x) = sum;
                kernel.f.gpu_tile(x, xi, 8, TailStrategy::GuardWithIf);
            }
        }
    };
    static Kernels &kernels() {
        static Kernels *all = new Kernels;
        return *all;
    }
    // A device is released with nothing on it.
    static void release() {
        for (Words &input : kernels().inputs) {
            input.device_free();
            input.set_host_dirty();
        }
        vulkan_interface()->device_release(nullptr, vulkan_interface());
    }

    static uint32_t expected(int count, uint32_t seed, int x) {
        uint32_t sum = seed + (uint32_t)x;
        for (uint32_t k = 0; k + 1 < (uint32_t)count; k++) sum += (k + 3) * (k + 1);
        return sum;
    }
    int launch(int count, uint32_t seed, Words &out) {
        kernels().of[count].seed.set(seed);
        kernels().of[count].f.realize(out, gpu_target());  // throws where the runtime returns an error
        return 0;
    }
};

TEST_F(GpuDescriptors, FiveThousandLaunchesOfManyShapes) {
    std::vector<Words> outs;
    for (int count = 0; count <= kMostBuffers; count++) outs.emplace_back(kWords);
    for (uint32_t i = 0; i < 5000; i++) {
        const int count = 1 + (int)(i * 7 % kMostBuffers);
        ASSERT_OK(launch(count, i, outs[count]));
    }
    for (uint32_t i = 5000 - kMostBuffers; i < 5000; i++) {
        const int count = 1 + (int)(i * 7 % kMostBuffers);
        ASSERT_OK(outs[count].copy_to_host());
        ASSERT_TRUE(matches(outs[count], [&](const int *p) { return expected(count, i, p[0]); })) << count;
    }
}

// Every seventh call that allocates sets is refused, with each code that says "take another pool".
TEST_F(GpuDescriptors, EverySeventhAllocationIsRefused) {
    constexpr int kFragmentedPool = -12, kOutOfPoolMemory = -1000069000;  // VkResult
    for (const int result : {kFragmentedPool, kOutOfPoolMemory}) {
        release();
        const uint64_t failed = hv_layer_failed();
        uint64_t failed_now = failed;
        ASSERT_TRUE(hv_layer_fail("vkAllocateDescriptorSets", 7, result));
        Words outs[kMostBuffers + 1];
        for (int round = 0; round < 5; round++) {
            for (int count = 1; count <= kMostBuffers; count++) {
                if (round == 0) outs[count] = Words(kWords);
                ASSERT_OK(launch(count, (uint32_t)round, outs[count]));
                if (hv_layer_failed() == failed_now) continue;
                failed_now = hv_layer_failed();
                ASSERT_TRUE(hv_layer_fail("vkAllocateDescriptorSets", 7, result));
            }
        }
        EXPECT_GE(failed_now - failed, 10u) << "so many shapes are made anew";
        for (int count = 1; count <= kMostBuffers; count++) {
            ASSERT_OK(outs[count].copy_to_host());
            ASSERT_TRUE(matches(outs[count], [&](const int *p) { return expected(count, 4, p[0]); })) << count;
        }
    }
}

}  // namespace
