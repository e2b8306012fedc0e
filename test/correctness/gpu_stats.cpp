// halide_vulkan_get_stats: every field by value, for a program whose commands are counted by hand.
//
// Needs HL_VK_LAYERS=VK_LAYER_HALIDEVULKAN_count, for what the driver was asked, and HL_VK_DIRECT=0, so that every copy
// is a command. With HL_VK_FLUSH=count what is submitted when does not depend on time. Stock: fails (no such function).

#include "support.h"

#include "../../src/runtime/halide_vulkan_stats.h"

#include <chrono>
#include <thread>

using namespace Halide;
using namespace vulkan_test;

namespace {

using Words = Runtime::Buffer<uint32_t, 1>;
constexpr size_t kVersion1 = 312, kVersion2 = 608;

class GpuStats : public ::testing::Test {
protected:
    Callable kernel = compile();
    int (*get)(void *, halide_vulkan_stats *,
               size_t) = runtime_call<int(void *, halide_vulkan_stats *, size_t)>("halide_vulkan_get_stats");

    void SetUp() override { use("count"); }
    void TearDown() override {
        hv_layer_clear();
        unsetenv("HL_VK_FLUSH");
    }
    // A fresh context.
    static void use(const char *flush) {
        vulkan_interface()->device_release(nullptr, vulkan_interface());
        setenv("HL_VK_FLUSH", flush, 1);
        hv_layer_reset();
    }
    static Callable compile() {
        Var x("x"), xi("xi");
        ImageParam p(UInt(32), 1, "p");
        Func f("f");
        f(x) = p(x) + 1;
        f.gpu_tile(x, xi, 32, TailStrategy::GuardWithIf);
        return f.compile_to_callable({p}, gpu_target());
    }
    halide_vulkan_stats stats() {
        halide_vulkan_stats s;
        std::memset(&s, 0xEE, sizeof(s));
        EXPECT_EQ(get(nullptr, &s, sizeof(s)), 0);
        return s;
    }
};

TEST_F(GpuStats, WithoutADeviceNothingIsMadeOrWritten) {
    halide_vulkan_stats s;
    std::memset(&s, 0xEE, sizeof(s));
    EXPECT_EQ(get(nullptr, &s, sizeof(s)), halide_error_code_device_interface_no_device);
    for (size_t i = 0; i < sizeof(s); i++) ASSERT_EQ(((const uint8_t *)&s)[i], 0xEE);
    EXPECT_EQ(hv_layer_count_prefix("vk"), 0u);
}

TEST_F(GpuStats, CountedByHand) {
    Words a(64), b(64), c(64), d(64);
    fill(a, [](const int *p) { return p[0]; });
    {
        // Once before, so that it is known that nobody else is on the queue: otherwise the first command gets a
        // barrier.
        Words warm_up(64);
        ASSERT_OK(kernel(a, warm_up));
        ASSERT_OK(warm_up.device_sync());
    }
    const halide_vulkan_stats before = stats();
    EXPECT_EQ(before.commands, 2u);
    EXPECT_EQ(before.submissions, 1u);
    hv_layer_reset();
    fill(a, [](const int *p) { return p[0]; });
    ASSERT_OK(kernel(a, b));  // an upload, which nothing is before; a kernel that reads it
    ASSERT_OK(kernel(a, c));  // reads what is read
    ASSERT_OK(kernel(b, d));  // reads what was written
    halide_vulkan_stats s = stats();
    EXPECT_EQ(s.version, (uint64_t)HALIDE_VULKAN_STATS_VERSION);
    EXPECT_EQ(s.struct_bytes, sizeof(s));
    EXPECT_NE(std::string(s.device_name), "");
    EXPECT_EQ(s.submissions, 1u);
    EXPECT_EQ(s.commands, 2u) << "they count when they are submitted";
    EXPECT_EQ(s.barriers - before.barriers, 2u);
    EXPECT_EQ(s.barriers_spared - before.barriers_spared, 2u);
    EXPECT_GE(s.staging_bytes, 256u) << "the upload is on its way";
    EXPECT_LE(s.staging_bytes, 4096u);
    EXPECT_EQ(s.waits, 1u);
    EXPECT_EQ(s.wait_ns, before.wait_ns);
    EXPECT_EQ(s.pipelines, 1u);
    EXPECT_GT(s.pipeline_ns, 0u);

    ASSERT_OK(d.copy_to_host());  // reads what was written, is submitted and waited for
    EXPECT_TRUE(matches(d, [](const int *p) { return p[0] + 2; }));
    s = stats();
    EXPECT_EQ(s.commands, 2u + 5u);
    EXPECT_EQ(s.submissions, 2u);
    EXPECT_EQ(s.batches, 2u);
    EXPECT_EQ(s.in_flight, 0u);
    EXPECT_EQ(s.barriers - before.barriers, 3u);
    EXPECT_EQ(s.barriers_spared - before.barriers_spared, 2u);
    EXPECT_EQ(s.waits, 2u);
    const bool polled = !hv_layer_is_cpu();
    EXPECT_EQ(s.waits_blocked, polled ? 1u : 2u) << "a CPU device is never polled";
    EXPECT_GT(s.wait_ns, before.wait_ns);
    EXPECT_EQ(s.staging_bytes, 0u);
    EXPECT_EQ(s.staging_reserved_bytes, 4u << 20);
    EXPECT_EQ(s.submissions_by_flusher, 0u);
    EXPECT_EQ(s.submissions_refused, 0u);
    EXPECT_EQ(s.memory_blocks, 1u);
    EXPECT_EQ(s.reserved_bytes, 16u << 20);
    // The driver was asked the same. (One barrier more: to the host, before the download is read.)
    EXPECT_EQ(hv_layer_count("vkQueueSubmit"), 1u);
    EXPECT_EQ(hv_layer_count("vkCmdPipelineBarrier"), 3u + 1u);
    EXPECT_EQ(hv_layer_count("vkCreateComputePipelines"), 0u);
    EXPECT_EQ(hv_layer_count("vkWaitForFences") + hv_layer_count("vkWaitSemaphores"), polled ? 0u : 1u);

    // Four buffers of one size; and one that needs a block of its own.
    EXPECT_GE(s.used_bytes, 4 * 256u);
    const uint64_t one = s.used_bytes / 4;
    ASSERT_OK(b.device_free());
    EXPECT_EQ(stats().used_bytes, 3 * one);
    Words large(nullptr, (20 << 20) / 4);
    ASSERT_OK(large.device_malloc(vulkan_interface()));
    s = stats();
    EXPECT_EQ(s.used_bytes, 3 * one + (20u << 20));
    EXPECT_EQ(s.memory_blocks, 2u);
    EXPECT_EQ(s.reserved_bytes, (16u << 20) + (20u << 20));
    EXPECT_EQ(hv_layer_count("vkQueueSubmit"), 1u);

    // A submission of one command is no batch.
    ASSERT_OK(c.copy_to_host());
    s = stats();
    EXPECT_EQ(s.submissions, 3u);
    EXPECT_EQ(s.batches, 2u);
    EXPECT_EQ(s.commands, 8u);
    EXPECT_EQ(s.waits, 3u);
}

TEST_F(GpuStats, OlderAndNewerCallers) {
    Words a(64), b(64);
    fill(a, [](const int *p) { return p[0]; });
    ASSERT_OK(kernel(a, b));
    ASSERT_OK(b.copy_to_host());
    EXPECT_EQ(offsetof(halide_vulkan_stats, pipelines), kVersion1) << "the struct of version 1 has changed";
    EXPECT_EQ(offsetof(halide_vulkan_stats, version), kVersion2) << "the struct of version 2 has changed";
    struct {
        halide_vulkan_stats known;
        uint8_t more[64];
    } s;
    // Each size writes just so much, and the same as any other.
    const halide_vulkan_stats all = stats();
    for (size_t bytes : {(size_t)0, (size_t)8, kVersion1, kVersion2, kVersion2 + 8, sizeof(s.known), sizeof(s)}) {
        std::memset(&s, 0xEE, sizeof(s));
        ASSERT_EQ(get(nullptr, &s.known, bytes), 0);
        EXPECT_EQ(std::memcmp(&s, &all, std::min(bytes, sizeof(all))), 0) << bytes;
        for (size_t i = sizeof(all); i < bytes; i++) ASSERT_EQ(((const uint8_t *)&s)[i], 0) << bytes << " at " << i;
        for (size_t i = bytes; i < sizeof(s); i++) ASSERT_EQ(((const uint8_t *)&s)[i], 0xEE) << bytes << " at " << i;
    }
}

TEST_F(GpuStats, RefusedSubmissions) {
    Context context;
    Words a(64), b(64);
    fill(a, [](const int *p) { return p[0]; });
    ASSERT_OK(kernel(a, b));
    ASSERT_OK(b.device_sync());
    const halide_vulkan_stats before = stats();
    ASSERT_OK(kernel(a, b));
    ASSERT_TRUE(hv_layer_fail("vkQueueSubmit", -1, -1));  // each: where memory was short it is tried again once
    EXPECT_LT(b.copy_to_host(context.raw()), 0);
    hv_layer_fail("vkQueueSubmit", 0, 0);
    const halide_vulkan_stats s = stats();
    EXPECT_EQ(s.submissions_refused, before.submissions_refused + 1);
    EXPECT_EQ(s.submissions, before.submissions);
    EXPECT_EQ(s.commands, before.commands);
}

TEST_F(GpuStats, TheFlusher) {
    use("auto");
    Words a(20000), b(20000);
    fill(a, [](const int *p) { return p[0]; });
    ASSERT_OK(kernel(a, b));
    ASSERT_OK(b.device_sync());
    // Whether a batch is open when the launches end depends on time; sooner or later one is.
    const auto begin = std::chrono::steady_clock::now();
    while (stats().submissions_by_flusher == 0) {
        ASSERT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60));
        for (int i = 0; i < 37; i++) ASSERT_OK(kernel(a, b));
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    ASSERT_OK(b.device_sync());
    const halide_vulkan_stats s = stats();
    EXPECT_LE(s.submissions_by_flusher, s.submissions);
    EXPECT_EQ(s.submissions, hv_layer_count("vkQueueSubmit"));
    EXPECT_EQ(s.commands, hv_layer_count("vkCmdDispatch") + hv_layer_count("vkCmdCopyBuffer"));
    use("count");
    Words c(20000), d(20000);
    fill(c, [](const int *p) { return p[0]; });
    for (int i = 0; i < 200; i++) ASSERT_OK(kernel(c, d));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_EQ(stats().submissions_by_flusher, 0u);
    ASSERT_OK(d.device_sync());
}

}  // namespace
