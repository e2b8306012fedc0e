// The debug flavour prints what it makes and destroys, and at the end as many are destroyed as were made.
//
// Halide's own gpu_object_lifetime tests count these words in what the runtime prints (ABI 4.7); here they are counted
// together with crops, several workgroup sizes, and a release with live buffers.
//
// Stock: passes what it can compute; on lavapipe fails for sizes that are no multiple of 64.

#include "support.h"

#include <map>
#include <mutex>

using namespace Halide;
using namespace vulkan_test;

namespace {

// Created and destroyed, as Halide 21 counts them.
const std::vector<std::pair<std::string, std::string>> &kinds() {
    static const std::vector<std::pair<std::string, std::string>> list = {
        {"vk_create_context", "vk_destroy_context"},
        {"vk_create_command_pool", "vk_destroy_command_pool"},
        {"vk_create_command_buffer", "vk_destroy_command_buffer"},
        {"vk_create_pipeline_layout", "vk_destroy_pipeline_layout"},
        {"vk_create_compute_pipeline", "vk_destroy_compute_pipeline"},
        {"vk_create_descriptor_pool", "vk_destroy_descriptor_pool"},
        {"Vulkan: Reserved memory for device region", "Vulkan: Released memory for device region"},
        {"vkCreateBuffer: Created buffer for device region", "vkDestroyBuffer: Destroyed buffer for device region"},
    };
    return list;
}

std::mutex counted_mutex;
std::map<std::string, std::pair<int, int>> counted;
size_t printed = 0;

// One line at a time, and one word a line, as Halide's tracker does it.
void on_print(JITUserContext *, const char *text) {
    std::lock_guard<std::mutex> lock(counted_mutex);
    printed++;
    for (const auto &[made, destroyed] : kinds()) {
        if (std::strstr(text, made.c_str())) {
            counted[made].first++;
        } else if (std::strstr(text, destroyed.c_str())) {
            counted[made].second++;
        }
    }
}

Target debug_target() { return gpu_target({Target::Debug}); }

class GpuDebugTrace : public ::testing::Test {
protected:
    Var x{"x"}, xi{"xi"};
    Param<int> size{"size"};
    Callable kernel = compile();
    const halide_device_interface_t *interface = vulkan_interface(debug_target());

    Callable compile() {
        JITHandlers handlers;
        handlers.custom_print = on_print;
        Internal::JITSharedRuntime::set_default_handlers(handlers);
        Func f("f");
        f(x) = x * 3;
        f.gpu_tile(x, xi, size, TailStrategy::GuardWithIf);
        return f.compile_to_callable({size}, debug_target());
    }
    void expect_balanced(bool alive = false) {
        std::lock_guard<std::mutex> lock(counted_mutex);
        EXPECT_GT(printed, 0u) << "nothing was printed";
        int total = 0;
        for (const auto &[name, count] : counted) {
            total += count.first;
            if (alive) continue;
            EXPECT_EQ(count.first, count.second) << name;
        }
        EXPECT_GT(total, 0) << "none of the counted words was printed";
    }
};

TEST_F(GpuDebugTrace, MadeAndDestroyedAreBalanced) {
    for (int round = 0; round < 3; round++) {
        for (int n : {1, 100, 1000, 70000}) {
            Runtime::Buffer<int, 1> out(n);
            ASSERT_OK(kernel(8 + round, out));
            if (n > 50) {
                Runtime::Buffer<int, 1> crop = out.cropped(0, 3, 40);
                ASSERT_OK(kernel(4, crop));
            }
            ASSERT_OK(out.copy_to_host());
            ASSERT_TRUE(matches(out, [](const int *p) { return p[0] * 3; }));
        }
        interface->device_release(nullptr, interface);
        expect_balanced();
        EXPECT_EQ(counted["vk_create_context"].first, round + 1);
    }
}

TEST_F(GpuDebugTrace, ReleaseWithLiveBuffers) {
    Runtime::Buffer<int, 1> a(1000), b(2000);
    ASSERT_OK(kernel(16, a));
    ASSERT_OK(kernel(16, b));
    interface->device_release(nullptr, interface);
    a.raw_buffer()->set_device_dirty(false);
    b.raw_buffer()->set_device_dirty(false);
    ASSERT_OK(a.device_free());
    ASSERT_OK(b.device_free());
    expect_balanced();
}

}  // namespace
