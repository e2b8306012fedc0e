// Nothing stays unsubmitted when the caller goes quiet.
//
// The runtime records commands into a batch that stays open while the GPU has enough to do. If the program then makes
// no further call, the batch must go to the GPU all the same. The counting layer tells: a batch is open while more
// command buffers were begun than ended. No runtime call is made while the test looks.
//
// Needs HL_VK_LAYERS=VK_LAYER_HALIDEVULKAN_count. Stock: passes (it submits every command and waits for it).

#include "support.h"

#include <chrono>
#include <thread>

using namespace Halide;
using namespace vulkan_test;

namespace {

using Words = Runtime::Buffer<uint32_t, 1>;

TEST(GpuQuietCaller, WhatIsOpenIsSubmitted) {
    Var x("x"), xi("xi");
    ImageParam input(UInt(32), 1, "input");
    Func f("f");
    Expr value = input(x);
    for (int i = 0; i < 10; i++) value = scramble(value);
    f(x) = value;
    f.gpu_tile(x, xi, 64, TailStrategy::GuardWithIf);
    Callable kernel = f.compile_to_callable({input}, gpu_target());
    Words a(20000), b(20000);
    a.fill(1);
    a.set_host_dirty();
    ASSERT_OK(kernel(a, b));
    ASSERT_OK(b.device_sync());

    for (int round = 0; round < 5; round++) {
        hv_layer_reset();
        for (int i = 0; i < 100; i++) ASSERT_OK(kernel(a, b));
        ASSERT_EQ(hv_layer_count("vkCmdDispatch"), 100u);
        const auto begin = std::chrono::steady_clock::now();
        // 20 ms is what it takes; a loaded machine may need longer. What must not happen is that it never comes.
        while (hv_layer_count("vkBeginCommandBuffer") != hv_layer_count("vkEndCommandBuffer") ||
               hv_layer_count("vkQueueSubmit") != hv_layer_count("vkEndCommandBuffer")) {
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
            ASSERT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20)) << "a batch stayed open";
        }
        const uint64_t submits = hv_layer_count("vkQueueSubmit");
        ASSERT_OK(b.device_sync());
        EXPECT_EQ(hv_layer_count("vkQueueSubmit"), submits) << "the sync still had something to submit";
    }
    ASSERT_OK(b.copy_to_host());
}

}  // namespace
