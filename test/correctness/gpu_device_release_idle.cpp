// halide_device_release may come at any time: before the first use, after work, twice, and with buffers still alive.
//
// It must make no context for its own sake, and afterwards everything starts afresh. A buffer that outlives it is dead:
// freeing it is harmless and must stay balanced, using it is an error, and neither crashes. Kernel states of pipelines
// compiled before stay in those pipelines and must be recognised as stale.
//
// Stock: fails with live buffers (freed or used memory records are touched after the release).

#include "support.h"

using namespace Halide;
using namespace vulkan_test;

namespace {

using Words = Runtime::Buffer<int32_t, 1>;

class GpuDeviceReleaseIdle : public ::testing::Test {
protected:
    Callable kernel = line_kernel(3);

    void use(int n = 500) {
        Words in(n), out(n);
        fill(in, [](const int *p) { return p[0]; });
        ASSERT_OK(kernel(in, n, out));
        ASSERT_OK(out.copy_to_host());
        ASSERT_TRUE(matches(out, [&](const int *p) { return p[0] * 3 + n; }));
    }
    static void release() { vulkan_interface()->device_release(nullptr, vulkan_interface()); }
    static bool initialized() { return runtime_call<bool()>("halide_vulkan_is_initialized")(); }
};

// Must stay the first test of this file.
TEST_F(GpuDeviceReleaseIdle, BeforeAnyUse) {
    EXPECT_FALSE(initialized());
    release();
    release();
    EXPECT_FALSE(initialized()) << "a release made a context";
    use();
    EXPECT_TRUE(initialized());
}

TEST_F(GpuDeviceReleaseIdle, TwiceAfterUse) {
    use();
    release();
    EXPECT_FALSE(initialized());
    release();
    EXPECT_FALSE(initialized());
    use();
}

TEST_F(GpuDeviceReleaseIdle, AgainAndAgain) {
    for (int i = 1; i <= 15; i++) {
        use(i * 7);
        release();
    }
    use();
}

// Nothing was copied back or synced: the release has to wait for the work itself.
// NVIDIA's driver can be loaded thirty times by a process and then no more; the last instance that goes unloads it.
TEST_F(GpuDeviceReleaseIdle, AFortyFirstTime) {
    for (int i = 0; i < 40; i++) {
        use(64);
        release();
        EXPECT_FALSE(initialized());
    }
    use(64);
}

// As if on such a GPU, see vulkan_anchor.h: one instance stays, and only one.
TEST_F(GpuDeviceReleaseIdle, OneInstanceStaysForADriverThatLoadsSeldom) {
    release();
    ASSERT_TRUE(hv_layer_limit("vendorID", 0x10de));
    use(64);
    release();
    const auto stays = hv_layer_live("VkInstance");  // libHalide's own too, if it has one
    EXPECT_GE(stays, 1);
    for (int i = 0; i < 5; i++) {
        int major = 0, minor = 0;
        EXPECT_EQ(vulkan_interface()->compute_capability(nullptr, &major, &minor), 0);
        EXPECT_EQ(hv_layer_live("VkInstance"), stays) << "looking needs an instance, too";
        use(64);
        EXPECT_EQ(hv_layer_live("VkInstance"), stays + 1);
        release();
        EXPECT_EQ(hv_layer_live(""), stays);
        EXPECT_EQ(hv_layer_left(), stays - 1) << "the tests know of one, and of no other object";
    }
    EXPECT_GT(hv_layer_instances(), 0u) << "the counting layer is not in use";
    hv_layer_clear();
}

// Asking for a device that is not there is nobody's work on a queue: what comes first then conflicts with nothing.
TEST_F(GpuDeviceReleaseIdle, TheFirstCommandNeedsNoBarrier) {
    release();
    EXPECT_EQ(runtime_call<int(void *, const halide_device_interface_t *)>("halide_device_sync_global")(
                  nullptr, vulkan_interface()),
              0);
    hv_layer_reset();
    Words in(500), out(500);
    fill(in, [](const int *p) { return p[0]; });
    ASSERT_OK(kernel(in, 5, out));
    ASSERT_OK(out.device_sync());
    EXPECT_GT(hv_layer_count_prefix("vkCmdDispatch"), 0u);
    EXPECT_EQ(hv_layer_count_prefix("vkCmdPipelineBarrier"),
              hv_layer_host_barriers() + hv_layer_count_prefix("vkCmdCopyBuffer"))
        << "only a launch behind a copied upload needs one";
}

TEST_F(GpuDeviceReleaseIdle, WithWorkInFlight) {
    for (int i = 0; i < 5; i++) {
        Words in(3000), out(3000);
        fill(in, [](const int *p) { return p[0]; });
        for (int k = 0; k < 30; k++) ASSERT_OK(kernel(in, k, out));
        in.device_free();
        out.device_free();
        release();
    }
    use();
}

TEST_F(GpuDeviceReleaseIdle, LiveBuffersMayBeFreedAfterwards) {
    std::vector<Words> buffers;
    for (int i = 1; i < 20; i++) {
        buffers.emplace_back(i * 50);
        fill(buffers.back(), [](const int *p) { return p[0]; });
        ASSERT_OK(buffers.back().copy_to_device(vulkan_interface()));
    }
    Words crop = buffers[5].cropped(0, 3, 20);
    release();
    use();
    // New memory lives where the old was; freeing the old must not take it.
    Words fresh(1000);
    fill(fresh, [](const int *p) { return p[0] * 9; });
    ASSERT_OK(fresh.copy_to_device(vulkan_interface()));
    crop = Words();
    for (Words &buffer : buffers) {
        EXPECT_EQ(buffer.device_free(), 0);
        EXPECT_FALSE(buffer.has_device_allocation());
    }
    std::fill(fresh.data(), fresh.data() + 1000, 0);
    fresh.set_device_dirty();
    ASSERT_OK(fresh.copy_to_host());
    EXPECT_TRUE(matches(fresh, [](const int *p) { return p[0] * 9; }));
    use();
}

TEST_F(GpuDeviceReleaseIdle, LiveBuffersMayNotBeUsedAfterwards) {
    Context context;
    const halide_device_interface_t *interface = vulkan_interface();
    Words buffer(300), other(300);
    fill(buffer, [](const int *p) { return p[0]; });
    ASSERT_OK(buffer.copy_to_device(interface));
    release();

    buffer.set_device_dirty();
    EXPECT_NE(interface->copy_to_host(context.raw(), buffer.raw_buffer()), 0);
    EXPECT_TRUE(one_message(context));
    context.clear();

    // A pipeline does this between two kernels: fresh memory would pass for the first one's result.
    EXPECT_NE(interface->device_malloc(context.raw(), buffer.raw_buffer(), interface), 0);
    EXPECT_TRUE(one_message(context));
    context.clear();

    buffer.set_device_dirty(false);
    other.fill(0);
    EXPECT_NE(kernel(context.jit(), buffer, 1, other), 0);
    EXPECT_TRUE(one_message(context));
    context.clear();

    EXPECT_NE(interface->buffer_copy(context.raw(), buffer.raw_buffer(), interface, other.raw_buffer()), 0);
    EXPECT_TRUE(one_message(context));
    context.clear();

    buffer.set_host_dirty();
    EXPECT_NE(interface->copy_to_device(context.raw(), buffer.raw_buffer(), interface), 0);
    EXPECT_TRUE(one_message(context));
    context.clear();

    EXPECT_EQ(interface->device_free(context.raw(), buffer.raw_buffer()), 0);
    EXPECT_EQ(context.all(), "");
    // After the free the same buffer may start again.
    ASSERT_OK(kernel(buffer, 2, other));
    ASSERT_OK(other.copy_to_host());
    EXPECT_TRUE(matches(other, [](const int *p) { return p[0] * 3 + 2; }));
    use();
}

// A context with pipelines of several blobs, some of which run again afterwards and some never.
TEST_F(GpuDeviceReleaseIdle, OldKernelStates) {
    std::vector<Callable> kernels;
    for (int i = 0; i < 4; i++) kernels.push_back(line_kernel(3));
    for (int round = 0; round < 3; round++) {
        for (int i = round; i < 4; i++) {
            Words in(100), out(100);
            fill(in, [](const int *p) { return p[0]; });
            ASSERT_OK(kernels[i](in, i, out));
            ASSERT_OK(out.copy_to_host());
            ASSERT_TRUE(matches(out, [&](const int *p) { return p[0] * 3 + i; }));
        }
        release();
    }
    kernels.clear();
    use();
}

TEST_F(GpuDeviceReleaseIdle, SyncAndTrimWithoutAContext) {
    release();
    auto *sync = runtime_call<int(void *, const halide_device_interface_t *)>("halide_device_sync_global");
    auto *trim = runtime_call<int(void *)>("halide_vulkan_release_unused_device_allocations");
    EXPECT_EQ(sync(nullptr, vulkan_interface()), 0);
    EXPECT_EQ(trim(nullptr), 0);
    use();
}

}  // namespace
